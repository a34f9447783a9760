"""How records that are JSON documents are inserted, or updated where they may change.

There is one writer, so looking first and then writing is safe inside its transaction.  What is
history stays: an update that would turn a stored record into another one is refused.
"""

from __future__ import annotations

from functools import cache

from sqlalchemy import Connection, Insert, insert, update
from sqlmodel import SQLModel, col, select

from store.audit_chain import START, link
from store.documents import document, record
from store.errors import StoreRefused
from store.measurements import BenchmarkPoint, CostTable
from store.policies import PolicyConfig
from store.records import (
    AuditEntry,
    Decision,
    EngineRecord,
    EngineSwitch,
    Marker,
    Override,
    SessionRecord,
)
from store.tables import (
    AuditRow,
    BenchmarkRow,
    CostTableRow,
    DecisionRow,
    EngineRow,
    MarkerRow,
    OverrideRow,
    PolicyRow,
    SessionRow,
    SwitchRow,
)

Column = int | str | bytes | None


@cache
def _insert(table: type[SQLModel]) -> Insert:
    """One statement per table: to make one takes as long as to execute it."""
    return insert(table)


def add_row(connection: Connection, table: type[SQLModel], **values: Column) -> int:
    """Insert one row; returns its id."""
    key = connection.execute(_insert(table), values).inserted_primary_key
    assert key is not None  # one row was inserted
    return int(key[0])


def save_engine(connection: Connection, engine: EngineRecord) -> None:
    """One row per engine; the newest wins."""
    body = document(engine)
    changed = connection.execute(
        update(EngineRow)
        .where(col(EngineRow.engine_id) == engine.engine_id)
        .values(added_utc_ms=engine.added_utc_ms, body=body)
    )
    if changed.rowcount == 0:
        values = {"engine_id": engine.engine_id, "added_utc_ms": engine.added_utc_ms, "body": body}
        connection.execute(insert(EngineRow), values)


def save_audit(connection: Connection, entry: AuditEntry) -> AuditEntry:
    """Append to the audit; returns the entry with its id and its hash."""
    newest = select(AuditRow.hash).order_by(col(AuditRow.id).desc()).limit(1)
    digest = link(connection.execute(newest).scalar() or START, entry)
    values = entry.model_dump(exclude={"id", "hash"})
    row_id = add_row(connection, AuditRow, **values, hash=digest)
    return entry.model_copy(update={"id": row_id, "hash": digest})


def save_policy(connection: Connection, policy: PolicyConfig) -> None:
    """Each version once; the same again is no error."""
    body = document(policy)
    stored = connection.execute(
        select(PolicyRow.body).where(
            PolicyRow.engine_id == policy.engine_id, PolicyRow.version == policy.version
        )
    ).scalar()
    if stored is None:
        add_row(
            connection,
            PolicyRow,
            engine_id=policy.engine_id,
            version=policy.version,
            created_utc_ms=policy.created_utc_ms,
            body=body,
        )
    elif record(PolicyConfig, stored) != policy:
        raise StoreRefused(
            f"policy version {policy.version} of engine {policy.engine_id!r} exists and differs: "
            "give the change the next version"
        )


def save_decision(connection: Connection, decision: Decision) -> int:
    """One per engine and observation; only what became of it changes."""
    found = connection.execute(
        select(DecisionRow.id, DecisionRow.at_utc_ms, DecisionRow.to_tier).where(
            DecisionRow.engine_id == decision.engine_id, DecisionRow.seq == decision.seq
        )
    ).first()
    body = document(decision)
    if found is None:
        return add_row(
            connection,
            DecisionRow,
            engine_id=decision.engine_id,
            seq=decision.seq,
            at_utc_ms=decision.at_utc_ms,
            to_tier=decision.to_tier,
            outcome=str(decision.outcome),
            body=body,
        )
    row_id, at_utc_ms, to_tier = found
    if (at_utc_ms, to_tier) != (decision.at_utc_ms, decision.to_tier):
        raise StoreRefused(
            f"engine {decision.engine_id!r} has another decision on observation {decision.seq} "
            f"(to {to_tier}, this one to {decision.to_tier}): a stored decision changes only in "
            "what became of it"
        )
    connection.execute(
        update(DecisionRow)
        .where(col(DecisionRow.id) == row_id)
        .values(outcome=str(decision.outcome), body=body)
    )
    return int(row_id)


