"""A patched engine's answer as facts and samples."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane import patched
from controlplane.patched import Seen
from controlplane.polled import Stamp
from engine_patch.contract import (
    PROTOCOL,
    AcceptWindow,
    Capability,
    Claim,
    Identity,
    JournalEntry,
    KvSlots,
    Lease,
    RankState,
    ReplicaState,
    Simulation,
    SpeculationState,
    TierInfo,
    Versions,
)
from engine_patch.contract_words import Mode, OffKind, OnLeaseEnd, SwitchReason
from engine_patch.tier import TierShape
from store.observations import PluginStatus, Sample, Source

STAMP = Stamp("e", 7, 1000, 50, "clock", 2.5)


def tier(name: str, **more: Any) -> TierInfo:
    shape = TierShape.parse(name)
    return TierInfo(name=name, **shape.model_dump(), alloc_len=shape.alloc_len(), **more)


def rank(number: int, tier: str | None = "s3k1d4", *, observed: bool = True) -> RankState:
    return RankState(
        tp_rank=number, observed=observed, tier=tier, applied_epoch=2, applied_generation=9
    )


def replica(dp_rank: int = 0, **changes: Any) -> ReplicaState:
    values: dict[str, Any] = {
        "dp_rank": dp_rank,
        "ranks": (rank(0),),
        "running": 8,
        "queued": 1,
        "prefilling": 2,
        "kv": KvSlots(capacity=1000, committed=300, evictable=50, reserve=48),
        "accept": AcceptWindow(tier="s3k1d4", length=2.0, requests=100, steps=20),
        "decode_tokens": 500,
        "decode_steps": 60,
        "verify_steps": 40,
        "prefill_tokens": 700,
        "retractions": 1,
        "graph_misses": 3,
        "sample": 5,
    }
    return ReplicaState(**{**values, **changes})


def entry(seq: int, dp_rank: int = 0) -> JournalEntry:
    return JournalEntry(
        dp_rank=dp_rank,
        seq=seq,
        from_tier="s3k1d4",
        to_tier="off",
        reason=SwitchReason.BATCH_UP,
        step=1,
        batch=9,
    )


def state(*replicas: ReplicaState, **changes: Any) -> SpeculationState:
    values: dict[str, Any] = {
        "protocol": PROTOCOL,
        "protocol_min": 1,
        "boot_id": "boot-1",
        "uptime_s": 3.0,
        "versions": Versions(engine="sglang", engine_version="0.5.23", plugin_version="0.1"),
        "identity": Identity(model="m"),
        "capabilities": (Capability(name="auto", available=True),),
        "tiers": (tier("off", off_kind=OffKind.ONE_TOKEN_VERIFY), tier("s3k1d4")),
        "launch_tier": "s3k1d4",
        "mode": Mode.ON,
        "desired_tier": "s3k1d4",
        "thresholds": None,
        "epoch": 2,
        "generation": 9,
        "replicas": replicas or (replica(),),
    }
    return SpeculationState(**{**values, **changes})


def samples(*states: SpeculationState, seen: Seen | None = None) -> list[Sample]:
    seen = seen or Seen()
    out = []
    for one in states:
        seen, sample = patched.observe(seen, one, STAMP)
        out.append(sample)
    return out


def test_facts_are_taken_over_with_the_kind_of_off() -> None:
    facts = patched.facts_of(state())
    assert facts.plugin is PluginStatus.PRESENT
    assert facts.writable
    assert (facts.boot_id, facts.protocol) == ("boot-1", PROTOCOL)
    assert facts.off_kind is OffKind.ONE_TOKEN_VERIFY
    assert not facts.simulated
    simulated = patched.facts_of(
        state(simulation=Simulation(table="t", source="s", lag=0.0, valid=True))
    )
    assert (simulated.simulated, simulated.simulation_table) == (True, "t")


def test_one_replica_is_carried_over_field_by_field() -> None:
    claim, lease = (
        Claim(holder="h", epoch=2, remaining_s=4.0),
        Lease(lease_s=30, remaining_s=12.0, on_lease_end=OnLeaseEnd.AUTO),
    )
    (sample,) = samples(
        state(
            claim=claim,
            lease=lease,
            simulation=Simulation(table="t", source="s", lag=0.01, valid=False),
        )
    )
    assert (sample.source, sample.seq, sample.latency_ms) == (Source.SPECULATION, 7, 2.5)
    assert (sample.concurrency, sample.queued, sample.prefilling) == (8, 1, 2)
    assert (sample.decode_tokens, sample.decode_steps, sample.verify_steps) == (500, 60, 40)
    assert (sample.prefill_tokens, sample.retractions, sample.graph_misses) == (700, 1, 3)
    assert sample.kv.used == pytest.approx(0.348)
    assert sample.kv.evictable == 50
    assert (sample.accept_length, sample.accept_tier, sample.accept_requests) == (
        2.0,
        "s3k1d4",
        100,
    )
    assert (sample.mode, sample.desired_tier) == (Mode.ON, "s3k1d4")
    assert (sample.epoch, sample.generation) == (2, 9)
    assert (sample.claim_holder, sample.claim_remaining_s, sample.lease_remaining_s) == ("h", 4, 12)
    assert (sample.simulation_lag, sample.simulation_valid) == (0.01, False)


def test_dp_replicas_add_and_the_busiest_one_is_told_apart() -> None:
    (sample,) = samples(state(replica(0, running=30), replica(1, running=4)))
    assert (sample.concurrency, sample.replica_concurrency) == (34, 30)
    assert sample.decode_tokens == 1000
    assert sample.kv.capacity == 2000


def test_an_answer_without_replicas_tells_nothing() -> None:
    (sample,) = samples(state().model_copy(update={"replicas": ()}))
    assert sample.concurrency is None
    assert sample.decode_tokens is None
    assert sample.kv.used is None
    assert not sample.fresh


def test_accept_lengths_of_one_tier_are_weighted_by_their_requests() -> None:
    one = AcceptWindow(tier="s3k1d4", length=2.0, requests=30, steps=5)
    two = AcceptWindow(tier="s3k1d4", length=3.0, requests=10, steps=5)
    (sample,) = samples(state(replica(0, accept=one), replica(1, accept=two)))
    assert (sample.accept_length, sample.accept_requests) == (2.25, 40)


def test_accept_lengths_of_different_tiers_are_not_mixed() -> None:
    other = AcceptWindow(tier="s1k1d2", length=1.5, requests=10, steps=5)
    (sample,) = samples(state(replica(0), replica(1, accept=other)))
    assert (sample.accept_length, sample.accept_tier, sample.accept_requests) == (None, None, 0)


@pytest.mark.parametrize(
    "window",
    [
        None,
        AcceptWindow(tier="s3k1d4", length=None, requests=0, steps=0),
        AcceptWindow(tier="s3k1d4", length=2.0, requests=0, steps=0),
        AcceptWindow(tier="off", length=1.0, requests=100, steps=20),
    ],
)
def test_an_empty_window_and_one_of_tier_off_are_no_acceptance(window: AcceptWindow | None) -> None:
    (sample,) = samples(state(replica(accept=window)))
    assert sample.accept_length is None


def test_idle_shows_no_accept_length_unless_something_was_verified_since() -> None:
    busy, done = replica(), replica(running=0, verify_steps=44, sample=6)
    still = replica(running=0, verify_steps=44, sample=7)
    lengths = [one.accept_length for one in samples(state(busy), state(done), state(still))]
    assert lengths == [2.0, 2.0, None]
    (first,) = samples(state(still))
    assert first.accept_length is None


def test_every_rank_is_listed_and_an_unobserved_one_has_no_tier() -> None:
    ranks = (rank(0), rank(1, "off", observed=False))
    (sample,) = samples(state(replica(ranks=ranks)))
    assert [(r.tp_rank, r.tier, r.epoch, r.generation) for r in sample.applied] == [
        (0, "s3k1d4", 2, 9),
        (1, None, 2, 9),
    ]
    assert sample.engine_tier == "s3k1d4"


def test_ranks_or_replicas_that_differ_have_no_common_tier() -> None:
    (ranks,) = samples(state(replica(ranks=(rank(0), rank(1, "off")))))
    assert ranks.engine_tier is None
    (replicas,) = samples(state(replica(0), replica(1, ranks=(rank(0, "off"),))))
    assert replicas.engine_tier is None
    (unseen,) = samples(state(replica(ranks=(rank(0, None, observed=False),))))
    assert unseen.engine_tier is None


def test_a_repeated_sample_number_is_not_a_new_sample() -> None:
    fresh = [s.fresh for s in samples(state(), state(), state(replica(sample=6)))]
    assert fresh == [True, False, True]


def test_a_busy_replica_that_stands_still_makes_the_answer_a_repetition() -> None:
    first = state(replica(0), replica(1))
    hangs = state(replica(0, sample=6), replica(1))
    idles = state(replica(0, sample=7), replica(1, running=0))
    assert [s.fresh for s in samples(first, hangs, idles)] == [True, False, True]


def test_a_restart_makes_everything_new() -> None:
    before = state(journal=(entry(1), entry(2)))
    after = state(boot_id="boot-2", journal=(entry(1),))
    first, second, third = samples(before, after, after)
    # The second answer was asked from number 2 of the old start: it may lack entries.
    assert second.switches == ()
    assert [e.seq for e in third.switches] == [1]
    assert not second.journal_hole
    assert not third.journal_hole
    assert second.fresh
    assert (first.boot_id, second.boot_id) == ("boot-1", "boot-2")


def test_journal_entries_are_handed_on_once() -> None:
    out = samples(state(journal=(entry(1),)), state(journal=(entry(1), entry(2))), state())
    assert [[e.seq for e in one.switches] for one in out] == [[1], [2], []]
    assert not any(one.journal_hole for one in out)


def test_a_jump_in_the_numbering_is_a_hole() -> None:
    out = samples(state(journal=(entry(1),)), state(journal=(entry(4),), journal_first=4))
    assert [one.journal_hole for one in out] == [False, True]
    assert [e.seq for e in out[1].switches] == [4]


def test_a_first_entry_that_is_not_the_first_is_a_hole_once_the_engine_is_known() -> None:
    out = samples(state(), state(journal=(entry(2),)))
    assert out[1].journal_hole


def test_entries_dropped_before_the_first_contact_are_no_hole() -> None:
    (sample,) = samples(state(journal=(entry(90), entry(91)), journal_first=90))
    assert not sample.journal_hole
    assert [e.seq for e in sample.switches] == [90, 91]


def test_entries_dropped_without_a_newer_one_are_a_hole_that_is_told_once() -> None:
    dropped = state(journal_first=5)
    out = samples(state(journal=(entry(1),)), dropped, dropped)
    assert [one.journal_hole for one in out] == [False, True, False]


def test_numbering_is_checked_for_each_replica() -> None:
    replicas = (replica(0), replica(1))
    first = state(*replicas, journal=(entry(1, 0), entry(1, 1), entry(2, 1)))
    whole = state(*replicas, journal=(entry(2, 1), entry(2, 0), entry(3, 1)))
    broken = state(*replicas, journal=(entry(3, 0), entry(5, 1)))
    out = samples(first, whole, broken)
    assert [one.journal_hole for one in out] == [False, False, True]
    assert [(e.dp_rank, e.seq) for e in out[1].switches] == [(0, 2), (1, 3)]


def test_the_journal_is_asked_from_the_replica_that_is_least_far() -> None:
    seen, _ = patched.observe(
        Seen(), state(replica(0), replica(1), journal=(entry(1), entry(2))), STAMP
    )
    assert seen.since == 0
    seen, _ = patched.observe(
        seen, state(replica(0), replica(1), journal=(entry(1, 1), entry(3))), STAMP
    )
    assert seen.since == 1


def test_entries_of_a_new_start_that_were_dropped_before_the_next_answer_are_a_hole() -> None:
    before = state(journal=(entry(1), entry(2)))
    after = state(boot_id="boot-2")
    much_later = state(boot_id="boot-2", journal=(entry(9),), journal_first=9)
    assert [one.journal_hole for one in samples(before, after, much_later)] == [False, False, True]


def test_a_replica_nothing_is_stored_of_is_asked_from_its_beginning() -> None:
    stored = Seen(boot_id="boot-1", journal={0: 3})
    assert stored.since == 0
    replicas = state(replica(0), replica(1), journal=(entry(4, 0), entry(1, 1)))
    (sample,) = samples(replicas, seen=stored)
    assert [(e.dp_rank, e.seq) for e in sample.switches] == [(0, 4), (1, 1)]
    assert not sample.journal_hole


def test_numbers_stored_before_a_restart_of_the_control_plane_show_a_hole() -> None:
    stored = Seen(boot_id="boot-1", journal={0: 3})
    assert samples(state(journal=(entry(6),)), seen=stored)[0].journal_hole
    assert not samples(state(journal=(entry(4),)), seen=stored)[0].journal_hole
    kept = state(journal=(entry(3), entry(4)), journal_first=3)
    assert not samples(kept, seen=stored)[0].journal_hole
    assert samples(state(journal_first=5), seen=stored)[0].journal_hole
    other_start = samples(state(boot_id="boot-2", journal=(entry(6),)), seen=stored)
    assert not other_start[0].journal_hole


# -- what cannot be seen, and what is not counted -------------------------------------------------


def unseen(dp_rank: int, **changes: Any) -> ReplicaState:
    """As a plugin tells of a replica on another host: placeholders."""
    nothing = KvSlots(capacity=0, committed=0, evictable=0, reserve=0)
    zeros = dict.fromkeys(("decode_tokens", "decode_steps", "verify_steps", "sample"), 0)
    values: dict[str, Any] = {
        "ranks": (RankState(tp_rank=0, observed=False),),
        "running": 0,
        "queued": 0,
        "kv": nothing,
        "accept": None,
        "prefill_tokens": 0,
        "retractions": 0,
        "graph_misses": 0,
    }
    return replica(dp_rank, **{**values, **zeros, **changes})


@pytest.mark.parametrize("told", [{"observed": False}, {}])
def test_a_replica_that_cannot_be_seen_is_missing_and_not_idle(told: dict[str, bool]) -> None:
    _, sample = patched.observe(Seen(), state(replicas=(replica(0), unseen(1, **told))), STAMP)
    assert sample.unseen_replicas == 1
    assert (sample.concurrency, sample.replica_concurrency, sample.decode_tokens) == (8, 8, 500)
    assert sample.kv.capacity == 1000
    assert [one.tier for one in sample.applied] == ["s3k1d4", None]


def test_where_nothing_can_be_seen_there_are_no_numbers() -> None:
    _, sample = patched.observe(Seen(), state(replicas=(unseen(0), unseen(1))), STAMP)
    assert not sample.fresh
    numbers = ("concurrency", "replica_concurrency", "queued", "prefilling", "decode_tokens")
    counters = ("retractions", "verify_steps", "finished", "graph_misses")
    for name in (*numbers, *counters):
        assert getattr(sample, name) is None, name
    assert sample.kv.used is None


def test_counters_neither_jump_nor_fall_when_a_replica_comes_and_goes() -> None:
    both = (replica(0, decode_tokens=100), replica(1, decode_tokens=9_000, retractions=40))
    seen, first = patched.observe(Seen(), state(replicas=(both[0], unseen(1))), STAMP)
    seen, second = patched.observe(seen, state(replicas=both), STAMP)
    assert (first.decode_tokens, second.decode_tokens) == (100, 100)
    assert (first.retractions, second.retractions) == (1, 1)
    more = (both[0], replica(1, decode_tokens=9_050, retractions=41))
    seen, third = patched.observe(seen, state(replicas=more), STAMP)
    assert (third.decode_tokens, third.retractions) == (150, 2)
    seen, fourth = patched.observe(seen, state(replicas=(both[0], unseen(1))), STAMP)
    assert (fourth.decode_tokens, fourth.retractions) == (150, 2)
    assert fourth.concurrency == 8


def test_requests_that_nobody_counts_are_missing_and_not_none() -> None:
    told = state(replicas=(replica(finished=0, not_counted=("finished",)),))
    assert patched.observe(Seen(), told, STAMP)[1].finished is None
    earlier = state(replicas=(replica(finished=0),))
    assert patched.observe(Seen(), earlier, STAMP)[1].finished is None
    counts = state(replicas=(replica(finished=3),))
    assert patched.observe(Seen(), counts, STAMP)[1].finished == 3
    simulated = Simulation(table="t", source="s", lag=0.0, valid=True)
    embedded = state(replicas=(replica(finished=0),), simulation=simulated)
    assert patched.observe(Seen(), embedded, STAMP)[1].finished == 0


def test_each_replica_keeps_its_own_journal_and_a_hole_is_seen_in_it() -> None:
    pair = (replica(0, journal_first=1), replica(1, journal_first=1))
    entries = (entry(1, 0), entry(1, 1), entry(2, 1))
    seen, _ = patched.observe(Seen(), state(replicas=pair, journal=entries), STAMP)
    lost = (replica(0, journal_first=1), replica(1, journal_first=5))
    seen, sample = patched.observe(seen, state(replicas=lost, journal_first=5), STAMP)
    assert sample.journal_hole
    assert seen.journal == {0: 1, 1: 4}
    later = state(replicas=lost, journal_first=5, journal=(entry(5, 1),))
    seen, sample = patched.observe(seen, later, STAMP)
    assert not sample.journal_hole
    assert len(sample.switches) == 1


def test_a_server_without_speculation_was_launched_with_no_tier() -> None:
    plain = state(launch_tier="off", identity=Identity(model="m", algorithm=None))
    assert patched.facts_of(plain).launch_tier is None
    speculating = state(launch_tier="off", identity=Identity(model="m", algorithm="EAGLE3"))
    assert patched.facts_of(speculating).launch_tier == "off"
