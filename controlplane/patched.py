"""A patched engine's ``GET /speculation`` as facts and samples.  Pure.

DP replicas are added up; the busiest one is what thresholds are compared with.  ``Seen`` remembers
what an answer repeats, so that only new numbers count as a new sample and every journal entry is
handed on once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from controlplane.polled import Stamp
from engine_patch.contract import JournalEntry, ReplicaState, SpeculationState
from engine_patch.tier import OFF, TierName
from store.observations import EngineFacts, KvNumbers, PluginStatus, RankTier, Sample, Source


@dataclass(frozen=True, slots=True)
class Seen:
    """What the last answer of this start of the engine said.

    Args:
        boot_id: the start it belongs to; None before the first answer.
        samples, verify_steps: by DP rank.
        journal: number of the newest entry handed on, by DP rank.
        every_rank: ``journal`` names every replica; False until this process had an answer.
    """

    boot_id: str | None = None
    samples: Mapping[int, int] = field(default_factory=dict)
    verify_steps: Mapping[int, int] = field(default_factory=dict)
    journal: Mapping[int, int] = field(default_factory=dict)
    every_rank: bool = False

    @property
    def since(self) -> int:
        """Number to ask the journal from: numbering is per replica, so the lowest of them."""
        return min(self.journal.values(), default=0) if self.every_rank else 0


def facts_of(state: SpeculationState) -> EngineFacts:
    """What rarely changes about the engine."""
    off = next((tier for tier in state.tiers if tier.name == OFF), None)
    return EngineFacts(
        boot_id=state.boot_id,
        plugin=PluginStatus.PRESENT,
        protocol=state.protocol,
        versions=state.versions,
        identity=state.identity,
        capabilities=state.capabilities,
        tiers=state.tiers,
        launch_tier=state.launch_tier,
        off_kind=off.off_kind if off is not None else None,
        simulated=state.simulation is not None,
        simulation_table=state.simulation.table if state.simulation is not None else None,
    )


def observe(seen: Seen, state: SpeculationState, stamp: Stamp) -> tuple[Seen, Sample]:
    """Turn an answer into a sample.

    After a restart nothing of the old start is compared with: numbering and counters began anew.
    A journal that was asked from a number of the old start may lack its beginning, so it is left
    for the next answer.
    """
    asked_whole = seen.since == 0 or seen.boot_id == state.boot_id
    if seen.boot_id != state.boot_id:
        seen = Seen(boot_id=state.boot_id)
    if not asked_whole:
        state = state.model_copy(update={"journal": ()})
    replicas = state.replicas
    switches, journal, hole = _journal(seen, state)
    length, tier, requests = _accept(seen, replicas)
    applied = tuple(
        RankTier(
            dp_rank=replica.dp_rank,
            tp_rank=rank.tp_rank,
            tier=rank.tier if rank.observed else None,
            epoch=rank.applied_epoch,
            generation=rank.applied_generation,
        )
        for replica in replicas
        for rank in replica.ranks
    )

    def total(of: Callable[[ReplicaState], int]) -> int | None:
        return sum(of(replica) for replica in replicas) if replicas else None

    sample = Sample(
        engine_id=stamp.engine_id,
        seq=stamp.seq,
        at_utc_ms=stamp.at_utc_ms,
        at_mono_ms=stamp.at_mono_ms,
        clock_id=stamp.clock_id,
        latency_ms=stamp.latency_ms,
        source=Source.SPECULATION,
        boot_id=state.boot_id,
        fresh=_fresh(seen, replicas),
        concurrency=total(lambda r: r.running),
        replica_concurrency=max((r.running for r in replicas), default=None),
        queued=total(lambda r: r.queued),
        prefilling=total(lambda r: r.prefilling),
        decode_tokens=total(lambda r: r.decode_tokens),
        decode_steps=total(lambda r: r.decode_steps),
        verify_steps=total(lambda r: r.verify_steps),
        prefill_tokens=total(lambda r: r.prefill_tokens),
        retractions=total(lambda r: r.retractions),
        graph_misses=total(lambda r: r.graph_misses),
        finished=total(lambda r: r.finished),
        accept_length=length,
        accept_tier=tier,
        accept_requests=requests,
        kv=KvNumbers(
            capacity=total(lambda r: r.kv.capacity),
            committed=total(lambda r: r.kv.committed),
            evictable=total(lambda r: r.kv.evictable),
            reserve=total(lambda r: r.kv.reserve),
        ),
        mode=state.mode,
        desired_tier=state.desired_tier,
        thresholds=state.thresholds,
        off_flavour=state.off_flavour,
        applied=applied,
        engine_tier=agreed(applied),
        epoch=state.epoch,
        generation=state.generation,
        claim_holder=state.claim.holder if state.claim is not None else None,
        claim_remaining_s=state.claim.remaining_s if state.claim is not None else None,
        lease_remaining_s=state.lease.remaining_s if state.lease is not None else None,
        switches=switches,
        journal_hole=hole,
        simulation_valid=state.simulation.valid if state.simulation is not None else None,
        simulation_lag=state.simulation.lag if state.simulation is not None else None,
    )
    now_seen = Seen(
        boot_id=state.boot_id,
        samples={r.dp_rank: r.sample for r in replicas},
        verify_steps={r.dp_rank: r.verify_steps for r in replicas},
        journal=journal,
        every_rank=asked_whole,
    )
    return now_seen, sample


def agreed(applied: tuple[RankTier, ...]) -> TierName | None:
    """The one tier all observed ranks run; None if they differ or none is observed."""
    tiers = {rank.tier for rank in applied if rank.tier is not None}
    return tiers.pop() if len(tiers) == 1 else None


def _fresh(seen: Seen, replicas: tuple[ReplicaState, ...]) -> bool:
    """Whether the answer holds new numbers.

    One replica that moved makes a new sample, unless another one has requests in its batch and did
    not move: its scheduler hangs, and its old numbers would pass for new ones.  An idle replica may
    rest.
    """
    if not replicas:
        return False
    moved = {r.dp_rank: seen.samples.get(r.dp_rank) != r.sample for r in replicas}
    return any(moved.values()) and all(moved[r.dp_rank] or r.running == 0 for r in replicas)


def _accept(
    seen: Seen, replicas: tuple[ReplicaState, ...]
) -> tuple[float | None, TierName | None, int]:
    """Accept length over the replicas' windows, weighted by requests, if they ran one tier.

    A window is left out when it is empty, when it is of tier ``off`` (which verifies no draft and
    would read 1), and when the replica is idle and verified nothing since the last answer: then it
    tells of an earlier time.
    """
    windows = []
    for replica in replicas:
        window = replica.accept
        if window is None or window.length is None or window.requests <= 0 or window.tier == OFF:
            continue
        before = seen.verify_steps.get(replica.dp_rank)
        if replica.running == 0 and (before is None or replica.verify_steps <= before):
            continue
        windows.append((window.length, window.tier, window.requests))
    if len({tier for _, tier, _ in windows}) != 1:
        return None, None, 0
    requests = sum(count for _, _, count in windows)
    length = sum(length * count for length, _, count in windows) / requests
    return length, windows[0][1], requests


def _journal(
    seen: Seen, state: SpeculationState
) -> tuple[tuple[JournalEntry, ...], dict[int, int], bool]:
    """New entries in the engine's order, newest numbers by replica, and whether some are missing.

    At first contact the numbering may start anywhere: what happened before is no hole.  Later a
    replica's next number must follow its last one.
    """
    newest = {replica.dp_rank: seen.journal.get(replica.dp_rank, 0) for replica in state.replicas}
    fresh: list[JournalEntry] = []
    hole = False
    for entry in state.journal:
        last = newest.get(entry.dp_rank, 0)
        if entry.seq <= last:
            continue
        known = entry.dp_rank in seen.journal or last > 0
        hole = hole or (known and entry.seq != last + 1)
        newest[entry.dp_rank] = entry.seq
        fresh.append(entry)
    # With one replica the first kept number alone shows a hole, even if nothing newer is there.
    last_known = min(seen.journal.values(), default=None)
    if len(newest) == 1 and last_known is not None and state.journal_first > last_known + 1:
        hole = True
        newest = {rank: max(last, state.journal_first - 1) for rank, last in newest.items()}
    return tuple(fresh), newest, hole
