"""What a rank publishes through shared memory, and how a state is put together from it.  Pure.

The rank side writes plain dictionaries of the shape of ``RankLive`` (building a model in every
decode step would cost more than the step's bookkeeping); the reading side checks them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field, TypeAdapter

from engine_patch.contract import (
    PROTOCOL,
    PROTOCOL_MIN,
    AcceptWindow,
    Capability,
    Identity,
    JournalEntry,
    KvSlots,
    RankState,
    ReplicaState,
    SpeculationState,
    TierInfo,
    Versions,
)
from engine_patch.contract_words import OffFlavour
from engine_patch.costs import StepCost
from engine_patch.front import Front
from engine_patch.tier import Frozen, TierName, Wire


class RankFacts(Wire):
    """What does not change while a rank lives.

    Args:
        pid: process of the rank.
        tiers: built tiers; the single launch tier where nothing can be switched, none on a plain
            server.
        launch_tier: None on a plain server, or where the launch shape is no tier of ours.
        flavours: off flavours that can be asked for, the default first.
        off_reason: why off does not run as ordinary decode, "" if it does.
        left_out: tiers that were asked for and not built, with the reason.
        planned: the tiers in the order of the wire indices, built or not: the same everywhere.
        reserve_follows: whether the KV reserve follows the active tier.
        unsupported: why the rank cannot switch, "" if it can.
        graphs: whether decode steps run from captured graphs at all.
    """

    pid: int
    dp_rank: int = 0
    pp_rank: int = 0
    tp_rank: int = 0
    pp_size: int = 1
    identity: Identity
    tiers: tuple[TierInfo, ...] = ()
    launch_tier: TierName | None = None
    off_flavour: OffFlavour | None = None
    flavours: tuple[OffFlavour, ...] = ()
    off_reason: str = ""
    left_out: tuple[tuple[TierName, str], ...] = ()
    planned: tuple[TierName, ...] = ()
    reserve_follows: bool = False
    unsupported: str = ""
    graphs: bool = False


class RankLive(Wire):
    """What a rank publishes again and again; counters are monotonic since boot.

    Args:
        tier: what the rank runs; None on a plain server.
        wanted: the tier the command in force asks for; None in ``auto``.
        refused: the rank's words on the last command it did not take, "" after one it took.
        needed_slots, free_slots: of a refusal for lack of KV slots.
        fault: why the rank stopped deciding, "" while it decides.
        off_flavour: what the drafter does while off, None where off was not built.
        keep_reason: why the drafter's keys and values cannot be kept, "" if they can.
        bridges: off rounds with a whole draft-extend that a switch upwards needed.
        cold_requests: running requests with a hole in the drafter's KV.
        rebuilt_requests: those that were prefilled anew by order, since boot.
        confirm_steps: decode steps from the last command that changed the tier to the first that
            ran it, that one included.
        hook_us: mean microseconds the plugin took per batch, since boot.
    """

    tier: TierName | None = None
    wanted: TierName | None = None
    step: int = 0
    applied_epoch: int = 0
    applied_generation: int = 0
    running: int = 0
    queued: int = 0
    prefilling: int = 0
    kv: KvSlots
    accept: AcceptWindow | None = None
    decode_tokens: int = 0
    decode_steps: int = 0
    verify_steps: int = 0
    prefill_tokens: int = 0
    retractions: int = 0
    graph_misses: int = 0
    switches: int = 0
    journal_first: int = 1
    refused: str = ""
    needed_slots: int | None = None
    free_slots: int | None = None
    fault: str = ""
    off_flavour: OffFlavour | None = None
    keep_reason: str = ""
    bridges: int = 0
    cold_requests: int = 0
    rebuilt_requests: int = 0
    confirm_steps: int | None = None
    hook_us: float | None = None


JOURNAL: TypeAdapter[tuple[JournalEntry, ...]] = TypeAdapter(tuple[JournalEntry, ...])
COSTS: TypeAdapter[tuple[StepCost, ...]] = TypeAdapter(tuple[StepCost, ...])


class Rank(Frozen):
    """One observed rank at one moment.

    Args:
        live: None before its first publication.
        age_ms: age of ``live``.
        sample: number of ``live``.
    """

    facts: RankFacts
    live: RankLive | None = None
    age_ms: float = 0.0
    sample: int = 0
    journal: tuple[JournalEntry, ...] = Field(default=(), repr=False)
    costs: tuple[StepCost, ...] = Field(default=(), repr=False)


_NOT_COUNTED = ("finished",)
"""Fields of the contract that no rank counts: requests end outside the scheduler's decode step."""
_NOTHING = KvSlots(capacity=0, committed=0, evictable=0, reserve=0)


def replicas(ranks: Sequence[Rank]) -> tuple[ReplicaState, ...]:
    """The DP replicas; a rank that publishes nothing on this host is "not observed"."""
    if not ranks:
        return ()
    identity = ranks[0].facts.identity
    by_place = {(rank.facts.dp_rank, rank.facts.tp_rank): rank for rank in ranks}
    return tuple(
        _replica(dp, [by_place.get((dp, tp)) for tp in range(identity.tp_size)])
        for dp in range(identity.dp_size)
    )


