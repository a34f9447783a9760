"""What the override section and the dialogs say."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC
from typing import Any

import pytest

from console.board import Board, apply, with_status
from console.override import effect, extend_effect, release_effect, section, sent, stance_effect
from console.scene import Scene
from console.spans import plain
from controlplane.messages import ExtendRequest, OverrideRequest
from engine_patch.contract_words import Mode
from store.observations import PluginStatus
from store.policies import Stance
from store.records import Guards
from tests.console_pictures import NOW_MS
from tests.console_story import DEEP, ENGINE, facts, override, sample, status, tick


def shown(**changes: Any) -> Scene:
    known = changes.pop("known", None)
    board = apply(with_status(Board(ENGINE), status(known=known)), tick(sample(120), **changes))
    return Scene(board, now_ms=NOW_MS, zone=UTC)


def request(**changes: Any) -> OverrideRequest:
    given = {"mode": Mode.ON, "tier": DEEP, "length_s": 600, "author": "op1", "reason": "test"}
    return OverrideRequest(**given | changes)


def bar(scene: Scene, size: int = 80) -> str:
    return plain(section(scene, size)[1]).strip()


def test_without_an_override_it_says_how_to_set_one_and_what_happens_without_us() -> None:
    assert bar(shown()) == ("none · m sets one · fail-safe: engine's lease ends in 28s without us")


def test_an_override_in_force_shows_mode_reason_author_end_and_guards() -> None:
    scene = shown(override=override(), override_left_s=221.3)
    assert bar(scene, 100) == (
        'on s3k1d4 · "load test" by op1 · until 12:08:12 · 03:41 left · guards keep'
    )


def test_a_narrow_bar_keeps_mode_time_left_and_guards() -> None:
    scene = shown(override=override(), override_left_s=221.3)
    assert bar(scene, 50).startswith("on s3k1d4 · 03:41 left · guards keep")


def test_an_engine_without_the_plugin_offers_no_override() -> None:
    absent = facts(plugin=PluginStatus.ABSENT)
    assert bar(shown(known=absent)) == "none: this engine can be observed, not commanded"


def test_read_only_says_why() -> None:
    scene = replace(shown(), readonly="read-only: started with --readonly")
    assert bar(scene) == "none · read-only: started with --readonly"


def test_the_effect_names_tier_end_and_who_decides_then() -> None:
    assert effect(request(), shown(), 86400.0) == (
        "every rank runs s3k1d4 until 12:14:31 UTC (10m)",
        "then automation decides again",
        "KV and retraction guards may still turn speculation off",
    )


def test_off_and_auto_are_told_apart() -> None:
    assert "no speculation" in effect(request(mode=Mode.OFF, tier=None), shown(), None)[0]
    assert "its own thresholds" in effect(request(mode=Mode.AUTO, tier=None), shown(), None)[0]
    assert "last speculating tier" in effect(request(tier=None), shown(), None)[0]


def test_suspended_guards_are_spelled_out() -> None:
    texts = effect(request(guards=Guards.SUSPEND), shown(), None)
    assert "guards are suspended: KV pressure will not turn speculation off" in texts


def test_replacing_another_persons_override_is_said() -> None:
    scene = shown(override=override(), override_left_s=221.3)
    assert "replaces the override of op1 that is in force" in effect(request(), scene, None)


def test_a_length_over_the_limit_is_pointed_out() -> None:
    texts = effect(request(length_s=7200), shown(), 3600.0)
    assert "longer than this control plane allows (1h)" in texts


@pytest.mark.parametrize(
    ("stance", "words"),
    [
        (Stance.ACTIVE, "then automation decides again"),
        (Stance.SHADOW, "then nothing is commanded: automation is in shadow"),
        (Stance.PAUSED, "then nothing is commanded: automation is paused"),
    ],
)
def test_what_follows_depends_on_the_stance(stance: Stance, words: str) -> None:
    scene = shown(stance=stance, override=override(), override_left_s=221.3)
    assert words in effect(request(), scene, None)
    assert release_effect(override(), scene) == (
        "on s3k1d4 by op1 ends now instead of in 03:41",
        words,
    )


def test_extending_shows_the_old_and_the_new_end() -> None:
    longer = ExtendRequest(extra_s=900, author="op1")
    assert extend_effect(longer, override(), shown()) == (
        "on s3k1d4 by op1 ends at 12:08:12 as it stands",
        "with 15m more it ends at 12:23:12 UTC",
    )


def test_every_stance_is_explained() -> None:
    texts = {stance_effect(stance) for stance in Stance}
    assert len(texts) == len(Stance)


def test_what_is_sent_is_shown_as_it_goes_out() -> None:
    text = sent("PUT", ENGINE, "override", request())
    head, _, body = text.partition(" {")
    assert head == "PUT /v1/engines/h200-0/override"
    assert json.loads("{" + body) == json.loads(request().model_dump_json())
