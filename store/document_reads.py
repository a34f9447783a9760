"""Reading the records that are JSON documents.

Here an unreadable row is an error and not skipped: an override or a policy that silently went
missing would change what the control plane does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from sqlalchemy import Connection
from sqlmodel import col, select

from store.documents import record
from store.errors import StoreCorrupt
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

_Model = TypeVar("_Model", bound=BaseModel)


def read_document(
    model: type[_Model], table: str, row_id: int | None, key: object, body: str
) -> _Model:
    """The record of a row; a damaged one is an error."""
    try:
        return record(model, body, row_id)
    except ValidationError as error:
        raise StoreCorrupt(
            f"row {key} of table {table} cannot be read: {error}. Nothing was changed. "
            "Restore a backup, or move the file aside and start again."
        ) from error


def engines(connection: Connection) -> list[EngineRecord]:
    """In the order they were added."""
    rows = connection.execute(
        select(EngineRow.engine_id, EngineRow.body).order_by(
            col(EngineRow.added_utc_ms), col(EngineRow.engine_id)
        )
    )
    return [read_document(EngineRecord, "engines", None, key, body) for key, body in rows]


def engine(connection: Connection, engine_id: str) -> EngineRecord | None:
    """One of them."""
    body = connection.execute(
        select(EngineRow.body).where(EngineRow.engine_id == engine_id)
    ).scalar()
    if body is None:
        return None
    return read_document(EngineRecord, "engines", None, engine_id, body)


def decisions(
    connection: Connection, engine_id: str | None, before_id: int | None, limit: int
) -> list[Decision]:
    """Newest first."""
    query = select(DecisionRow.id, DecisionRow.body).order_by(col(DecisionRow.id).desc())
    if engine_id is not None:
        query = query.where(DecisionRow.engine_id == engine_id)
    if before_id is not None:
        query = query.where(col(DecisionRow.id) < before_id)
    rows = connection.execute(query.limit(limit))
    return [read_document(Decision, "decisions", key, key, body) for key, body in rows]


def switches(
    connection: Connection, engine_id: str, before_id: int | None, limit: int
) -> list[EngineSwitch]:
    """Newest first."""
    query = select(SwitchRow.id, SwitchRow.body).where(SwitchRow.engine_id == engine_id)
    if before_id is not None:
        query = query.where(col(SwitchRow.id) < before_id)
    rows = connection.execute(query.order_by(col(SwitchRow.id).desc()).limit(limit))
    return [read_document(EngineSwitch, "switches", key, key, body) for key, body in rows]


def overrides(
    connection: Connection, engine_id: str | None, *, in_force_only: bool
) -> list[Override]:
    """Newest first."""
    query = select(OverrideRow.id, OverrideRow.body).order_by(col(OverrideRow.id).desc())
    if engine_id is not None:
        query = query.where(OverrideRow.engine_id == engine_id)
    if in_force_only:
        query = query.where(col(OverrideRow.ended_utc_ms).is_(None))
    rows = connection.execute(query)
    return [read_document(Override, "overrides", key, key, body) for key, body in rows]


def policies(
    connection: Connection, engine_id: str, limit: int | None = None
) -> list[PolicyConfig]:
    """Newest version first."""
    rows = connection.execute(
        select(PolicyRow.id, PolicyRow.body)
        .where(PolicyRow.engine_id == engine_id)
        .order_by(col(PolicyRow.version).desc())
        .limit(limit)
    )
    return [read_document(PolicyConfig, "policies", None, key, body) for key, body in rows]


def audit(connection: Connection, before_id: int | None, limit: int) -> list[AuditEntry]:
    """Newest first."""
    query = select(AuditRow).order_by(col(AuditRow.id).desc()).limit(limit)
    if before_id is not None:
        query = query.where(col(AuditRow.id) < before_id)
    return [AuditEntry(**row._mapping) for row in connection.execute(query)]


def audit_from_start(connection: Connection) -> Iterator[AuditEntry]:
    """Every row, oldest first, read a thousand at a time."""
    last = -1
    while True:
        query = select(AuditRow).where(col(AuditRow.id) > last).order_by(col(AuditRow.id))
        rows = connection.execute(query.limit(1000)).fetchall()
        for row in rows:
            yield AuditEntry(**row._mapping)
        if not rows:
            return
        last = rows[-1].id


def markers(
    connection: Connection, engine_id: str, before_id: int | None, limit: int | None
) -> list[Marker]:
    """The newest of them, in the order of the observations they stand at."""
    query = select(MarkerRow.id, MarkerRow.body).where(MarkerRow.engine_id == engine_id)
    if before_id is not None:
        query = query.where(col(MarkerRow.id) < before_id)
    rows = connection.execute(query.order_by(col(MarkerRow.id).desc()).limit(limit))
    found = [read_document(Marker, "markers", key, key, body) for key, body in rows]
    return sorted(found, key=lambda one: (one.seq, one.id))


def sessions(
    connection: Connection, before_id: int | None, limit: int | None
) -> list[SessionRecord]:
    """Newest first."""
    query = select(SessionRow.id, SessionRow.body).order_by(col(SessionRow.id).desc())
    if before_id is not None:
        query = query.where(col(SessionRow.id) < before_id)
    rows = connection.execute(query.limit(limit))
    return [read_document(SessionRecord, "sessions", key, key, body) for key, body in rows]


def benchmark_points(connection: Connection, setup_key: str) -> list[BenchmarkPoint]:
    """In the order they were measured."""
    rows = connection.execute(
        select(BenchmarkRow.id, BenchmarkRow.body)
        .where(BenchmarkRow.setup_key == setup_key)
        .order_by(col(BenchmarkRow.id))
    )
    return [read_document(BenchmarkPoint, "benchmark_points", key, key, body) for key, body in rows]


def cost_table(connection: Connection, setup_key: str) -> CostTable | None:
    """The newest of this setup key."""
    row = connection.execute(
        select(CostTableRow.id, CostTableRow.body)
        .where(CostTableRow.setup_key == setup_key)
        .order_by(col(CostTableRow.id).desc())
        .limit(1)
    ).first()
    return read_document(CostTable, "cost_tables", row[0], row[0], row[1]) if row else None
