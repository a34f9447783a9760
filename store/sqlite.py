"""Everything that is true of SQLite alone: where the file lies, how it is opened, what it says.

``store.postgres`` says the same of PostgreSQL; the statements elsewhere are SQLAlchemy's.

Durability: WAL, so that a killed process loses no committed transaction.  ``synchronous`` is set by
the writer before each transaction: FULL for what a person or the audit relies on, NORMAL for ticks.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy.engine import Connection, Engine, create_engine
from sqlalchemy.pool import NullPool, QueuePool

from store.errors import (
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreRefused,
    StoreUnwritable,
)
from store.migrations import inspect, migrate

BUSY_MS = 5000
"""How long a statement waits for another program's transaction, in milliseconds."""
WAL_LIMIT_BYTES = 64 * 1024 * 1024
"""A longer write-ahead log is cut back to this after a checkpoint."""

SKIPPED_IDS = 100_000
"""Tick ids left out after an unclean end; more than ``SYNC_EVERY_S`` of ticks at 5,000 a second."""
FREED_PAGES = 512
"""Pages given back to the disk after one step of pruning at most."""


def locate(location: Path | str) -> Path:
    """The file meant by a path, absolute and without symbolic links.

    Raises:
        StoreError: it names no file.
    """
    text = str(location)
    if text in ("", ":memory:"):
        raise StoreError("the store needs a file: give a path, not an in-memory database")
    return Path(text).expanduser().resolve()


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """A plain connection in autocommit; ``mode`` is SQLite's: "ro", "rw" or "rwc"."""
    uri = f"{path.as_uri()}?mode={mode}"
    if mode == "ro" and _cannot_change(path):
        uri += "&immutable=1"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    try:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        if mode == "ro":
            connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _cannot_change(path: Path) -> bool:
    """A file on a read-only disk without a write-ahead log: nobody writes it, and SQLite could not
    make the sidecar files that it otherwise reads through."""
    return not wal_of(path).exists() and not os.access(
        path.parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids
    )


def wal_of(path: Path) -> Path:
    """The write-ahead log beside the file; left behind only by a process that did not close."""
    return path.with_name(path.name + "-wal")


def check_place(path: Path, *, read_only: bool) -> None:
    """Refuse a path that cannot hold a database, in words.

    Raises:
        StoreUnwritable: it is a directory, or its directory is missing or none.
        StoreError: read-only and there is no such file.
    """
    try:
        if path.is_dir():
            raise StoreUnwritable(f"{path} is a directory: give the path of a file in it")
        exists = path.exists()
        if read_only and not exists:
            raise StoreError(f"{path} does not exist: check the path")
        if not exists and not path.parent.is_dir():
            what = "is no directory" if path.parent.exists() else "does not exist"
            raise StoreUnwritable(
                f"{path} cannot be made: {path.parent} {what}. Make the directory "
                f"(mkdir -p), or choose another path."
            )
    except OSError as error:  # a path below a file, or below a directory one may not enter
        raise StoreUnwritable(
            f"{path} cannot be reached: {error.strerror}. Choose another path."
        ) from error


def prepare(path: Path) -> None:
    """Check, make or upgrade the file for writing.  A refused file is left as it was.

    Raises:
        StoreError: one of its kinds; see ``store.errors``.
    """
    wal = wal_of(path)
    try:
        unclean = wal.exists() and wal.stat().st_size > 0
        if path.exists() and path.stat().st_size > 0:
            # Read-only first: closing a writable connection would already rewrite a newer file's
            # write-ahead log.
            with closing(connect(path, "ro")) as connection:
                inspect(connection, path, read_only=False)
        with closing(connect(path, "rwc")) as connection:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only heeded by an empty file
            journal = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if journal != "wal":
                raise StoreUnwritable(
                    f"{path} cannot use a write-ahead log here (journal mode {journal}). "
                    "Make the file writable and keep it on a local disk."
                )
            connection.execute("PRAGMA synchronous = FULL")
            migrate(connection)
            if unclean:
                _skip_tick_ids(connection)
    except sqlite3.Error as error:
        raise explain(error, path) from error


def inspect_read_only(path: Path) -> None:
    """Refuse a file that this build cannot read as it is.

    Raises:
        StoreError: one of its kinds; see ``store.errors``.
    """
    try:
        with closing(connect(path, "ro")) as connection:
            inspect(connection, path, read_only=True)
    except sqlite3.Error as error:
        raise explain(error, path) from error


def _skip_tick_ids(connection: sqlite3.Connection) -> None:
    """After a power cut the last seconds of ticks may be gone while a client has seen their ids.

    Given out again they would make that client skip new ticks, so a whole range is left out.
    """
    connection.execute(
        "UPDATE sqlite_sequence SET seq = seq + ? WHERE name = 'ticks'", (SKIPPED_IDS,)
    )


def writer_engine(path: Path) -> Engine:
    """For the one writer thread: no pool, explicit ``BEGIN``."""

    def opened() -> sqlite3.Connection:
        connection = connect(path, "rw")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
        return connection

    return create_engine("sqlite://", creator=opened, poolclass=NullPool)


def reader_engine(path: Path) -> Engine:
    """For readers of any thread: each read borrows a connection that cannot write."""
    return create_engine(
        "sqlite://",
        creator=lambda: connect(path, "ro"),
        poolclass=QueuePool,
        pool_size=4,
        max_overflow=-1,
    )


def begin(connection: Connection, *, durable: bool) -> None:
    """Open the writer's transaction; ``durable``: its commit waits for the disk."""
    connection.exec_driver_sql(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def begin_reading(connection: Connection) -> None:
    """Several reads that follow see one moment of the database."""
    connection.exec_driver_sql("BEGIN")


def checkpoint(connection: Connection) -> None:
    """Bring what the write-ahead log holds safely to the disk, as far as readers allow."""
    connection.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)")
    connection.commit()


def free_pages(connection: Connection) -> None:
    """Give pages back to the disk once much of the file is empty; else they are used again."""
    free = connection.exec_driver_sql("PRAGMA freelist_count").scalar_one()
    pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    if free * 4 > pages:
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        # Not execute: that would stop after the first page.
        driver.executescript(f"PRAGMA incremental_vacuum({FREED_PAGES})")
    connection.commit()


def explain(error: BaseException, path: Path) -> StoreError:
    """The store's word for a driver's error; ``StoreRefused`` if only the record is to blame."""
    code = getattr(error, "sqlite_errorname", "") or ""
    text = str(error)
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreBusy(
            f"{path} was locked by another program for more than {BUSY_MS / 1000:g} s. End its "
            "transaction (for example an open sqlite3 shell); nothing was written meanwhile."
        )
    if code.startswith("SQLITE_FULL"):
        return StoreUnwritable(
            f"{path} cannot grow: the disk is full. Free some space; nothing stored was lost."
        )
    if code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        return StoreUnwritable(
            f"{path} cannot be opened for this: {text}. Make the file and its directory writable "
            "for this user, or choose another path."
        )
    if code.startswith("SQLITE_IOERR"):
        return StoreUnwritable(f"{path}: the disk failed ({text}). Check the disk.")
    if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return StoreCorrupt(
            f"{path} is damaged or no database ({text}). Nothing was deleted. Move it aside "
            f"(mv {path} {path}.damaged, its -wal and -shm files too) and start again, or restore "
            "a backup."
        )
    return StoreRefused(f"{path}: not stored: {text}")
