"""A patched engine's ``GET /speculation`` as facts and samples.  Pure.

DP replicas are added up; the busiest one is what thresholds are compared with.  A replica of which
nothing can be seen adds nothing: its numbers are placeholders.  ``Seen`` remembers what an answer
repeats, so that only new numbers count as a new sample, every journal entry is handed on once, and
counters neither jump nor fall when a replica comes into sight or goes out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from controlplane.polled import Stamp
from engine_patch.contract import JournalEntry, ReplicaState, SpeculationState
from engine_patch.tier import OFF, TierName
from store.observations import EngineFacts, KvNumbers, PluginStatus, RankTier, Sample, Source

COUNTERS = (
    "decode_tokens",
    "decode_steps",
    "verify_steps",
    "prefill_tokens",
    "retractions",
    "graph_misses",
    "finished",
)
Counts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the last answer of this start of the engine said.

    Args:
        boot_id: the start it belongs to; None before the first answer.
        samples: by DP rank.
        counts: counters by DP rank; a replica that is out of sight keeps its last ones.
        bases: where the counters of a replica began that came into sight after others.
        journal: number of the newest entry handed on, by DP rank.
        every_rank: ``journal`` names every replica; False until this process had an answer.
    """

    boot_id: str | None = None
    samples: Mapping[int, int] = field(default_factory=dict)
    counts: Mapping[int, Counts] = field(default_factory=dict)
    bases: Mapping[int, Counts] = field(default_factory=dict)
    journal: Mapping[int, int] = field(default_factory=dict)
    every_rank: bool = False

    @property
    def since(self) -> int:
        """Number to ask the journal from: numbering is per replica, so the lowest of them."""
        return min(self.journal.values(), default=0) if self.every_rank else 0


def facts_of(state: SpeculationState) -> EngineFacts:
    """What rarely changes about the engine.

    A server without speculation says that it was launched with ``off``; it was launched with no
    tier at all.
    """
    plain = state.identity.algorithm is None and state.launch_tier == OFF
    off = next((tier for tier in state.tiers if tier.name == OFF), None)
    return EngineFacts(
        boot_id=state.boot_id,
        plugin=PluginStatus.PRESENT,
        protocol=state.protocol,
        versions=state.versions,
        identity=state.identity,
        capabilities=state.capabilities,
        tiers=state.tiers,
        launch_tier=None if plain else state.launch_tier,
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
    replicas = tuple(replica for replica in state.replicas if _in_sight(replica))
    switches, journal, hole = _journal(seen, state, replicas)
    counts, bases = _counters(seen, replicas)
    length, tier, requests = _accept(seen, replicas)
    applied = tuple(
        RankTier(
            dp_rank=replica.dp_rank,
            tp_rank=rank.tp_rank,
            tier=rank.tier if rank.observed else None,
            epoch=rank.applied_epoch,
            generation=rank.applied_generation,
        )
        for replica in state.replicas
        for rank in replica.ranks
    )
    real = state.simulation is None
    not_counted = {name for replica in replicas for name in replica.not_counted}

    def total(of: Callable[[ReplicaState], int]) -> int | None:
        return sum(of(replica) for replica in replicas) if replicas else None

    def counted(name: str) -> int | None:
        if not counts or name in not_counted:
            return None
        told = sum(of[name] - bases.get(dp_rank, {}).get(name, 0) for dp_rank, of in counts.items())
        # Plugins that say nothing of it count no finished requests.
        return None if name == "finished" and real and not told else told

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
        decode_tokens=counted("decode_tokens"),
        decode_steps=counted("decode_steps"),
        verify_steps=counted("verify_steps"),
        prefill_tokens=counted("prefill_tokens"),
        retractions=counted("retractions"),
        graph_misses=counted("graph_misses"),
        finished=counted("finished"),
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
        unseen_replicas=len(state.replicas) - len(replicas),
    )
    now_seen = Seen(
        boot_id=state.boot_id,
        samples={r.dp_rank: r.sample for r in replicas},
        counts=counts,
        bases=bases,
        journal=journal,
        every_rank=asked_whole,
    )
    return now_seen, sample


def agreed(applied: tuple[RankTier, ...]) -> TierName | None:
    """The one tier all observed ranks run; None if they differ or none is observed."""
    tiers = {rank.tier for rank in applied if rank.tier is not None}
    return tiers.pop() if len(tiers) == 1 else None


def _in_sight(replica: ReplicaState) -> bool:
    """Whether its numbers are numbers; earlier plugins say it by their ranks alone."""
    return replica.observed and any(rank.observed for rank in replica.ranks)


def _counters(
    seen: Seen, replicas: tuple[ReplicaState, ...]
) -> tuple[dict[int, Counts], dict[int, Counts]]:
    """Counters of every replica seen since the engine's start, and where they began."""
    counts, bases = dict(seen.counts), dict(seen.bases)
    for replica in replicas:
        now = {name: int(getattr(replica, name)) for name in COUNTERS}
        if seen.counts and replica.dp_rank not in seen.counts:
            bases[replica.dp_rank] = now
        counts[replica.dp_rank] = now
    return counts, bases


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
        before = seen.counts.get(replica.dp_rank, {}).get("verify_steps")
        if replica.running == 0 and (before is None or replica.verify_steps <= before):
            continue
        windows.append((window.length, window.tier, window.requests))
    if len({tier for _, tier, _ in windows}) != 1:
        return None, None, 0
    requests = sum(count for _, _, count in windows)
    length = sum(length * count for length, _, count in windows) / requests
    return length, windows[0][1], requests


def _journal(
    seen: Seen, state: SpeculationState, replicas: tuple[ReplicaState, ...]
) -> tuple[tuple[JournalEntry, ...], dict[int, int], bool]:
    """New entries in the engine's order, newest numbers by replica, and whether some are missing.

    At first contact the numbering may start anywhere: what happened before is no hole.  Later a
    replica's next number must follow its last one.
    """
    newest = dict(seen.journal) | {
        one.dp_rank: seen.journal.get(one.dp_rank, 0) for one in replicas
    }
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
    # The first number that is kept shows a hole by itself, even if nothing newer is there.
    for replica in replicas:
        first, dp_rank = replica.journal_first, replica.dp_rank
        if first is None and len(replicas) == 1:
            first = state.journal_first
        known_to = seen.journal.get(dp_rank)
        if first is not None and known_to is not None and first > known_to + 1:
            hole = True
            newest[dp_rank] = max(newest[dp_rank], first - 1)
    return tuple(fresh), newest, hole
