"""Tiers of different topk, off as ordinary decode, the reserve: in real servers, never a token off.

A stated part of ``tests/benchmarks/test_tier_equality.py``, which runs all cases.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine_patch.contract import OffFlavour, OffKind
from tests.engine import tier_checks, tier_rig
from tests.engine.conftest import MANY
from tests.engine.plugin_client import PluginClient
from tests.engine.tier_rig import Reference, TierServer, compare, tier_server

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]

JOBS = 35


@pytest.fixture(scope="module")
def known(work: Path) -> Reference:
    """What the plain server answers."""
    return tier_rig.reference(work, seed=7, count=JOBS)


@pytest.fixture(scope="module")
def trees(work: Path, known: Reference) -> Iterator[TierServer]:
    """A server on SGLang's ordinary loop, with prefill in chunks."""
    del known  # first, so that one server runs at a time
    with tier_server(
        work, "trees", tiers=tier_rig.MORE, args=["--chunked-prefill-size", "64"]
    ) as s:
        yield s


def test_trees_chains_and_off_are_built_with_their_costs(trees: TierServer) -> None:
    state = trees.client.state()
    tiers = {tier.name: tier for tier in state.tiers}
    assert set(tiers) == set(tier_rig.MORE.split(","))
    assert {name: tier.alloc_len for name, tier in tiers.items()} == {
        "off": 1,
        "s1k1d2": 2,
        "s3k1d4": 4,
        "s3k2d4": 6,
        "s2k4d8": 8,
        "s1k4d4": 4,
        "s3k4d16": 16,
    }
    assert tiers["off"].off_kind is OffKind.PLAIN_PATH
    assert all(tier.build_s is not None for name, tier in tiers.items() if name != "s2k4d8")
    capabilities = {c.name: c for c in state.capabilities}
    for name in ("tree_tiers", "all_tiers", "plain_off", "keep_drafter_kv", "step_costs"):
        assert capabilities[name].available, capabilities[name]
    assert state.off_flavour is OffFlavour.KEEP


def test_outputs_equal_the_plain_servers_whatever_is_commanded(
    trees: TierServer, known: Reference
) -> None:
    report = compare(trees, known, seed=1, concurrency=12)
    assert report.wrong == []
    assert report.used == 0
    assert report.aborted > 0
    assert report.switches > 20
    assert report.kinds > 10
    assert trees.client.replica().ranks[0].observed


def test_the_drafters_kv_was_compared_before_it_was_kept(trees: TierServer) -> None:
    assert "off keeps the drafter's KV (largest gap 0.00e+00" in trees.engine.log


@pytest.mark.parametrize(
    ("tier", "least", "most"), [("off", 1, 2), ("s1k1d2", 2, 4), ("s3k4d16", 16, 32)]
)
def test_the_slots_held_are_those_of_the_tier(
    trees: TierServer, tier: str, least: int, most: int
) -> None:
    client = trees.client
    client.command("off" if tier == "off" else "on", tier=None if tier == "off" else tier)
    client.wait_runs(tier)
    trees.engine.generate(MANY[:4], new_tokens=140, concurrency=4)
    held = tier_checks.slots(trees.slots)[tier][-10:]
    assert all(least <= low and high <= most for low, high in held), held


def test_a_journal_entry_tells_what_was_given_back(trees: TierServer) -> None:
    trees.client.command("on", tier="s3k4d16")
    trees.client.wait_runs("s3k4d16")
    trees.client.command("off")
    trees.client.wait_runs("off")
    entry = trees.client.state().journal[-1]
    assert (entry.from_tier, entry.to_tier, entry.reserve_returned) == ("s3k4d16", "off", 30)


def test_the_flavour_changes_live_and_cold_requests_are_reported(trees: TierServer) -> None:
    client = trees.client
    for flavour in ("warm", "cold", "keep"):
        client.command("off", off_flavour=flavour)
        client.wait(lambda f=flavour: client.state().off_flavour == f, flavour)  # type: ignore[misc]
        with client.load(MANY[:4], clients=4, new_tokens=120):
            client.wait(lambda: client.replica().running == 4, "4 running")
            time.sleep(0.3)
            cold = client.replica().cold_requests
        assert (cold > 0) is (flavour == "cold")
    client.wait(lambda: client.replica().cold_requests == 0, "no cold request is left")


