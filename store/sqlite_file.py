"""A store in an SQLite file; what SQLite needs for it is in ``store.sqlite`` and ``store.lock``."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection
from sqlalchemy.engine import Engine

from store import sqlite, sqlite_log
from store.errors import StoreError
from store.lock import WriterLock


class SqliteFile:
    """One file, by its path."""

    def __init__(self, location: Path | str) -> None:
        self.path = sqlite.locate(location)

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    def claim(self) -> WriterLock:
        """By a lock file beside it."""
        sqlite.check_place(self.path, read_only=False)
        return WriterLock.take(self.path)

    def prepare(self) -> None:
        """See ``sqlite.prepare``."""
        sqlite.prepare(self.path)

    def check_readable(self) -> None:
        """See ``sqlite.inspect_read_only``."""
        sqlite.check_place(self.path, read_only=True)
        sqlite.inspect_read_only(self.path)

    def writer_engine(self) -> Engine:
        """See ``sqlite.writer_engine``."""
        return sqlite.writer_engine(self.path)

    def reader_engine(self) -> Engine:
        """See ``sqlite.reader_engine``."""
        return sqlite.reader_engine(self.path)

    def begin(self, connection: Connection, *, durable: bool) -> None:
        """``PRAGMA synchronous`` decides how durable."""
        sqlite.begin(connection, durable=durable)

    def begin_reading(self, connection: Connection) -> None:
        """A deferred transaction."""
        sqlite.begin_reading(connection)

    def sync(self, connection: Connection) -> None:
        """A checkpoint of the write-ahead log."""
        sqlite.checkpoint(connection)

    def free_space(self, connection: Connection) -> None:
        """See ``sqlite.free_pages`` and ``sqlite_log.shorten``."""
        sqlite.free_pages(connection)
        sqlite_log.shorten(connection, self.path)

    def finish(self, connection: Connection) -> None:
        """Nothing: the last connection brings the log into the file."""

    def explain(self, error: BaseException) -> StoreError:
        """See ``sqlite.explain``."""
        return sqlite.explain(error, self.path)
