"""The reading half of the store: every question it answers.

Reads are synchronous and may come from any thread; each takes a connection of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from store import document_reads, fleet_rules, kept_answers, tick_reads
from store.audit_chain import AuditCheck, check
from store.database import Database
from store.errors import StoreClosed
from store.idempotency import KeptAnswer
from store.measurements import BenchmarkPoint, CostTable
from store.policies import PolicyConfig
from store.records import (
    AuditEntry,
    ControlInput,
    Decision,
    EngineRecord,
    EngineSwitch,
    InputKind,
    Marker,
    Override,
    RawScrape,
    SessionRecord,
    Tick,
)
from store.rules import FleetRule


class Reader:
    """Reads one database until it is closed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._readers = database.reader_engine()
        self._ticks = tick_reads.TickReader()
        self._closed = False

    @property
    def name(self) -> str:
        """What messages call the database; never with a password."""
        return self._database.name

    @property
    def unreadable(self) -> int:
        """Ticks, raw scrapes and inputs that reads had to skip because their rows are damaged."""
        return self._ticks.unreadable

    def ticks(
        self,
        engine_id: str,
        *,
        after_id: int | None = None,
        before_id: int | None = None,
        limit: int = 1000,
    ) -> list[Tick]:
        """Ticks of one engine, oldest first.

        Without ``after_id`` the newest ``limit`` (before ``before_id``); with it, even 0, the first
        ``limit`` after it: pass the last id again to page forward.
        """
        _positive(limit)
        with self._reading() as connection:
            return self._ticks.of_engine(
                connection, engine_id, after_id=after_id, before_id=before_id, limit=limit
            )

    def ticks_after(self, after_id: int, limit: int = 1000) -> list[Tick]:
        """Ticks of all engines after an id, oldest first: what a resuming SSE client has missed."""
        _positive(limit)
        with self._reading() as connection:
            return self._ticks.after(connection, after_id, limit)

    def last_tick(self, engine_id: str) -> Tick | None:
        """The newest readable tick of an engine; it may be a gap."""
        for limit in (1, 100):
            found = self.ticks(engine_id, limit=limit)
            if found:
                return found[-1]
        return None

    def last_seq(self, engine_id: str) -> int:
        """The highest observation number ever stored for an engine, 0 for none."""
        with self._reading() as connection:
            return tick_reads.last_seq(connection, engine_id)

    def scrapes(self, engine_id: str, first_seq: int, last_seq: int) -> list[RawScrape]:
        """Raw scrapes of a range of observations, both ends included, oldest first."""
        with self._reading() as connection:
            return self._ticks.scrapes(connection, engine_id, first_seq, last_seq)

    def tick_texts(
        self, engine_id: str, first_seq: int, last_seq: int, limit: int = 1000
    ) -> list[tuple[int, int, bool, bytes]]:
        """(seq, time, is a gap, text) of ticks in a range of observations, both ends included.

        The text is that of ``store.tick_codec``; empty where the row is damaged.
        """
        _positive(limit)
        with self._reading() as connection:
            return self._ticks.texts(connection, engine_id, first_seq, last_seq, limit)

    def inputs(
        self,
        engine_id: str,
        first_after: int = 0,
        last_after: int = 2**63 - 1,
        *,
        kind: InputKind | None = None,
    ) -> list[ControlInput]:
        """What the controller took in after observations of this range, in its order."""
        with self._reading() as connection:
            return self._ticks.inputs(connection, engine_id, first_after, last_after, kind)

    def decisions(
        self, engine_id: str | None = None, *, before_id: int | None = None, limit: int = 100
    ) -> list[Decision]:
        """Decisions, newest first, of one engine or of all."""
        _positive(limit)
        with self._reading() as connection:
            return document_reads.decisions(connection, engine_id, before_id, limit)

    def switches(
        self, engine_id: str, *, before_id: int | None = None, limit: int = 100
    ) -> list[EngineSwitch]:
        """Engine switches, newest first."""
        _positive(limit)
        with self._reading() as connection:
            return document_reads.switches(connection, engine_id, before_id, limit)

    def overrides(
        self, engine_id: str | None = None, *, in_force_only: bool = False
    ) -> list[Override]:
        """Overrides, newest first, of one engine or of all.

        In force means not ended.  The store has no clock: one whose time ran out while nobody
        looked is still listed, and ends in the next controller step.
        """
        with self._reading() as connection:
            return document_reads.overrides(connection, engine_id, in_force_only=in_force_only)

    def policy(self, engine_id: str) -> PolicyConfig | None:
        """The newest version of an engine's policy."""
        with self._reading() as connection:
            return next(iter(document_reads.policies(connection, engine_id, limit=1)), None)

    def policies(self, engine_id: str) -> list[PolicyConfig]:
        """Every version of an engine's policy, newest first."""
        with self._reading() as connection:
            return document_reads.policies(connection, engine_id)

    def engines(self) -> list[EngineRecord]:
        """All engines in the order they were added."""
        with self._reading() as connection:
            return document_reads.engines(connection)

    def engine(self, engine_id: str) -> EngineRecord | None:
        """One engine; None for an unknown one."""
        with self._reading() as connection:
            return document_reads.engine(connection, engine_id)

    def audit(self, *, before_id: int | None = None, limit: int = 100) -> list[AuditEntry]:
        """Audit entries, newest first."""
        _positive(limit)
        with self._reading() as connection:
            return document_reads.audit(connection, before_id, limit)

    def check_audit(self, expected: str = "") -> AuditCheck:
        """Follow the audit's hash chain from its first row.

        Args:
            expected: a head noted earlier, or its beginning; "" for none.
        """
        with self._reading() as connection:
            return check(document_reads.audit_from_start(connection), expected)

    def markers(
        self, engine_id: str, *, before_id: int | None = None, limit: int | None = None
    ) -> list[Marker]:
        """An engine's markers, or the newest of them, in the order of their observations."""
        with self._reading() as connection:
            return document_reads.markers(connection, engine_id, before_id, limit)

    def sessions(
        self, *, before_id: int | None = None, limit: int | None = None
    ) -> list[SessionRecord]:
        """Sessions, newest first."""
        with self._reading() as connection:
            return document_reads.sessions(connection, before_id, limit)

    def benchmark_points(self, setup_key: str) -> list[BenchmarkPoint]:
        """The measured points of a setup key, in the order they were stored."""
        with self._reading() as connection:
            return document_reads.benchmark_points(connection, setup_key)

    def cost_table(self, setup_key: str) -> CostTable | None:
        """The newest step-cost table of a setup key."""
        with self._reading() as connection:
            return document_reads.cost_table(connection, setup_key)

    def fleet_rules(self, *, in_force_only: bool = False) -> list[FleetRule]:
        """Rules for groups and the whole fleet, oldest first."""
        with self._reading() as connection:
            return fleet_rules.fleet_rules(connection, in_force_only=in_force_only)

    def kept_answer(self, caller: str, key: str) -> KeptAnswer | None:
        """How a change under an idempotency key was answered; None for an unknown key."""
        with self._reading() as connection:
            return kept_answers.kept_answer(connection, caller, key)

    def _end_reading(self) -> None:
        self._closed = True
        self._readers.dispose()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        if self._closed:
            raise StoreClosed(f"{self.name}: the store was closed")
        try:
            with self._readers.connect() as connection:
                self._database.begin_reading(connection)
                yield connection
        except SQLAlchemyError as error:
            raise self._database.explain(getattr(error, "orig", None) or error) from error


def _positive(limit: int) -> None:
    if limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
