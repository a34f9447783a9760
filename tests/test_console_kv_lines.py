"""KV slots, the reserve of each tier, and the cap with its origin."""

from __future__ import annotations

import pytest

from console.board import Board, seeded, with_status
from console.kv_lines import lines
from console.scene import Scene
from console.spans import plain, width
from controlplane.messages import EngineStatus
from store.observations import EngineFacts, KvNumbers, PluginStatus, Sample
from store.records import Tick
from tests.console_story import ENGINE, START_MS, facts, sample, status, tick


def text(
    seen: Sample | None = None,
    known: EngineFacts | None = None,
    size: int = 80,
    tier: str = "s3k1d4",
) -> str:
    """The page at one sample."""
    told: EngineStatus = status(known=known)
    ticks: list[Tick] = [tick(seen or sample(120), tier)]
    board = seeded(with_status(Board(ENGINE), told), ticks, ())
    scene = Scene(board, START_MS + 120_000)
    assert {width(line) for line in lines(scene, size)} == {size}
    return "\n".join(plain(line) for line in lines(scene, size))


def test_the_four_numbers_and_what_is_left_are_shown_with_shares() -> None:
    page = text()
    assert "420 000" in page
    assert "67.9 %" in page
    assert "used 67.9 % = (committed + reserve) / capacity; off at 92 %, back under 80 %" in page


def test_going_to_another_tier_is_told_in_slots() -> None:
    page = text()
    assert "▸▲ s3k1d4" in page
    assert "gives back 100" in page
    assert "off gives back 150 slots now" in page
    back = text(sample(120, "off"), tier="off")
    assert "needs 150 more" in back
    assert "off gives back" not in back


def test_what_the_engine_does_not_tell_is_missing_not_zero() -> None:
    bare = sample(120, kv=KvNumbers(capacity=1000, committed=100), engine_tier=None)
    page = text(bare, facts(plugin=PluginStatus.ABSENT, tiers=(), identity=None))
    assert "not told by this engine" in page
    assert "the engine tells no tiers" in page
    assert "the engine has not told it" in page
    nothing = text(sample(120, kv=KvNumbers(), concurrency=None))
    assert "used - %" in nothing


def test_a_cap_that_nobody_asked_for_is_explained() -> None:
    known = facts()
    assert known.identity is not None
    changed = {"requested_max_running_requests": None, "max_running_requests": 48}
    capped = known.model_copy(update={"identity": known.identity.model_copy(update=changed)})
    page = text(known=capped)
    assert "in effect 48 req, asked for -" in page
    assert "was set by SGLang because speculation is on" in page


@pytest.mark.parametrize("size", [60, 100, 140])
def test_it_fits(size: int) -> None:
    assert "KV slots" in text(size=size)
