"""A server explained: patched, unpatched, refused, of another protocol, locked, not there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.diagnosis import Diagnosis, Level, text
from controlplane.doctor import examine
from controlplane.doctor_cli import diagnose, run
from controlplane.terminal import DEGRADED, OK, REFUSED, UNREACHABLE, USAGE
from engine_patch.contract import Capability
from engine_patch.contract_words import OffKind
from engine_patch.quiet_port import quiet_port
from store.observations import EngineFacts, PluginStatus, RankTier
from tests.console_story import facts, sample, tier_info
from tests.controlplane_rig import (
    EmbeddedEngine,
    control_plane,
    embedded_engine,
    settings_of,
)
from tests.engine_pipe import Pipe

URL = "http://127.0.0.1:30000"


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    """One engine for the whole file; each test heals what it broke."""
    with embedded_engine("--tp", "2", "--tiers", "off,s1k1d2,s3k1d4") as running:
        yield running


def found(diagnosis: Diagnosis, words: str) -> bool:
    """Whether a finding has ``words`` in it."""
    return any(words in f"{one.text} {one.do}" for one in diagnosis.findings)


def looked_at(known: EngineFacts, **changes: Any) -> Diagnosis:
    """The diagnosis of those facts with one poll."""
    return examine(URL, known, sample(1, **changes))


def test_a_good_engine_is_healthy_and_told_in_full() -> None:
    told = looked_at(facts(), claim_holder=None)
    assert told.healthy
    page = text(told)
    for part in ("sglang 0.5.23", "0.1.0, protocol 1", "2 x NVIDIA H200", "64 per replica", "flag"):
        assert part in page
    assert "s3k1d4" in page
    assert "launch tier" in page
    assert "can be steered; nothing is wrong" in page


def test_an_engine_without_the_plugin_is_told_how_to_get_it() -> None:
    told = looked_at(facts(plugin=PluginStatus.ABSENT, tiers=(), off_kind=None))
    assert (told.state, told.healthy) == ("unpatched", False)
    assert found(told, "pip install 'specdeck[engine]'")


def test_a_refused_plugin_is_told_with_its_sentence() -> None:
    told = looked_at(facts(plugin=PluginStatus.REFUSED, plugin_message="SGLang 0.6 differs"))
    assert told.state == "refused"
    assert found(told, "SGLang 0.6 differs")
    assert found(told, "specdeck engine check")


def test_a_server_without_metrics_is_told_the_flag() -> None:
    message = "SGLang runs without --enable-metrics: no tok/s, no accept length, no tier"
    told = looked_at(facts(plugin=PluginStatus.ABSENT, plugin_message=message))
    assert found(told, "start SGLang with --enable-metrics")


def test_the_cap_that_speculation_sets_is_wrong_with_its_origin() -> None:
    known = facts()
    assert known.identity is not None
    changed = {"requested_max_running_requests": None, "max_running_requests": 48}
    told = looked_at(
        known.model_copy(update={"identity": known.identity.model_copy(update=changed)})
    )
    assert not told.healthy
    assert found(told, "48 was set by SGLang because speculation is on")
    assert found(told, "--max-running-requests")


def test_a_slow_off_is_wrong_and_named() -> None:
    known = facts()
    assert known.identity is not None
    kind = OffKind.ONE_TOKEN_VERIFY
    told = looked_at(
        facts(
            off_kind=kind,
            tiers=(tier_info("s3k1d4"), tier_info("off", kind)),
            identity=known.identity.model_copy(update={"attention_backend": "triton"}),
        )
    )
    assert found(told, "off is slower than a plain server: one-token verify on triton")


@pytest.mark.parametrize(
    ("tiers", "words"),
    [
        (("off",), "no speculating tier was built"),
        (("s3k1d4",), "only tier s3k1d4 was built"),
        (("s3k1d4", "s1k1d2"), "tier off was not built"),
    ],
)
def test_missing_tiers_are_told(tiers: tuple[str, ...], words: str) -> None:
    built = tuple(tier_info(name) for name in tiers)
    assert found(looked_at(facts(tiers=built, off_kind=None)), words)


def test_what_is_unavailable_unseen_torn_or_held_is_told() -> None:
    lacking = Capability(name="kv_reserve", available=False, reason="page size 64")
    ranks = (
        RankTier(dp_rank=0, tp_rank=0, tier="off"),
        RankTier(dp_rank=0, tp_rank=1, tier="s3k1d4"),
        RankTier(dp_rank=0, tp_rank=2, tier=None),
    )
    told = looked_at(facts(capabilities=(lacking,)), applied=ranks)
    assert found(told, "kv_reserve is not available: page size 64")
    assert found(told, "ranks run different tiers: off, s3k1d4")
    assert found(told, "1 of 3 ranks are not observed")
    assert found(told, "specdeck@ops1 holds this engine")
    assert told.findings[0].level is Level.WRONG


def test_another_machine_is_told_about_the_admin_key() -> None:
    assert not found(looked_at(facts()), "admin key")
    assert found(examine("http://gpu7:30000", facts(), sample(1)), "admin key")


async def test_a_running_engine_is_explained_in_each_of_its_states(engine: EmbeddedEngine) -> None:
    told = await diagnose(engine.url)
    assert told.state == "patched"
    assert told.healthy, text(told)
    assert told.simulated
    try:
        engine.fault(drop_speculation=True)
        assert (await diagnose(engine.url)).state == "unpatched"
        engine.fault(clear=True)
        engine.fault(refused="SGLang 0.6.0 is not supported: use 0.5.17 to 0.5.23")
        told = await diagnose(engine.url)
        assert told.state == "refused"
        assert found(told, "use 0.5.17 to 0.5.23")
        engine.fault(clear=True)
        engine.fault(protocol=99)
        told = await diagnose(engine.url)
        assert told.state == "protocol"
        assert found(told, "the same specdeck on both sides")
    finally:
        engine.fault(clear=True)


async def test_a_locked_engine_asks_for_its_key_and_is_fine_with_it(
    engine: EmbeddedEngine,
) -> None:
    async with Pipe(engine.url, key="s3cret") as pipe:
        told = await diagnose(pipe.url)
        assert told.state == "unauthorised"
        assert found(told, "--api-key-file")
        assert (await diagnose(pipe.url, "s3cret")).state == "patched"


async def test_a_control_plane_is_not_taken_for_an_engine(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    async with control_plane(settings_of(tmp_path, engine.url)) as running:
        told = await diagnose(running.url)
    assert told.state == "control plane"
    assert found(told, "specdeck status --url")


def test_the_command_prints_and_exits_by_what_it_found(
    engine: EmbeddedEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([engine.url]) == OK
    out = capsys.readouterr().out
    assert "can be steered; nothing is wrong" in out
    assert "SIMULATED" in out
    engine.fault(drop_speculation=True)
    try:
        assert run([engine.url, "--json"]) == DEGRADED
    finally:
        engine.fault(clear=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["state"], told["healthy"]) == ("unpatched", False)


def test_a_hanging_engine_and_none_at_all_are_unreachable(
    engine: EmbeddedEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.fault(hang=1.0)
    try:
        assert run([engine.url, "--timeout", "0.3"]) == UNREACHABLE
        assert "--timeout 20 waits longer" in capsys.readouterr().out
    finally:
        engine.fault(clear=True)
    assert run([f"http://127.0.0.1:{quiet_port()}"]) == UNREACHABLE
    assert "check host and port" in capsys.readouterr().out


def test_wrong_words_are_usage_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["not a url"]) == USAGE
    assert run([URL, "--api-key-file", str(tmp_path / "none")]) == USAGE
    assert "cannot read" in capsys.readouterr().err


async def test_a_wrong_key_is_refused_and_never_printed(
    engine: EmbeddedEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "key").write_text("wr0ng-key")
    async with Pipe(engine.url, key="s3cret") as pipe:
        words = [pipe.url, "--api-key-file", str(tmp_path / "key")]
        assert await asyncio.to_thread(run, words) == REFUSED
    out = capsys.readouterr()
    assert "wr0ng-key" not in out.out + out.err


def test_what_a_server_writes_cannot_act_on_the_terminal(
    engine: EmbeddedEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.fault(refused="\x1b[2J\x1b]0;owned\x07 bad")
    try:
        run([engine.url])
    finally:
        engine.fault(clear=True)
    out = capsys.readouterr().out
    assert "bad" in out
    assert "\x1b" not in out
    assert "\x07" not in out
