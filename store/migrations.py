"""Numbered migrations of the database file, and the check that a file is ours.

The file's ``PRAGMA user_version`` is the number of migrations it has seen.  Rules:

- A released migration is never edited; a change is a new one at the end.
- A field that is new in a record needs no column, but it needs a number: an older specdeck would
  refuse the unknown key row by row, and a raised version lets it refuse the file in one sentence.
- A default that a ``Tick`` (or a record inside it) has once had stays: packed ticks leave defaults
  out.
- Every step is written for both databases; ``store.postgres_migrations`` takes PostgreSQL's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from store import postgres_schema, sqlite_schema
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
        apply: changes an SQLite file's schema inside the transaction that is open.
        postgres: the same in PostgreSQL's statements.
    """

    since: str
    apply: Callable[[sqlite3.Connection], None]
    postgres: tuple[str, ...]


def _first_tables(connection: sqlite3.Connection) -> None:
    for statement in sqlite_schema.FIRST_TABLES:
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
    connection.execute(sqlite_schema.AUDIT_NEVER_CHANGED)


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


# PostgreSQL came after the audit's chain, so its first tables have the column already.
def _marker_ranges(connection: sqlite3.Connection) -> None:
    """A marker may speak of a range of observations, as that of down-sampling does."""


def _fleet_rules(connection: sqlite3.Connection) -> None:
    """What was decided for a group or the fleet holds for engines to come, over a restart too."""
    connection.execute(
        """CREATE TABLE fleet_rules (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        created_utc_ms INTEGER NOT NULL,
        ended_utc_ms INTEGER,
        body TEXT NOT NULL)"""
    )


MIGRATIONS: tuple[Migration, ...] = (
    Migration(since="0.1.0", apply=_first_tables, postgres=postgres_schema.FIRST_TABLES),
    Migration(since="0.1.0", apply=_inputs, postgres=postgres_schema.INPUTS),
    Migration(since="0.1.0", apply=_policy_rules, postgres=()),
    Migration(since="0.1.0", apply=_audit_chain, postgres=()),
    Migration(since="0.1.0", apply=_kept_answers, postgres=postgres_schema.KEPT_ANSWERS),
    Migration(since="0.1.0", apply=_marker_ranges, postgres=()),
    Migration(since="0.1.0", apply=_fleet_rules, postgres=postgres_schema.FLEET_RULES),
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
    judge(str(path), version, _needed_release(connection), len(migrations), read_only=read_only)
    return version


def judge(name: str, version: int, needed: str, known: int, *, read_only: bool) -> None:
    """Refuse a schema that this build cannot use.

    Args:
        needed: the release that reads it, in words.
        known: the newest version that this build knows.

    Raises:
        StoreNewer, StoreOlder.
    """
    if version > known:
        raise StoreNewer(
            f"{name} has schema version {version}; this specdeck knows up to {known}. Nothing was "
            f"changed. Open it with specdeck {needed}, or give this one another database."
        )
    if read_only and version < known:
        raise StoreOlder(
            f"{name} has schema version {version}, older than {known}, and was opened read-only. "
            "Open it once for writing (start the control plane on it, or on a copy) to upgrade it."
        )


def _needed_release(connection: sqlite3.Connection) -> str:
    try:
        row = connection.execute("SELECT value FROM meta WHERE key = 'needs_specdeck'").fetchone()
    except sqlite3.Error:  # a far newer schema may have no such table
        row = None
    return release(row[0] if row else None)


def release(needed: str | None) -> str:
    """The release that a database asks for, in words; None if it names none."""
    return f"{needed} or newer" if needed else "of a newer release"


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
