"""The session file's schema: one SQLite file per recording.  ``docs/sessions.md`` is its contract.

Readers know every schema up to ``SCHEMA``: a table that an older file does not have reads as empty.
A released schema is never edited; a change raises ``SCHEMA`` and adds a line to ``RELEASES``.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from store.errors import StoreCorrupt, StoreError, StoreForeign, StoreNewer, StoreUnwritable

APPLICATION_ID = 0x73706473
"""``PRAGMA application_id`` of session files: "spds"."""
SCHEMA = 1
"""``PRAGMA user_version`` of files that this build writes."""
RELEASES: tuple[str, ...] = ("0.1.0",)
"""First specdeck release that reads each schema, from schema 1 on."""
SUFFIX = ".specdeck"

DDL = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL)",
    """CREATE TABLE ticks (
        seq INTEGER PRIMARY KEY,
        at_utc_ms INTEGER NOT NULL,
        is_gap INTEGER NOT NULL,
        template INTEGER,
        body BLOB NOT NULL)""",
    "CREATE TABLE templates (id INTEGER PRIMARY KEY, body BLOB NOT NULL)",
    """CREATE TABLE inputs (
        id INTEGER PRIMARY KEY,
        after_seq INTEGER NOT NULL,
        kind TEXT NOT NULL,
        at_utc_ms INTEGER NOT NULL,
        body BLOB NOT NULL)""",
    "CREATE INDEX inputs_by_seq ON inputs (after_seq, id)",
    """CREATE TABLE records (
        id INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        seq INTEGER NOT NULL,
        at_utc_ms INTEGER NOT NULL,
        body TEXT NOT NULL)""",
    "CREATE INDEX records_by_kind ON records (kind, seq, id)",
    """CREATE TABLE scrapes (
        id INTEGER PRIMARY KEY,
        seq INTEGER NOT NULL,
        at_utc_ms INTEGER NOT NULL,
        path TEXT NOT NULL,
        template INTEGER,
        body BLOB NOT NULL)""",
    "CREATE INDEX scrapes_by_seq ON scrapes (seq, id)",
    "CREATE TABLE scrape_templates (id INTEGER PRIMARY KEY, body BLOB NOT NULL)",
    "CREATE TABLE tracks (first_seq INTEGER PRIMARY KEY, last_seq INTEGER, body BLOB NOT NULL)",
)


def make(connection: sqlite3.Connection) -> None:
    """Lay out an empty file in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in DDL:
        connection.execute(statement)
    connection.execute("INSERT INTO meta VALUES ('needs_specdeck', ?)", (RELEASES[SCHEMA - 1],))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA}")
    connection.execute("COMMIT")


def check(connection: sqlite3.Connection, path: Path) -> int:
    """Whether this build can read the file; returns its schema.

    Raises:
        StoreForeign: it is no session file.
        StoreNewer: it needs a newer specdeck, which is named.
    """
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if application != APPLICATION_ID:
        raise StoreForeign(
            f"{path} is no session file. A control plane's database is exported with: "
            "specdeck record export NAME --database FILE"
        )
    if version > SCHEMA:
        row = connection.execute("SELECT value FROM meta WHERE key = 'needs_specdeck'").fetchone()
        needed = f"{row[0]} or newer" if row else "of a newer release"
        raise StoreNewer(
            f"{path} has session schema {version}; this specdeck reads up to {SCHEMA}. "
            f"Open it with specdeck {needed}."
        )
    return version


def open_read_only(path: Path) -> sqlite3.Connection:
    """A connection that cannot write, with the file's write-ahead log if that can be read.

    A log that cannot be read (no permission to make its index beside the file) is left out: what
    was recorded last is missing then, and everything before is there.

    Raises:
        StoreError: there is no such file, or it is none of ours.
    """
    if not path.is_file():
        raise StoreError(f"{path} does not exist: check the path")
    problem: sqlite3.Error | UnicodeError | None = None
    for extra in ("", "&immutable=1"):
        try:
            connection = sqlite3.connect(
                f"{path.resolve().as_uri()}?mode=ro{extra}",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                connection.execute("PRAGMA query_only = ON")
                check(connection, path)
            except BaseException:
                connection.close()
                raise
            return connection
        except (sqlite3.Error, UnicodeError) as error:
            problem = error
    assert problem is not None
    raise explain(problem, path)


def explain(error: sqlite3.Error | UnicodeError, path: Path) -> StoreError:
    """The store's word for a driver's error on a session file."""
    code = getattr(error, "sqlite_errorname", "") or ""
    if code.startswith("SQLITE_FULL"):
        return StoreUnwritable(f"{path} cannot grow: the disk is full. What was recorded is safe.")
    if code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_IOERR")):
        return StoreUnwritable(f"{path} cannot be opened for this: {error}. Choose another place.")
    return StoreCorrupt(f"{path} is damaged or no session file ({error}). Nothing was changed.")