def _replica(dp_rank: int, ranks: Sequence[Rank | None]) -> ReplicaState:
    states = tuple(_rank_state(place, rank) for place, rank in enumerate(ranks))
    first = next((rank for rank in ranks if rank is not None and rank.live is not None), None)
    if first is None or first.live is None:
        return ReplicaState(
            dp_rank=dp_rank,
            ranks=states,
            running=0,
            queued=0,
            kv=_NOTHING,
            decode_tokens=0,
            decode_steps=0,
            verify_steps=0,
            observed=False,
        )
    live = first.live
    return ReplicaState(
        dp_rank=dp_rank,
        ranks=states,
        running=live.running,
        queued=live.queued,
        prefilling=live.prefilling,
        kv=live.kv,
        accept=live.accept,
        decode_tokens=live.decode_tokens,
        decode_steps=live.decode_steps,
        verify_steps=live.verify_steps,
        prefill_tokens=live.prefill_tokens,
        retractions=live.retractions,
        graph_misses=live.graph_misses,
        switches=live.switches,
        cold_requests=live.cold_requests,
        rebuilt_requests=live.rebuilt_requests,
        age_ms=round(first.age_ms, 3),
        sample=first.sample,
        not_counted=_NOT_COUNTED,
        journal_first=_journal_first(ranks[0]),
    )


def _journal_first(first: Rank | None) -> int | None:
    """Smallest kept number of the replica's journal, which its first rank writes."""
    return None if first is None or first.live is None else first.live.journal_first


def _rank_state(place: int, rank: Rank | None) -> RankState:
    if rank is None or rank.live is None:
        return RankState(tp_rank=place, observed=False)
    live = rank.live
    return RankState(
        tp_rank=place,
        observed=True,
        tier=live.tier,
        step=live.step,
        applied_epoch=live.applied_epoch,
        applied_generation=live.applied_generation,
        graph_misses=live.graph_misses,
        confirm_steps=live.confirm_steps,
    )


def journal(ranks: Sequence[Rank], since: int) -> tuple[tuple[JournalEntry, ...], int]:
    """Entries above ``since`` of every replica, and the smallest number all of them still keep."""
    entries: list[JournalEntry] = []
    first = 1
    for rank in ranks:
        if rank.facts.tp_rank == 0 and rank.live is not None:
            entries += [entry for entry in rank.journal if entry.seq > since]
            first = max(first, rank.live.journal_first)
    return tuple(entries), first


def assemble(
    front: Front,
    ranks: Sequence[Rank],
    since: int,
    *,
    identity: Identity,
    versions: Versions,
    capabilities: tuple[Capability, ...],
    tiers: tuple[TierInfo, ...],
    uptime_s: float,
) -> SpeculationState:
    """Put the answer of ``GET /speculation`` together; the desk fills in claim and lease."""
    entries, first = journal(ranks, since)
    flavour = next((_flavour(rank) for rank in ranks), None)
    return SpeculationState(
        protocol=PROTOCOL,
        protocol_min=PROTOCOL_MIN,
        boot_id=front.boot_id,
        uptime_s=round(uptime_s, 3),
        versions=versions,
        identity=identity,
        capabilities=capabilities,
        tiers=tiers,
        launch_tier=front.launch_tier,
        mode=front.mode,
        desired_tier=front.tier,
        thresholds=front.thresholds,
        off_flavour=flavour,
        epoch=front.epoch,
        generation=front.generation,
        replicas=replicas(ranks),
        journal=entries,
        journal_first=first,
        costs=merged([rank.costs for rank in ranks if rank.facts.tp_rank == 0]),
    )


def _flavour(rank: Rank) -> OffFlavour | None:
    """What the drafter really does while off; the default before the rank says."""
    live = rank.live
    return rank.facts.off_flavour if live is None else live.off_flavour or rank.facts.off_flavour


def merged(tables: Sequence[Sequence[StepCost]]) -> tuple[StepCost, ...]:
    """One table from those of the replicas: means of means, weighted by samples."""
    cells: dict[tuple[TierName, int, str], StepCost] = {}
    for cost in (cost for table in tables for cost in table):
        key = (cost.tier, cost.bucket, cost.band)
        known = cells.get(key)
        cells[key] = cost if known is None else _together(known, cost)
    return tuple(cells[key] for key in sorted(cells))


def _together(one: StepCost, other: StepCost) -> StepCost:
    samples = one.samples + other.samples
    if samples == 0:
        return one
    share = other.samples / samples
    apart = other.mean_ms - one.mean_ms
    tokens = [cost.tokens_per_step for cost in (one, other) if cost.tokens_per_step is not None]
    return one.model_copy(
        update={
            "samples": samples,
            "mean_ms": one.mean_ms + share * apart,
            "var_ms2": (1 - share) * one.var_ms2
            + share * other.var_ms2
            + share * (1 - share) * apart**2,
            "tokens_per_step": tokens[0] + share * (tokens[1] - tokens[0])
            if len(tokens) == 2
            else next(iter(tokens), None),
        }
    )


def faults(ranks: Sequence[Rank]) -> Mapping[str, str]:
    """Ranks that stopped deciding, with their reason."""
    return {
        f"DP {rank.facts.dp_rank} TP {rank.facts.tp_rank}": rank.live.fault
        for rank in ranks
        if rank.live is not None and rank.live.fault
    }
