"""Numbered migrations of the database file, and the check that a file is ours.

The file's ``PRAGMA user_version`` is the number of migrations it has seen.  Rules:

- A released migration is never edited; a change is a new one at the end.
- A field that is new in a record needs no column, but it needs a number: an older specdeck would
  refuse the unknown key row by row, and a raised version lets it refuse the file in one sentence.
- A default that a ``Tick`` (or a record inside it) has once had stays: packed ticks leave defaults
  out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from store.audit_chain import START, link
from store.errors import StoreForeign, StoreNewer, StoreOlder
from store.records import AuditEntry

APPLICATION_ID = 0x73706463
"""``PRAGMA application_id`` of our files: "spdc"."""


@dataclass(frozen=True)
class Migration:
    """One step of the schema.

    Args:
        since: the first specdeck release that can read the result.
        apply: changes the schema inside the transaction that is open.
    """

    since: str
    apply: Callable[[sqlite3.Connection], None]


_AUDIT_NEVER_CHANGED = """CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
        BEGIN SELECT RAISE(ABORT, 'audit rows are never changed'); END"""

# Ids are AUTOINCREMENT so that none is ever used twice, even after the newest row was removed: an
# SSE client resumes by a tick's id.
_FIRST_TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL)",
    """CREATE TABLE engine_refs (
        ref INTEGER PRIMARY KEY AUTOINCREMENT,
        engine_id TEXT NOT NULL UNIQUE)""",
    """CREATE TABLE engines (
        engine_id TEXT PRIMARY KEY NOT NULL,
        added_utc_ms INTEGER NOT NULL,
        body TEXT NOT NULL)""",
    """CREATE TABLE ticks (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        engine_ref INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        at_utc_ms INTEGER NOT NULL,
        is_gap INTEGER NOT NULL,
        template_id INTEGER,
        body BLOB NOT NULL)""",
    "CREATE UNIQUE INDEX ticks_by_seq ON ticks (engine_ref, seq)",
    "CREATE INDEX ticks_by_id ON ticks (engine_ref, id)",
    """CREATE TABLE tick_templates (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        engine_ref INTEGER NOT NULL,
        body BLOB NOT NULL)""",
    "CREATE INDEX tick_templates_by_engine ON tick_templates (engine_ref, id)",
    """CREATE TABLE scrapes (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        engine_ref INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        at_utc_ms INTEGER NOT NULL,
        path TEXT NOT NULL,
        body BLOB NOT NULL)""",
    "CREATE INDEX scrapes_by_seq ON scrapes (engine_ref, seq)",
    """CREATE TABLE decisions (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        engine_id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        at_utc_ms INTEGER NOT NULL,
        to_tier TEXT NOT NULL,
        outcome TEXT NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (engine_id, seq))""",
    "CREATE INDEX decisions_by_engine ON decisions (engine_id, id)",
    """CREATE TABLE switches (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        engine_id TEXT NOT NULL,
        boot_id TEXT NOT NULL,
        dp_rank INTEGER NOT NULL,
        number INTEGER NOT NULL,
        seen_utc_ms INTEGER NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (engine_id, boot_id, dp_rank, number))""",
    "CREATE INDEX switches_by_engine ON switches (engine_id, id)",
    """CREATE TABLE overrides (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        engine_id TEXT NOT NULL,
        created_utc_ms INTEGER NOT NULL,
        expires_utc_ms INTEGER NOT NULL,
        ended_utc_ms INTEGER,
        body TEXT NOT NULL)""",
    "CREATE INDEX overrides_by_engine ON overrides (engine_id, id)",
    """CREATE TABLE policies (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        engine_id TEXT NOT NULL,
        version INTEGER NOT NULL,
        created_utc_ms INTEGER NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (engine_id, version))""",
    """CREATE TABLE audit (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        at_utc_ms INTEGER NOT NULL,
        actor TEXT NOT NULL,
        action TEXT NOT NULL,
        target TEXT NOT NULL,
        detail TEXT NOT NULL)""",
    _AUDIT_NEVER_CHANGED,
    """CREATE TRIGGER audit_is_never_deleted BEFORE DELETE ON audit
        BEGIN SELECT RAISE(ABORT, 'audit rows are never deleted'); END""",
    # INSERT OR REPLACE removes a row without firing the delete trigger, and an id in the past would
    # slip a row between others.  NEW.id is -1 while SQLite has still to choose the id.
    """CREATE TRIGGER audit_is_only_appended BEFORE INSERT ON audit
        WHEN NEW.id <> -1 AND NEW.id <= (SELECT max(id) FROM audit)
        BEGIN SELECT RAISE(ABORT, 'audit rows are only appended'); END""",
    """CREATE TABLE markers (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        engine_id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        at_utc_ms INTEGER NOT NULL,
        body TEXT NOT NULL)""",
    "CREATE INDEX markers_by_seq ON markers (engine_id, seq)",
    """CREATE TABLE sessions (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        engine_id TEXT NOT NULL,
        name TEXT NOT NULL,
        started_utc_ms INTEGER NOT NULL,
        ended_utc_ms INTEGER,
        body TEXT NOT NULL)""",
    """CREATE TABLE benchmark_points (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        engine_id TEXT NOT NULL,
        setup_key TEXT NOT NULL,
        at_utc_ms INTEGER NOT NULL,
        body TEXT NOT NULL)""",
    "CREATE INDEX benchmark_points_by_key ON benchmark_points (setup_key, id)",
    """CREATE TABLE cost_tables (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        setup_key TEXT NOT NULL,
        created_utc_ms INTEGER NOT NULL,
        body TEXT NOT NULL)""",
    "CREATE INDEX cost_tables_by_key ON cost_tables (setup_key, id)",
)


def _first_tables(connection: sqlite3.Connection) -> None:
    for statement in _FIRST_TABLES:
        connection.execute(statement)


def _inputs(connection: sqlite3.Connection) -> None:
    """What a controller takes in beside observations; a sample also counts finished requests."""
    connection.execute(
        """CREATE TABLE inputs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        engine_ref INTEGER NOT NULL,
        after_seq INTEGER NOT NULL,
        kind TEXT NOT NULL,
        at_utc_ms INTEGER NOT NULL,
        body BLOB NOT NULL)"""
    )
    connection.execute("CREATE INDEX inputs_by_seq ON inputs (engine_ref, after_seq, id)")


def _policy_rules(connection: sqlite3.Connection) -> None:
    """Policy versions name the rules they run under; policies have a goodput kind."""


def _audit_chain(connection: sqlite3.Connection) -> None:
    """Each audit row carries a hash over itself and the row before; rows that are there get one."""
    connection.execute("ALTER TABLE audit ADD COLUMN hash TEXT NOT NULL DEFAULT ''")
    connection.execute("DROP TRIGGER audit_is_never_changed")
    before = START
    rows = connection.execute(
        "SELECT id, at_utc_ms, actor, action, target, detail FROM audit ORDER BY id"
    ).fetchall()
    for row in rows:
        names = ("id", "at_utc_ms", "actor", "action", "target", "detail")
        before = link(before, AuditEntry(**dict(zip(names, row, strict=True))))
        connection.execute("UPDATE audit SET hash = ? WHERE id = ?", (before, row[0]))
    connection.execute(_AUDIT_NEVER_CHANGED)


def _kept_answers(connection: sqlite3.Connection) -> None:
    """Answers under idempotency keys outlive a restart; an engine says where it was found."""
    connection.execute(
        """CREATE TABLE kept_answers (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        caller TEXT NOT NULL,
        key TEXT NOT NULL,
        at_utc_ms INTEGER NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (caller, key))"""
    )
    connection.execute("CREATE INDEX kept_answers_by_age ON kept_answers (at_utc_ms)")


MIGRATIONS: tuple[Migration, ...] = (
    Migration(since="0.1.0", apply=_first_tables),
    Migration(since="0.1.0", apply=_inputs),
    Migration(since="0.1.0", apply=_policy_rules),
    Migration(since="0.1.0", apply=_audit_chain),
    Migration(since="0.1.0", apply=_kept_answers),
)


def schema_version(connection: sqlite3.Connection) -> int:
    """The number of migrations the file has seen; 0 for an empty one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def inspect(
    connection: sqlite3.Connection,
    path: Path,
    *,
    read_only: bool,
    migrations: Sequence[Migration] = MIGRATIONS,
) -> int:
    """Whether this specdeck may use the file; changes nothing.

    Returns:
        The file's schema version.

    Raises:
        StoreForeign: a database of another program.
        StoreNewer: a schema this build does not know.
        StoreOlder: an older schema that a read-only opener cannot upgrade.
    """
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    version = schema_version(connection)
    tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    if application != APPLICATION_ID and (application or version or tables):
        raise StoreForeign(
            f"{path} is an SQLite database of another program, not specdeck's. "
            "Nothing was changed. Give specdeck a file of its own."
        )
    if version > len(migrations):
        raise StoreNewer(
            f"{path} has schema version {version}; this specdeck knows up to {len(migrations)}. "
            f"Nothing was changed. Open it with specdeck {_needed_release(connection)}, or give "
            "this one another file."
        )
    if read_only and version < len(migrations):
        raise StoreOlder(
            f"{path} has schema version {version}, older than {len(migrations)}, and was opened "
            "read-only. Open it once for writing (start the control plane on it, or on a copy) to "
            "upgrade it."
        )
    return version


def _needed_release(connection: sqlite3.Connection) -> str:
    try:
        row = connection.execute("SELECT value FROM meta WHERE key = 'needs_specdeck'").fetchone()
    except sqlite3.Error:  # a far newer schema may have no such table
        row = None
    return f"{row[0]} or newer" if row else "of a newer release"


def migrate(
    connection: sqlite3.Connection, *, migrations: Sequence[Migration] = MIGRATIONS
) -> tuple[int, int]:
    """Bring the file to the newest schema, one transaction per step.

    The connection must be in autocommit (``isolation_level=None``).  A step that fails leaves the
    file at the version before it.

    Returns:
        The version before and after.
    """
    before = schema_version(connection)
    for number, migration in enumerate(migrations, start=1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Asked again under the lock: another opener may have done the step meanwhile.
            if schema_version(connection) < number:
                migration.apply(connection)
                connection.execute(
                    "INSERT INTO meta (key, value) VALUES ('needs_specdeck', ?) "
                    "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                    (migration.since,),
                )
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {number}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
    return before, schema_version(connection)