def _continued(client: PluginClient, prompt: list[int]) -> tuple[int, int]:
    """Answer a prompt, then send it again with its answer: tokens sent, and found in the cache."""

    def answer(tokens: list[int], new_tokens: int) -> dict[str, Any]:
        params = {"max_new_tokens": new_tokens, "temperature": 0, "ignore_eos": True}
        reply = client.http.post("/generate", json={"input_ids": tokens, "sampling_params": params})
        found: dict[str, Any] = reply.json()
        return found

    longer = prompt + answer(prompt, 30)["output_ids"]
    return len(longer), answer(longer, 2)["meta_info"]["cached_tokens"]


def test_requests_of_a_cold_spell_stay_out_of_the_prefix_cache(trees: TierServer) -> None:
    client, prompt = trees.client, list(range(100, 140))
    for flavour, cached in (("cold", False), ("keep", True)):
        client.command("off", off_flavour=flavour)
        client.wait_runs("off")
        start = [7 + cached, *prompt]
        sent, found = _continued(client, start)
        # SGLang keys its cache by pairs of tokens here, and the last of an answer has no KV yet.
        assert found == (sent - 2 if cached else len(start) - 1), (flavour, sent, found)


def test_step_times_are_measured_per_tier(trees: TierServer) -> None:
    client = trees.client
    for tier in ("off", "s2k4d8"):
        client.command("off" if tier == "off" else "on", tier=None if tier == "off" else tier)
        client.wait_runs(tier)
        trees.engine.generate(MANY[:4], new_tokens=150, concurrency=4)
    time.sleep(1.2)
    trees.engine.generate(MANY[:1], new_tokens=10)
    cells = {(c.tier, c.bucket): c for c in client.state().costs}
    for tier in ("off", "s2k4d8"):
        cell = cells[tier, 4]
        assert cell.samples > 10
        assert 0 < cell.mean_ms < 1000
    off, tree = cells["off", 4].tokens_per_step, cells["s2k4d8", 4].tokens_per_step
    assert off is not None
    assert tree is not None
    assert off <= 4 < tree


@pytest.fixture(scope="module")
def tight(work: Path, known: Reference) -> Iterator[TierServer]:
    """A server on the overlap loop that admits more than its few KV slots hold, so it retracts."""
    del known
    few = ["--max-total-tokens", "1000", "--schedule-conservativeness", "0.05"]
    with tier_server(
        work, "tight", tiers=tier_rig.WIDE, overlap=True, args=few,
        env=tier_rig.RETRACTIONS | {"SGLANG_TEST_RETRACT_INTERVAL": "40"},
    ) as server:  # fmt: skip
        yield server


def test_the_overlap_loop_with_retractions_gives_the_same_outputs(
    tight: TierServer, known: Reference
) -> None:
    assert "'disable_overlap_schedule': False" in tight.engine.log
    report = compare(tight, known, seed=2, concurrency=12)
    assert report.wrong == []
    assert (report.used, report.retractions > 0) == (0, True)
    assert report.switches > 20


def test_a_larger_tier_without_free_slots_is_refused_and_nothing_moves(tight: TierServer) -> None:
    client, end = tight.client, time.monotonic() + 30
    client.command("off")
    client.wait_runs("off")
    refusals: list[dict[str, Any]] = []
    with client.load(MANY, clients=16, new_tokens=160):
        while not refusals and time.monotonic() < end:
            answer = client.put("on", tier="s5k4d8")
            if answer.status_code == 409:
                refusals.append(answer.json())
                tier = client.state().desired_tier
            client.command("off")
            time.sleep(0.02)
    assert refusals
    assert refusals[0]["code"] == "kv_short"
    assert refusals[0]["needed_slots"] > refusals[0]["free_slots"] >= 0
    assert tier == "off"


@pytest.mark.parametrize(("fault", "words"), [("reserve", "slots, "), ("length", "was expected")])
def test_an_injected_fault_is_noticed(
    work: Path, known: Reference, fault: tier_checks.Fault, words: str
) -> None:
    # On a busy machine the tiers of a run may pass the fault by: one more run, not one more luck.
    names = (f"fault-{fault}", f"fault-{fault}-again")
    assert any(words in tier_rig.notices(work, name, known, fault) for name in names)


def test_no_fault_can_be_switched_on_in_what_is_installed() -> None:
    root = Path(__file__).parents[2]
    for package in ("engine_patch", "store", "controlplane", "console"):
        for file in (root / package).rglob("*.py"):
            assert tier_checks.FAULT_VARIABLE not in file.read_text()
