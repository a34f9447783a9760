"""What the last process left in the store about one engine, and what of it goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controlplane.obedience import left_open
from store.db import Record, Store
from store.policies import PolicyConfig
from store.records import EngineRecord, Outcome, Override


@dataclass(frozen=True)
class Restored:
    """What an engine's loop starts with.

    Args:
        record: as stored, None for a new engine.
        history: policy versions, oldest first.
        override: the one still in force.
        seq: number of the last observation.
        repairs: records that end what could not be ended before.
        boot_id, journal: start of the engine whose journal was read last, and the newest stored
            entry by DP rank, so that a hole over the restart is seen.
    """

    record: EngineRecord | None
    history: Sequence[PolicyConfig]
    override: Override | None
    seq: int
    repairs: Sequence[Record]
    boot_id: str | None
    journal: Mapping[int, int]


def restore(store: Store, engine_id: str, now_utc_ms: int) -> Restored:
    """Read it.  Blocks on the database.

    An override keeps its original end: what is left of it comes from wall time, the only clock
    that two processes share.
    """
    repairs: list[Record] = []
    overrides = sorted(store.overrides(engine_id, in_force_only=True), key=lambda one: one.id)
    newest = overrides[-1] if overrides else None
    for older in overrides[:-1]:
        update = {"ended_utc_ms": now_utc_ms, "ended_by": f"replaced by {overrides[-1].id}"}
        repairs.append(older.model_copy(update=update))
    if newest is not None and newest.expires_utc_ms <= now_utc_ms:
        update = {"ended_utc_ms": newest.expires_utc_ms, "ended_by": "expired"}
        repairs.append(newest.model_copy(update=update))
        newest = None
    repairs += [
        left_open(decision, now_utc_ms)
        for decision in store.decisions(engine_id, limit=50)
        if decision.outcome is Outcome.REQUESTED
    ]
    boot_id, journal = _journal(store, engine_id)
    return Restored(
        record=store.engine(engine_id),
        history=sorted(store.policies(engine_id), key=lambda one: one.version),
        override=newest,
        seq=store.last_seq(engine_id),
        repairs=repairs,
        boot_id=boot_id,
        journal=journal,
    )


def _journal(store: Store, engine_id: str) -> tuple[str | None, dict[int, int]]:
    newest: dict[int, int] = {}
    boot_id: str | None = None
    for switch in store.switches(engine_id, limit=1000):
        boot_id = boot_id or switch.boot_id
        if switch.boot_id == boot_id:
            rank = switch.entry.dp_rank
            newest[rank] = max(newest.get(rank, 0), switch.entry.seq)
    return boot_id or None, newest
