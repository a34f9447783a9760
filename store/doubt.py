"""Transactions whose commit was not answered, because the connection was lost in that moment.

They were carried out or not.  Once there is a connection again a row tells: what was only ever
added has an id that was given to no other row.  Records that are put in place of others need no
such proof, since storing them again changes nothing; of a raw scrape alone there may be two then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from sqlalchemy import Connection
from sqlmodel import col, select

from store.measurements import BenchmarkPoint, CostTable
from store.pen import Record
from store.records import AuditEntry, ControlInput, Marker, Override, SessionRecord, Tick
from store.rules import FleetRule
from store.tables import (
    AuditRow,
    BenchmarkRow,
    CostTableRow,
    FleetRuleRow,
    InputRow,
    MarkerRow,
    OverrideRow,
    SessionRow,
    TickRow,
)

ADDED: dict[type[Record], type[Any]] = {
    Tick: TickRow,
    AuditEntry: AuditRow,
    Marker: MarkerRow,
    ControlInput: InputRow,
    Override: OverrideRow,
    SessionRecord: SessionRow,
    BenchmarkPoint: BenchmarkRow,
    CostTable: CostTableRow,
    FleetRule: FleetRuleRow,
}
"""Records whose first write, with id 0, makes a row with an id of its own, and where it lies."""


class Doubt:
    """Writes by their futures.  For the writer thread."""

    def __init__(self) -> None:
        self._open: dict[Future[list[Record]], list[Record]] = {}
        self._proof: tuple[type[Any], int] | None = None
        self._stored: dict[Future[list[Record]], list[Record]] = {}

    def raise_for(
        self,
        futures: Iterable[Future[list[Record]]],
        given: Iterable[Sequence[Record]],
        stored: Iterable[list[Record]],
    ) -> None:
        """The commit of these writes was not answered.

        Args:
            given: the records of each write; stored: the same with their ids.
        """
        self._proof = None
        for future, before, after in zip(futures, given, stored, strict=True):
            self._open[future] = after
            self._proof = self._proof or _proof(before, after)

    def settle(self, connection: Connection) -> None:
        """Look, on a new connection and before anything is written, what became of them."""
        if self._proof is not None:
            table, row_id = self._proof
            if connection.execute(select(table.id).where(col(table.id) == row_id)).first():
                self._stored.update(self._open)
        self._open.clear()
        self._proof = None

    def stored(self, future: Future[list[Record]]) -> list[Record] | None:
        """What a write is to be answered with if it turned out to be stored."""
        return self._stored.get(future)

    def answered(self, future: Future[list[Record]]) -> None:
        """It is not asked for any more."""
        self._stored.pop(future, None)


def _proof(given: Sequence[Record], stored: Sequence[Record]) -> tuple[type[Any], int] | None:
    for before, after in zip(given, stored, strict=True):
        table = ADDED.get(type(after))
        if table is not None and not getattr(before, "id", 0):
            return table, int(getattr(after, "id", 0))
    return None
