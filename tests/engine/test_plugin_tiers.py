"""Tiers of different topk, off as ordinary decode, the reserve: in a real server, all tokens right.

A stated part of ``tests/benchmarks/test_tier_equality.py``, which runs all cases; the overlap loop
and injected faults have modules of their own, so that one server runs at a time.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine_patch.contract_words import OffFlavour, OffKind
from tests.engine import tier_checks, tier_rig
from tests.engine.conftest import MANY, SAMPLES
from tests.engine.plugin_client import NO_JOURNAL
from tests.engine.tier_rig import Reference, TierServer, compare, tier_server

pytestmark = [pytest.mark.engine, pytest.mark.timeout(480)]


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


def test_sampled_outputs_come_from_the_plain_servers_distribution(
    trees: TierServer, known: Reference
) -> None:
    with tier_rig.commands(trees, seed=4):
        drawn = tier_rig.sampled(trees.engine.url, SAMPLES)
    found = tier_rig.spreads(known.drawn, drawn)
    # Several tokens each, so that there is a distribution to differ in; how many falls to chance.
    assert all(spread.cells >= 5 for spread in found), found
    assert all(spread.same for spread in found), found


def test_the_drafters_kv_was_compared_before_it_was_kept(trees: TierServer) -> None:
    # The first off round compares, whichever test brings it about.
    trees.client.command("off", off_flavour="keep")
    trees.client.wait_runs("off")
    trees.engine.generate(MANY[:1], new_tokens=8, concurrency=1)
    assert "off keeps the drafter's KV (largest gap 0.00e+00" in trees.engine.log


@pytest.mark.parametrize(
    ("tier", "least", "most"), [("off", 1, 2), ("s1k1d2", 2, 4), ("s3k4d16", 16, 32)]
)
def test_the_slots_held_are_those_of_the_tier(
    trees: TierServer, tier: str, least: int, most: int
) -> None:
    client = trees.client
    client.ask_for(tier)
    client.wait_runs(tier)
    trees.engine.generate(MANY[:4], new_tokens=140, concurrency=4)
    held = tier_checks.slots(trees.slots)[tier][-10:]
    assert all(least <= low and high <= most for low, high in held), held


def test_an_off_round_is_a_plain_servers_decode_step(trees: TierServer) -> None:
    client = trees.client
    client.command("off", off_flavour="keep")
    client.wait_runs("off")
    trees.engine.generate(MANY[:4], new_tokens=60, concurrency=4)
    assert len(tier_checks.slots(trees.slots)["off, without verify"]) == 40


def test_a_chain_looks_for_one_candidate_until_a_tree_is_announced(trees: TierServer) -> None:
    tier_rig.chain_to_tree(trees)
    assert trees.client.replica().ranks[0].confirm_steps == 2
    slots = tier_checks.slots(trees.slots)
    # Probability and token of each round; what was found, and what is handed on.
    chain = [pair[0] for pair in slots["s3k1d4, candidates"]][1::2]
    assert chain[-10:] == [1] * 9 + [4]
    assert set(slots["s1k4d4, candidates"]) == {(4, 4)}


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
        steps = client.replica().decode_steps
        with client.load(MANY[:4], clients=4, new_tokens=120):
            if flavour == "cold":
                client.wait(lambda: client.replica().cold_requests > 0, "cold requests", 30)
            else:
                client.wait(lambda n=steps: client.replica().decode_steps > n + 20, "20 steps", 30)  # type: ignore[misc]
                assert client.replica().cold_requests == 0
        client.wait(lambda: client.replica().cold_requests == 0, "no cold request is left", 30)


def test_requests_of_a_cold_spell_are_rebuilt_on_demand(
    trees: TierServer, known: Reference
) -> None:
    client = trees.client
    right = {
        job.prompt: list(answer.tokens[:60])
        for job, answer in zip(known.jobs, known.answers, strict=True)
        if job.kind in ("text", "logprob", "stream") and job.new_tokens >= 60
    }
    assert len(right) >= 3
    client.command("off", off_flavour="cold")
    refused, rebuilt, end = "", 0, time.monotonic() + 60
    with client.load(list(right), clients=4, new_tokens=60) as answers:
        while not rebuilt:
            assert time.monotonic() < end
            client.command("off")
            client.wait(lambda: client.replica().cold_requests > 0, "cold requests", 30)
            answer = client.http.post("/speculation/rebuild")
            if answer.status_code == 422:
                refused = answer.json()["message"]
            client.command("on", tier="s1k1d2")
            client.wait_runs("s1k1d2", 30)
            answer = client.http.post("/speculation/rebuild")
            assert answer.status_code == 200, answer.text
            rebuilt = answer.json()["replicas"][0]["rebuilt"]
        # None is left that lived through it: those that remain were prefilled whole.
        client.wait(lambda: client.replica().cold_requests == 0, "all rebuilt", 30)
        assert client.replica().rebuilt_requests == rebuilt
    assert "command another tier or flavour first" in refused
    assert answers == {prompt: right[prompt] for prompt in answers}
    client.command("off", off_flavour="keep")
    client.wait_runs("off", 30)


def test_a_command_runs_within_two_steps(trees: TierServer) -> None:
    client = trees.client
    with client.load(MANY, clients=8, new_tokens=120):
        client.wait(lambda: client.replica().running > 4, "load", 30)
        seen: list[int] = []
        for tier in ("s3k4d16", "off", "s3k1d4", "off", "s3k4d16", "s1k1d2", "s2k4d8") * 3:
            client.ask_for(tier)
            client.wait_runs(tier, 30)
            taken = client.replica().ranks[0].confirm_steps
            if taken is not None:  # else all requests had just ended, and an idle engine obeyed
                seen.append(taken)
    assert len(seen) > 6
    # One more where the reserve follows, or the drafter needs a whole round first.
    assert set(seen) <= {1, 2}


@pytest.mark.parametrize(
    "tiers", [("s1k1d2", "s3k4d16", "s3k1d4", "s2k4d8"), ("off", "s3k1d4"), ("off", "s3k4d16")]
)
def test_a_switch_costs_a_request_at_most_one_step(
    trees: TierServer, tiers: tuple[str, ...]
) -> None:
    """A request that is moved about, against one on each tier alone.

    A step does the share of the work that one of its tier's steps does alone.  What all of them do
    beyond the whole was lost, and must not be more than a step for each switch.
    """
    client, tokens = trees.client, 400

    def answer(during: Callable[[], None] = lambda: None) -> tuple[int, list[int]]:
        """Decode steps of one request, and its answer."""
        before = client.replica().decode_steps
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(trees.engine.generate, MANY[:1], new_tokens=tokens)
            while not asked.done():
                during()
                time.sleep(0.03)
        client.wait(lambda: client.replica().running == 0, "an idle engine")
        return client.replica().decode_steps - before, asked.result()[0]["output_ids"]

    alone, answers = {}, []
    for tier in tiers:
        client.ask_for(tier)
        client.wait_runs(tier)
        alone[tier], same = answer()
        answers.append(same)
    first, before = tiers[-1], client.replica()
    turn = itertools.cycle(tiers)
    steps, same = answer(lambda: client.ask_for(next(turn)))
    assert all(same == other for other in answers)
    moves = [entry for entry in client.state().journal if entry.seq > before.switches]
    assert len(moves) >= 10
    begun = [(before.decode_steps, first), *((move.step - 1, move.to_tier) for move in moves)]
    ended = [at for at, _ in begun[1:]] + [before.decode_steps + steps]
    done = sum((end - at) / alone[tier] for (at, tier), end in zip(begun, ended, strict=True))
    lost = sum(1 / alone[move.to_tier] for move in moves)
    assert 0.9 < done <= 1 + lost, (done, lost, alone, begun)


def test_requests_of_a_cold_spell_stay_out_of_the_prefix_cache(trees: TierServer) -> None:
    client, prompt = trees.client, list(range(100, 140))
    for flavour, cached in (("cold", False), ("keep", True)):
        client.command("off", off_flavour=flavour)
        client.wait_runs("off")
        start = [7 + cached, *prompt]
        sent, found = client.continued(start, new_tokens=30)
        # SGLang keys its cache by pairs of tokens here, and the last of an answer has no KV yet.
        assert found == (sent - 2 if cached else len(start) - 1), (flavour, sent, found)


def test_step_times_are_measured_per_tier(trees: TierServer) -> None:
    client = trees.client
    for tier in ("off", "s2k4d8"):
        client.ask_for(tier)
        client.wait_runs(tier)
        trees.engine.generate(MANY[:4], new_tokens=150, concurrency=4)

    def published() -> bool:
        """Costs are published once a second, at the end of a step."""
        trees.engine.generate(MANY[:1], new_tokens=10)
        return {("off", 4), ("s2k4d8", 4)} <= {(c.tier, c.bucket) for c in client.state().costs}

    time.sleep(1.2)
    client.wait(published, "both tiers' costs", 30)
    cells = {(c.tier, c.bucket): c for c in client.state().costs}
    for tier in ("off", "s2k4d8"):
        cell = cells[tier, 4]
        assert cell.samples > 10
        assert 0 < cell.mean_ms < 1000
    off, tree = cells["off", 4].tokens_per_step, cells["s2k4d8", 4].tokens_per_step
    assert off is not None
    assert tree is not None
    assert off <= 4 < tree


def test_switches_leave_no_record_behind(trees: TierServer) -> None:
    """300 of the 10,000 of ``tests/benchmarks/test_switch_endurance.py``."""
    client, tiers = trees.client, tier_rig.MORE.split(",")

    with client.load(MANY[:4], clients=2, new_tokens=60):
        client.wait(lambda: client.replica().running > 0, "load")
        before, now = trees.overrides(), client.state(NO_JOURNAL)
        start = now.replicas[0].switches
        for turn in range(10**6):
            if turn % 20 == 0 and client.replica().switches - start >= 300:
                break
            tier = tiers[turn % len(tiers)]
            client.ask_for(tier, epoch=now.epoch, generation=now.generation + 1 + turn)
    trees.engine.generate(MANY[:2], new_tokens=40)
    assert trees.overrides() <= before + 1
