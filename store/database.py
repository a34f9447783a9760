"""What a database must be able to do so that a store can lie in it.

``store.sqlite_file`` and ``store.postgres`` say how each does it; the store, its writer and the
statements elsewhere know no other difference.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.exc import ArgumentError

from store.errors import StoreError
from store.postgres import PostgresDatabase
from store.sqlite_file import SqliteFile


class Claim(Protocol):
    """The right to write, held by one process at a time and given back even by SIGKILL."""

    def release(self) -> None:
        """Give it back; a second call does nothing."""


class Database(Protocol):
    """Where a store lies."""

    @property
    def name(self) -> str:
        """What messages call it; never with a password."""

    @property
    def path(self) -> Path:
        """Its file.

        Raises:
            StoreError: it has none.
        """

    def claim(self) -> Claim:
        """Take the right to write.

        Raises:
            StoreBusy: another process has it, and is named.
            StoreError: it cannot be reached or written.
        """

    def prepare(self) -> None:
        """Check, make or upgrade it under the claim.  What is refused is left as it was.

        Raises:
            StoreError: one of its kinds; see ``store.errors``.
        """

    def check_readable(self) -> None:
        """Refuse what this build cannot read as it is.

        Raises:
            StoreError: one of its kinds; see ``store.errors``.
        """

    def writer_engine(self) -> Engine:
        """For the one writer thread, under the claim: no pool."""

    def reader_engine(self) -> Engine:
        """For readers of any thread: each read borrows a connection that cannot write."""

    def begin(self, connection: Connection, *, durable: bool) -> None:
        """Open the writer's transaction; ``durable``: its commit waits for the disk."""

    def begin_reading(self, connection: Connection) -> None:
        """Several reads that follow see one moment of the database."""

    def sync(self, connection: Connection) -> None:
        """Bring what was committed without waiting for the disk there, as far as readers allow."""

    def free_space(self, connection: Connection) -> None:
        """After a step of pruning: give room back to the disk once much of it is empty."""

    def finish(self, connection: Connection) -> None:
        """The writer has written its last."""

    def explain(self, error: BaseException) -> StoreError:
        """The store's word for a driver's error; ``StoreRefused`` if only the record is to blame.

        ``StoreUnreachable`` if the connection is lost and a new one may do better.
        """


def locate(location: Path | str) -> Database:
    """The database meant by a path or an SQLAlchemy URL.

    Raises:
        StoreError: it is neither, or of a kind that holds no store.
    """
    if not isinstance(location, str) or "://" not in location:
        return SqliteFile(location)
    try:
        url = make_url(location)
    except (ArgumentError, ValueError):
        # The text may hold a password, so it is not repeated, in no traceback either.
        raise StoreError(
            f"the database given as {location.partition('://')[0]}://… is no database URL: give a "
            "file path, or postgresql+psycopg://USER:PASSWORD@HOST/NAME with every @ : / % in the "
            "password written as %40 %3A %2F %25"
        ) from None
    if url.get_backend_name() == "sqlite":
        return SqliteFile(url.database or "")
    if url.get_backend_name() == "postgresql":
        return PostgresDatabase(url)
    raise StoreError(
        f"databases of kind {url.get_backend_name()!r} are not supported by this version: "
        "give a file path, sqlite:///PATH or postgresql+psycopg://USER@HOST/NAME"
    )
