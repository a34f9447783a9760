"""The store: one file, one writer thread, any number of readers.

``write`` hands records to the writer thread and returns a future; a resolved future means stored.
Reads are synchronous, see everything whose future has resolved, and may come from any thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection
from sqlalchemy.engine import Engine
from sqlalchemy.exc import SQLAlchemyError

from store import document_reads, fleet_rules, kept_answers, tick_reads
from store.audit_chain import AuditCheck, check
from store.backlog import StoreState
from store.database import Claim, Database, locate
from store.errors import StoreClosed, StoreError, StoreUnwritable
from store.idempotency import KeptAnswer
from store.measurements import BenchmarkPoint, CostTable
from store.pen import Record
from store.policies import PolicyConfig
from store.pruning import Pruned
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
from store.retention import Retention
from store.rules import FleetRule
from store.sqlite_log import StoreSize, measure
from store.writer import Writer

__all__ = ["Record", "Store"]


class Store:
    """Everything that is written down, in one database.  Use ``Store.open``."""

    def __init__(
        self, database: Database, readers: Engine, writer: Writer | None, claim: Claim | None
    ) -> None:
        self._database = database
        self._readers = readers
        self._writer = writer
        self._claim = claim
        self._ticks = tick_reads.TickReader()
        self._closed = False

    @classmethod
    def open(cls, location: Path | str, *, read_only: bool = False) -> Self:
        """Open a database, making or upgrading it unless ``read_only``.

        Args:
            location: a file path, or an SQLAlchemy URL (``sqlite:///PATH``,
                ``postgresql+psycopg://USER@HOST/NAME``).

        Raises:
            StoreNewer, StoreOlder: a schema that this build cannot use.
            StoreCorrupt, StoreForeign: not a usable database of ours.
            StoreUnwritable: no directory, no permission, read-only or full disk.
            StoreBusy: another control plane writes it.
            StoreUnreachable: the database server does not answer.
            StoreError: base of all these; the text says what to do.
        """
        database = locate(location)
        if read_only:
            database.check_readable()
            return cls(database, database.reader_engine(), None, None)
        claim = database.claim()
        try:
            database.prepare()
            writer = Writer(database)
        except BaseException:
            claim.release()
            raise
        return cls(database, database.reader_engine(), writer, claim)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish the queued writes, then close; a second call does nothing."""
        if self._writer is not None:
            self._writer.drain()
        self._closed = True
        self._readers.dispose()
        if self._writer is not None:
            self._writer.close()
        if self._claim is not None:
            self._claim.release()

    @property
    def name(self) -> str:
        """What messages call the database; never with a password."""
        return self._database.name

    @property
    def path(self) -> Path:
        """The file.

        Raises:
            StoreError: the store lies in no file.
        """
        return self._database.path

    # writing

    def write(self, records: Sequence[Record], *, keep: bool = False) -> Future[list[Record]]:
        """Store records in one transaction: all of them, or none.

        Ticks, raw scrapes and inputs are acknowledged once committed; everything else once it is on
        the disk.  Never blocks and never raises.  A failed write changes nothing and later writes
        go on; it may be tried again.

        Args:
            keep: while the file cannot be written (locked, full, read-only), wait in memory and be
                tried again instead of failing with StoreUnwritable or StoreBusy.

        Returns:
            A future of the same records in order, with their row ids.  Its exceptions:
            StoreRefused (a record contradicts what is stored), StoreUnwritable (disk full),
            StoreBusy, StoreCorrupt, StoreOverloaded (queue full), StoreClosed.
        """
        if self._writer is None:
            return _failed(self._cannot_write())
        return self._writer.submit(records, keep=keep)

    @property
    def state(self) -> StoreState:
        """How the writing goes."""
        return StoreState("", 0, 0) if self._writer is None else self._writer.state

    @property
    def size(self) -> StoreSize | None:
        """Bytes on the disk; None if the store lies in no file."""
        try:
            return measure(self._database.path)
        except StoreError:
            return None

    def prune(self, retention: Retention) -> Future[Pruned]:
        """Remove and down-sample what is old, a small step at a time, with other writes in between.

        What belongs to a named session stays, and so do policies, markers and the audit.  ``close``
        ends a run early; a later one goes on.

        Returns:
            A future of the numbers of removed rows.
        """
        if self._writer is None:
            return _failed(self._cannot_write())
        return self._writer.prune(retention)

    @property
    def waiting(self) -> int:
        """Writes in the queue."""
        return self._writer.waiting if self._writer is not None else 0

    @property
    def unreadable(self) -> int:
        """Ticks, raw scrapes and inputs that reads had to skip because their rows are damaged."""
        return self._ticks.unreadable

    # reading

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

    def _cannot_write(self) -> StoreError:
        if self._closed:
            return StoreClosed(f"{self.name}: the store was closed; this was not recorded")
        return StoreUnwritable(f"{self.name} was opened read-only: open it for writing")


def _failed(error: StoreError) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def _positive(limit: int) -> None:
    if limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
