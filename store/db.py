"""The store: one file, one writer thread, any number of readers.

``write`` hands records to the writer thread and returns a future; a resolved future means stored.
Reads are synchronous, see everything whose future has resolved, and may come from any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from store.backlog import StoreState
from store.database import Claim, Database, locate
from store.errors import StoreClosed, StoreError, StoreUnwritable
from store.pen import Record
from store.pruning import Pruned
from store.reader import Reader
from store.retention import Retention
from store.sqlite_log import StoreSize, measure
from store.writer import Writer

__all__ = ["Record", "Store"]


class Store(Reader):
    """Everything that is written down, in one database.  Use ``Store.open``."""

    def __init__(self, database: Database, writer: Writer | None, claim: Claim | None) -> None:
        super().__init__(database)
        self._writer = writer
        self._claim = claim

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
            return cls(database, None, None)
        claim = database.claim()
        try:
            database.prepare()
            writer = Writer(database)
        except BaseException:
            claim.release()
            raise
        return cls(database, writer, claim)

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
        self._end_reading()
        if self._writer is not None:
            self._writer.close()
        if self._claim is not None:
            self._claim.release()

    @property
    def path(self) -> Path:
        """The file.

        Raises:
            StoreError: the store lies in no file.
        """
        return self._database.path

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

    def _cannot_write(self) -> StoreError:
        if self._closed:
            return StoreClosed(f"{self.name}: the store was closed; this was not recorded")
        return StoreUnwritable(f"{self.name} was opened read-only: open it for writing")


def _failed(error: StoreError) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future
