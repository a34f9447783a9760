"""The schema's number: upgrades step by step, a newer file refused, the tables as declared."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlmodel import SQLModel

from store import migrations, sqlite, tables
from store.db import Store
from store.errors import StoreForeign, StoreNewer, StoreOlder
from store.migrations import APPLICATION_ID, MIGRATIONS, Migration, migrate, schema_version
from tests.store_records import a_policy, a_tick, an_audit_entry

assert tables  # importing it declares the tables


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "raw.db", isolation_level=None)) as connection:
        yield connection


def _add_colour(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE markers ADD COLUMN colour TEXT NOT NULL DEFAULT 'grey'")


def _fail_half_way(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE half_done (id INTEGER)")
    connection.execute("DELETE FROM markers")
    raise RuntimeError("no")


COLOUR = Migration(
    since="9.9.0",
    apply=_add_colour,
    postgres=("ALTER TABLE markers ADD COLUMN colour TEXT NOT NULL DEFAULT 'grey'",),
)


def test_an_empty_file_becomes_one_of_ours(raw: sqlite3.Connection) -> None:
    assert migrate(raw) == (0, len(MIGRATIONS))
    assert raw.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
    assert raw.execute("SELECT value FROM meta WHERE key = 'needs_specdeck'").fetchone() == (
        MIGRATIONS[-1].since,
    )
    assert migrate(raw) == (len(MIGRATIONS), len(MIGRATIONS))


def test_the_migrated_file_has_the_declared_tables(raw: sqlite3.Connection) -> None:
    migrate(raw)
    made = {
        name: {(column, bool(not_null), bool(key)) for _, column, _, not_null, _, key in columns}
        for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        if not name.startswith("sqlite_")
        and (columns := raw.execute(f"PRAGMA table_info({name})").fetchall())
    }
    declared = {
        table.name: {
            # An INTEGER PRIMARY KEY is never null, though SQLite does not list it so.
            (
                column.name,
                not column.nullable and not (column.primary_key and column.name in ("id", "ref")),
                column.primary_key,
            )
            for column in table.columns
        }
        for table in SQLModel.metadata.tables.values()
    }
    assert made == declared


def test_an_older_file_is_upgraded_and_keeps_its_rows(raw: sqlite3.Connection) -> None:
    migrate(raw, migrations=MIGRATIONS[:1])
    raw.execute("INSERT INTO markers (engine_id, seq, at_utc_ms, body) VALUES ('e', 1, 2, '{}')")
    assert migrate(raw, migrations=(MIGRATIONS[0], COLOUR)) == (1, 2)
    assert raw.execute("SELECT engine_id, colour FROM markers").fetchall() == [("e", "grey")]
    assert raw.execute("SELECT value FROM meta").fetchall() == [("9.9.0",)]


def test_a_failing_step_leaves_the_version_and_the_rows_before_it(raw: sqlite3.Connection) -> None:
    migrate(raw)
    raw.execute("INSERT INTO markers (engine_id, seq, at_utc_ms, body) VALUES ('e', 1, 2, '{}')")
    steps = (*MIGRATIONS, COLOUR, Migration(since="9.9.1", apply=_fail_half_way, postgres=()))
    with pytest.raises(RuntimeError):
        migrate(raw, migrations=steps)
    assert schema_version(raw) == len(MIGRATIONS) + 1
    assert raw.execute("SELECT colour FROM markers").fetchall() == [("grey",)]
    assert raw.execute("SELECT name FROM sqlite_master WHERE name = 'half_done'").fetchall() == []


def test_an_older_file_is_upgraded_when_the_store_opens_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    with Store.open(path) as store:
        (tick,) = store.write([a_tick()]).result(timeout=10)
        store.write([a_policy(), an_audit_entry()]).result(timeout=10)
    steps = (*MIGRATIONS, COLOUR)
    for module in (migrations, sqlite):
        for name in ("inspect", "migrate"):
            known = getattr(migrations, name)
            monkeypatch.setitem(known.__kwdefaults__, "migrations", steps)
            assert getattr(module, name) is known
    with pytest.raises(
        StoreOlder, match=f"schema version {len(MIGRATIONS)}, older than {len(steps)}"
    ):
        Store.open(path, read_only=True)
    with Store.open(path) as store:
        assert store.last_tick("e1") == tick
        assert store.policy("e1") == a_policy()
        assert len(store.audit()) == 1
    with Store.open(path, read_only=True) as store:
        assert store.last_tick("e1") == tick


def test_a_newer_file_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with Store.open(path) as store:
        store.write([a_tick()]).result(timeout=10)
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        migrate(raw, migrations=(*MIGRATIONS, COLOUR))
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(StoreNewer) as caught:
            Store.open(path, read_only=read_only)
        message = str(caught.value)
        assert f"schema version {len(MIGRATIONS) + 1}" in message
        assert "9.9.0 or newer" in message
        assert "Nothing was changed" in message
    assert path.read_bytes() == before


def test_a_newer_file_without_our_meta_table_is_refused_too(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        raw.execute("PRAGMA user_version = 40")
    with pytest.raises(StoreNewer, match="schema version 40"):
        Store.open(path)


def test_a_database_of_another_program_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "contacts.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("CREATE TABLE contacts (name TEXT)")
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(StoreForeign, match="another program"):
            Store.open(path, read_only=read_only)
    assert path.read_bytes() == before


def test_an_empty_database_file_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.touch()
    with Store.open(path) as store:
        store.write([a_tick()]).result(timeout=10)
    with Store.open(path) as store:
        assert store.last_seq("e1") == 1
