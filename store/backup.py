"""A consistent copy of an SQLite store while it is written, checked before it gets its name.

One moment of the database is copied, through SQLite's own backup interface on a connection that
only reads: the writer is not held up, and what it writes meanwhile is not in the copy.  For as long
as it takes, the write-ahead log cannot begin anew.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from store import sqlite
from store.audit_chain import AuditCheck
from store.database import locate
from store.db import Store
from store.errors import StoreCorrupt, StoreError, StoreUnwritable
from store.migrations import schema_version

STEP_PAGES = 2048
"""Pages copied between two calls of ``progress``."""


@dataclass(frozen=True)
class Checked:
    """A database that was read through.

    Args:
        size: of the file, in bytes.
        schema: its number of migrations.
        audit: whether the audit's hash chain is whole.
        engines, sessions: how many it knows.
    """

    path: Path
    size: int
    schema: int
    audit: AuditCheck
    engines: int
    sessions: int


def back_up(
    location: Path | str, target: Path, *, progress: Callable[[int, int], None] = lambda *_: None
) -> Checked:
    """Copy a store, which may be open and written elsewhere, and check the copy.

    Args:
        location: the store's path or URL.
        target: a new file.
        progress: told now and then how many pages are copied, and of how many.

    Raises:
        StoreUnwritable: the target exists or cannot be written, or its disk is full.
        StoreCorrupt: the copy does not hold together, because the store does not.
        StoreError: the store cannot be read, or is no SQLite file.
    """
    source = _file(location)
    if target.exists():
        raise StoreUnwritable(f"{target} exists: choose another name, or remove it first")
    if not target.parent.is_dir():
        raise StoreUnwritable(f"{target} cannot be made: {target.parent} is no directory")
    part = target.with_name(target.name + ".part")
    try:
        part.unlink(missing_ok=True)
        _copy(source, part, progress)
        shutil.copymode(source, part)
        found = check(part)
        _to_disk(part)
        part.rename(target)
        _to_disk(target.parent)
    except OSError as error:
        raise StoreUnwritable(f"{target} cannot be written: {error.strerror}") from error
    finally:
        _remove(part)
    return replace(found, path=target)


def check(location: Path | str) -> Checked:
    """Read a store through: every page, the schema and the audit's chain.

    Raises:
        StoreCorrupt: the file does not hold together.
        StoreError: it cannot be read, is no store or no SQLite file.
    """
    path = _file(location)
    with closing(sqlite.connect(path, "ro")) as connection:
        try:
            problems = [row[0] for row in connection.execute("PRAGMA integrity_check(3)")]
            schema = schema_version(connection)
        except sqlite3.Error as error:
            raise sqlite.explain(error, path) from error
    if problems != ["ok"]:
        raise StoreCorrupt(f"{path} does not hold together: {'; '.join(problems)}")
    with Store.open(path, read_only=True) as store:
        return Checked(
            path=path,
            size=path.stat().st_size,
            schema=schema,
            audit=store.check_audit(),
            engines=len(store.engines()),
            sessions=len(store.sessions()),
        )


def _file(location: Path | str) -> Path:
    database = locate(location)
    try:
        path = database.path
    except StoreError as error:
        raise StoreError(
            f"{database.name} is no SQLite file: back it up with PostgreSQL's pg_dump"
        ) from error
    database.check_readable()
    return path


def _copy(source: Path, part: Path, progress: Callable[[int, int], None]) -> None:
    def told(_: int, left: int, pages: int) -> None:
        progress(pages - left, pages)

    with closing(sqlite.connect(source, "ro")) as read, closing(sqlite3.connect(part)) as written:
        try:
            # An open transaction keeps one moment: otherwise each write would start it over.
            read.execute("BEGIN")
            read.execute("SELECT count(*) FROM sqlite_master").fetchone()
            read.backup(written, pages=STEP_PAGES, progress=told)
            read.execute("ROLLBACK")
            written.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
        except sqlite3.Error as error:
            raise sqlite.explain(error, part) from error


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(part: Path) -> None:
    for name in (part.name, f"{part.name}-journal", f"{part.name}-wal", f"{part.name}-shm"):
        part.with_name(name).unlink(missing_ok=True)