def save_switch(connection: Connection, switch: EngineSwitch) -> int:
    """Each journal entry once."""
    entry = switch.entry
    # The journal is read again after a restart of ours; the first sight of an entry stays.
    found = connection.execute(
        select(SwitchRow.id).where(
            SwitchRow.engine_id == switch.engine_id,
            SwitchRow.boot_id == switch.boot_id,
            SwitchRow.dp_rank == entry.dp_rank,
            SwitchRow.number == entry.seq,
        )
    ).scalar()
    if found is not None:
        return int(found)
    return add_row(
        connection,
        SwitchRow,
        engine_id=switch.engine_id,
        boot_id=switch.boot_id,
        dp_rank=entry.dp_rank,
        number=entry.seq,
        seen_utc_ms=switch.seen_utc_ms,
        body=document(switch),
    )


def save_override(connection: Connection, override: Override) -> int:
    """New with id 0; one that has ended changes no more."""
    values: dict[str, Column] = {
        "engine_id": override.engine_id,
        "created_utc_ms": override.created_utc_ms,
        "expires_utc_ms": override.expires_utc_ms,
        "ended_utc_ms": override.ended_utc_ms,
        "body": document(override),
    }
    if override.id == 0:
        return add_row(connection, OverrideRow, **values)
    body = connection.execute(
        select(OverrideRow.body).where(OverrideRow.id == override.id)
    ).scalar()
    if body is None:
        raise StoreRefused(f"there is no override {override.id}: a new one has id 0")
    stored = record(Override, body, override.id)
    if stored == override:
        return override.id
    if stored.ended_utc_ms is not None:
        raise StoreRefused(f"override {override.id} has ended ({stored.ended_by}); set a new one")
    for field in ("engine_id", "mode", "tier", "created_utc_ms"):
        if getattr(stored, field) != getattr(override, field):
            raise StoreRefused(
                f"override {override.id} cannot change its {field}: end it and set a new one"
            )
    connection.execute(
        update(OverrideRow).where(col(OverrideRow.id) == override.id).values(**values)
    )
    return override.id


def save_session(connection: Connection, session: SessionRecord) -> int:
    """New with id 0, else an update."""
    values: dict[str, Column] = {
        "engine_id": session.engine_id,
        "name": session.name,
        "started_utc_ms": session.started_utc_ms,
        "ended_utc_ms": session.ended_utc_ms,
        "body": document(session),
    }
    if session.id == 0:
        return add_row(connection, SessionRow, **values)
    changed = connection.execute(
        update(SessionRow).where(col(SessionRow.id) == session.id).values(**values)
    )
    if changed.rowcount == 0:
        raise StoreRefused(f"there is no session {session.id}: a new one has id 0")
    return session.id


def add_note(connection: Connection, note: AuditEntry | Marker | BenchmarkPoint | CostTable) -> int:
    """Records that are only ever added."""
    if note.id != 0:
        kind = type(note).__name__
        raise StoreRefused(f"{kind} {note.id} is stored already and never changes: add a new one")
    match note:
        case AuditEntry():
            return save_audit(connection, note).id
        case Marker():
            return add_row(
                connection,
                MarkerRow,
                engine_id=note.engine_id,
                seq=note.seq,
                at_utc_ms=note.at_utc_ms,
                body=document(note),
            )
        case BenchmarkPoint():
            return add_row(
                connection,
                BenchmarkRow,
                engine_id=note.engine_id,
                setup_key=note.setup_key,
                at_utc_ms=note.at_utc_ms,
                body=document(note),
            )
        case CostTable():
            return add_row(
                connection,
                CostTableRow,
                setup_key=note.setup_key,
                created_utc_ms=note.created_utc_ms,
                body=document(note),
            )
