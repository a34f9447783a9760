"""The first tables of an SQLite file; what came later is in ``store.migrations``."""

from __future__ import annotations

AUDIT_NEVER_CHANGED = """CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
        BEGIN SELECT RAISE(ABORT, 'audit rows are never changed'); END"""

# Ids are AUTOINCREMENT so that none is ever used twice, even after the newest row was removed: an
# SSE client resumes by a tick's id.
FIRST_TABLES = (
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
    AUDIT_NEVER_CHANGED,
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
