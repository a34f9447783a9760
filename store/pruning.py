"""Retention: removes old ticks, raw scrapes and inputs, a small step at a time.

Nothing else is ever removed: decisions, switches, overrides, policies, markers and the audit stay.
The newest tick of each engine stays too, so that its sequence numbers go on rising, and so do the
inputs that are configurations: a checkpoint is read under the last one before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, delete, func
from sqlmodel import col, select

from store.records import InputKind
from store.tables import EngineRefRow, InputRow, ScrapeRow, TickRow, TickTemplateRow

STEP_ROWS = 2000
"""Rows looked at in one transaction; other writes come between the steps."""


class Pruned(NamedTuple):
    """How many rows were removed."""

    ticks: int
    scrapes: int


@dataclass
class Pruning:
    """One run through the tables up to the ids that existed when it began.

    Args:
        before_utc_ms: rows older than this go.
    """

    before_utc_ms: int
    ticks: int = 0
    scrapes: int = 0
    _tick_cursor: int | None = 0
    _scrape_cursor: int | None = 0
    _input_cursor: int | None = 0

    @property
    def pruned(self) -> Pruned:
        """What was removed so far."""
        return Pruned(self.ticks, self.scrapes)

    def step(self, connection: Connection) -> bool:
        """Do one step in the open transaction; False once all is done."""
        if self._tick_cursor is not None:
            removed, self._tick_cursor = _step(
                connection, TickRow, self._tick_cursor, self.before_utc_ms
            )
            self.ticks += removed
            if self._tick_cursor is None:
                _drop_templates(connection)
        elif self._scrape_cursor is not None:
            removed, self._scrape_cursor = _step(
                connection, ScrapeRow, self._scrape_cursor, self.before_utc_ms
            )
            self.scrapes += removed
        elif self._input_cursor is not None:
            _, self._input_cursor = _step(
                connection, InputRow, self._input_cursor, self.before_utc_ms
            )
        return self._input_cursor is not None


def _step(
    connection: Connection,
    table: type[TickRow | ScrapeRow | InputRow],
    cursor: int,
    before_utc_ms: int,
) -> tuple[int, int | None]:
    """Walks by id, not by time: a clock that was once wrong must not stop the walk for ever."""
    window = select(table.id).where(col(table.id) > cursor).order_by(col(table.id)).limit(STEP_ROWS)
    upper = connection.execute(select(func.max(window.subquery().c.id))).scalar()
    if upper is None:
        return 0, None
    doomed = (
        delete(table)
        .where(col(table.id) > cursor, col(table.id) <= upper)
        .where(col(table.at_utc_ms) < before_utc_ms)
    )
    if table is TickRow:
        newest = (
            select(func.max(TickRow.id))
            .where(col(TickRow.engine_ref) == EngineRefRow.ref)
            .correlate(EngineRefRow)
            .scalar_subquery()
        )
        kept = select(newest).select_from(EngineRefRow)
        doomed = doomed.where(col(TickRow.id).not_in(kept))
    if table is InputRow:
        doomed = doomed.where(col(InputRow.kind) != str(InputKind.CONFIG))
    return connection.execute(doomed).rowcount, int(upper)


def _drop_templates(connection: Connection) -> None:
    """Templates of an engine are used in order, so those before its oldest tick's are free."""
    for ref in connection.execute(select(EngineRefRow.ref)).scalars().all():
        oldest = connection.execute(
            select(TickRow.template_id)
            .where(TickRow.engine_ref == ref, col(TickRow.template_id).is_not(None))
            .order_by(col(TickRow.id))
            .limit(1)
        ).scalar()
        if oldest is not None:
            connection.execute(
                delete(TickTemplateRow).where(
                    col(TickTemplateRow.engine_ref) == ref, col(TickTemplateRow.id) < oldest
                )
            )
