"""A tree after a chain: it waits until a round has looked for its candidates."""

from __future__ import annotations

import logging
import random
from types import SimpleNamespace

import pytest

from engine_patch import adapter_off, adapter_reserve, adapter_room, adapter_sglang, adapter_tiers
from engine_patch.adapter_launch import BUILT_VARIABLE
from engine_patch.contract_words import OffFlavour
from engine_patch.tier_plan import parse, plan
from tests.test_engine_patch_adapter_rank import Off, Worker

TIERS = ("off", "s3k1d4", "s3k2d4", "s1k4d4")
"""But for off, all of them need the same slots."""


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    """Launched with the widest tree."""
    monkeypatch.setattr(adapter_tiers, "_controller", None)
    monkeypatch.setattr(adapter_sglang, "forget_switch", lambda: None)
    monkeypatch.setattr(adapter_off, "Off", Off)
    monkeypatch.setattr(adapter_room, "memory_setting", lambda _: None)
    monkeypatch.setattr(adapter_reserve, "_lengths", dict.fromkeys(TIERS, 4))
    monkeypatch.delenv(adapter_reserve.VARIABLE, raising=False)
    monkeypatch.setenv(BUILT_VARIABLE, plan(",".join(TIERS), None, parse("s1k4d4")[0]).dump())
    return _launched()


def _launched() -> Worker:
    launched = Worker()
    launched.topk = launched._draft_worker.topk = 4
    launched.speculative_num_steps, launched.speculative_num_draft_tokens = 1, 4
    return launched


class Commanded:
    """A chooser that decides what it is told."""

    def __init__(self, tiers: adapter_tiers.TierController) -> None:
        self._tiers = tiers
        self.wanted = tiers.active
        self.off_flavour = OffFlavour.WARM

    def next_tier(self, batch: int, *, free_slots: object = None) -> str:
        """What was asked for."""
        del batch, free_slots
        return self.wanted

    def rounds(self, wanted: str, count: int) -> list[tuple[str, int]]:
        """Tiers of the next rounds, and how many candidates each hands on."""
        self.wanted = wanted
        ran = []
        for _ in range(count):
            self._tiers.activate_step_by_batch(2)
            ran.append((self._tiers.active, self._tiers.relayed))
        return ran


@pytest.fixture
def commanded(worker: Worker) -> Commanded:
    """All tiers are built."""
    return _built(worker)


def _built(worker: Worker) -> Commanded:
    tiers = adapter_tiers.TierController(worker)
    tiers.register(worker.build_adaptive_runtime_state(1, 4, None))
    tiers.init_states()
    chooser = Commanded(tiers)
    tiers.chooser = chooser  # type: ignore[assignment]
    return chooser


def test_a_chain_looks_for_one_candidate_until_a_tree_is_wanted(commanded: Commanded) -> None:
    assert commanded.rounds("s3k1d4", 3) == [("s3k1d4", 1)] * 3
    assert commanded.rounds("s1k4d4", 3) == [("s3k1d4", 4), ("s1k4d4", 4), ("s1k4d4", 4)]
    assert commanded.rounds("s3k1d4", 2) == [("s3k1d4", 1)] * 2


def test_a_wider_tree_waits_too_and_a_narrower_one_does_not(commanded: Commanded) -> None:
    commanded.rounds("s3k1d4", 1)
    assert commanded.rounds("s3k2d4", 2) == [("s3k1d4", 2), ("s3k2d4", 2)]
    assert commanded.rounds("s1k4d4", 2) == [("s3k2d4", 4), ("s1k4d4", 4)]
    assert commanded.rounds("s3k2d4", 1) == [("s3k2d4", 2)]


def test_another_wish_while_a_tree_is_announced_starts_anew(commanded: Commanded) -> None:
    commanded.rounds("s3k1d4", 1)
    assert commanded.rounds("s3k2d4", 1) == [("s3k1d4", 2)]
    assert commanded.rounds("s1k4d4", 2) == [("s3k1d4", 4), ("s1k4d4", 4)]


def test_off_looks_for_all_that_may_follow(commanded: Commanded) -> None:
    commanded.rounds("s3k1d4", 1)
    assert commanded.rounds("off", 1) == [("off", 4)]
    assert commanded.rounds("s1k4d4", 1) == [("s1k4d4", 4)]


def test_what_follows_an_idle_moment_comes_from_a_prefill(commanded: Commanded) -> None:
    commanded.rounds("s3k1d4", 2)
    tiers = adapter_tiers.controller()
    assert tiers is not None
    tiers.settle("s3k2d4")
    assert commanded.rounds("s1k4d4", 1) == [("s1k4d4", 4)]


@pytest.mark.usefixtures("worker")
def test_a_round_like_the_one_before_is_begun_as_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Most rounds take a short cut; the same wishes without it must end alike, round by round."""
    chance = random.Random(3)
    wishes = [
        (chance.choice(TIERS), chance.choice(list(OffFlavour)), chance.random() < 0.05)
        for _ in range(2000)
    ]
    wishes = [wish for wish in wishes for _ in range(chance.randint(1, 3))]
    seen: dict[bool, list[object]] = {}
    for shortcut in (True, False):
        monkeypatch.setattr(adapter_tiers, "_controller", None)
        chooser = _built(_launched())
        tiers = adapter_tiers.controller()
        assert tiers is not None
        seen[shortcut] = []
        for wanted, flavour, idle in wishes:
            if idle:
                tiers.settle(wanted)
            if not shortcut:
                tiers.round = adapter_tiers.Round("none of them")
            chooser.wanted, chooser.off_flavour = wanted, flavour
            tiers.activate_step_by_batch(2)
            seen[shortcut].append(
                (tiers.active, tiers.announced, tiers.round, tiers.relayed, tiers.bridges)
            )
    assert seen[True] == seen[False]
    assert {one[0] for one in seen[True]} == set(TIERS)  # type: ignore[index]


def test_a_tier_that_cannot_be_built_is_named_with_what_helps(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tiers = adapter_tiers.TierController(worker)
    tiers.register(SimpleNamespace(speculative_num_steps=1))

    def full(*_: object, **__: object) -> None:
        raise RuntimeError("Buffer overflow when allocating memory")

    monkeypatch.setattr(worker, "build_adaptive_runtime_state", full)
    with caplog.at_level(logging.ERROR), pytest.raises(RuntimeError, match="Buffer overflow"):
        tiers.init_states()
    (said,) = caplog.messages
    assert "tier off could not be built" in said
    assert "SPECDECK_TIER_MAX_BATCH=off=N" in said
    assert tiers.building is None
