"""What is true of PostgreSQL alone: claims by a session, lost servers, schemas, secrets."""

from __future__ import annotations

import builtins
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection
from sqlmodel import SQLModel

from controlplane.store_cli import run as run_store
from store import postgres, postgres_migrations, tables, writer
from store.db import Record, Store
from store.doubt import ADDED
from store.errors import (
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreForeign,
    StoreNewer,
    StoreOlder,
    StoreRefused,
    StoreUnreachable,
    StoreUnwritable,
)
from store.idempotency import KeptAnswer
from store.migrations import MIGRATIONS, Migration
from store.policies import PolicyConfig
from store.postgres import SKIPPED_IDS, PostgresDatabase
from store.records import Decision, EngineRecord, EngineSwitch, RawScrape, Tick
from tests.postgres_server import PASSWORD, PostgresServer
from tests.store_place import Place
from tests.store_records import a_decision, a_tick, an_audit_entry, an_override

assert tables  # importing it declares the tables

COLOUR = Migration(
    since="9.9.0",
    apply=lambda _: None,
    postgres=("ALTER TABLE markers ADD COLUMN colour TEXT NOT NULL DEFAULT 'grey'",),
)


@pytest.fixture
def url(postgres_url: str) -> str:
    return postgres_url


@pytest.fixture
def place(url: str) -> Place:
    return Place(url)


@pytest.fixture
def empty(postgres_server: PostgresServer) -> Iterator[Place]:
    """A database without a table."""
    with postgres_server.database() as url:
        yield Place(url)


@pytest.fixture
def restartable(postgres_server: PostgresServer, place: Place) -> Iterator[PostgresServer]:
    if not postgres_server.ours:
        pytest.skip("the server given by SPECDECK_TEST_POSTGRES is not stopped")
    yield postgres_server
    postgres_server.start()


def _put(store: Store, *records: Record) -> list[Record]:
    return store.write(records).result(timeout=30)


def _message(kind: type[StoreError], url: str, *, read_only: bool = False) -> str:
    with pytest.raises(kind) as caught:
        Store.open(url, read_only=read_only).close()
    error: BaseException | None = caught.value
    while error is not None:  # a traceback shows the causes too
        assert PASSWORD not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return str(caught.value)


def _seqs(ticks: list[Tick]) -> list[int]:
    return [tick.observation.seq for tick in ticks]


# one writer


def test_a_second_writer_is_refused_with_the_first_one_named(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "LOCK_WAIT_S", 0.1)
    with Store.open(url) as store:
        message = _message(StoreBusy, url)
        assert f"process {os.getpid()} on " in message
        assert "Stop that control plane" in message
        with Store.open(url, read_only=True) as reader:
            assert reader.engines() == []
        _put(store, a_tick())
    with Store.open(url) as store:
        assert store.last_seq("e1") == 1


_HOLDER = """
import sys, time
from store.db import Store
store = Store.open(sys.argv[1])
print("open", flush=True)
time.sleep(60)
"""


def test_a_killed_writer_leaves_no_claim_behind(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", _HOLDER, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "open\n"
            with monkeypatch.context() as patch:
                patch.setattr(postgres, "LOCK_WAIT_S", 0.1)
                assert f"process {holder.pid}" in _message(StoreBusy, url)
        finally:
            holder.send_signal(signal.SIGKILL)
    monkeypatch.setattr(postgres, "LOCK_WAIT_S", 30.0)
    with Store.open(url) as store:
        _put(store, a_tick())


def test_two_schemas_of_one_database_are_two_stores(place: Place) -> None:
    place.run("DROP SCHEMA IF EXISTS other CASCADE")
    place.run("CREATE SCHEMA other")
    with (
        Store.open(place.location) as one,
        Store.open(place.setting("search_path", "other")) as two,
    ):
        _put(one, a_tick(seq=1))
        assert two.last_seq("e1") == 0
        _put(two, a_tick(seq=7), an_audit_entry())
        assert one.last_seq("e1") == 1
        assert two.check_audit().rows == 1
    place.run("DROP SCHEMA other CASCADE")


# what an end costs


def test_after_an_unclean_end_no_id_of_a_tick_is_given_twice(url: str) -> None:
    with Store.open(url) as store:
        assert [tick.id for tick in _put(store, a_tick(seq=1), a_tick(seq=2))] == [1, 2]
    with Store.open(url) as store:
        assert _put(store, a_tick(seq=3))[0].id == 3
    code = f"{_HOLDER.replace('time.sleep(60)', 'import os; os._exit(9)')}"
    assert subprocess.run([sys.executable, "-c", code, url], check=False).returncode == 9
    with Store.open(url) as store:
        (tick,) = _put(store, a_tick(seq=4))
        assert tick.id == SKIPPED_IDS + 4
        assert _seqs(store.ticks("e1")) == [1, 2, 3, 4]


def test_what_people_rely_on_waits_for_the_disk_and_ticks_do_not(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels: list[str] = []
    real = PostgresDatabase.begin

    def spied(self: PostgresDatabase, connection: Connection, *, durable: bool) -> None:
        real(self, connection, durable=durable)
        levels.append(connection.exec_driver_sql("SHOW synchronous_commit").scalar_one())

    monkeypatch.setattr(writer, "SYNC_EVERY_S", 1000.0)
    monkeypatch.setattr(PostgresDatabase, "begin", spied)
    careless = place.setting("synchronous_commit", "off")
    for location in (place.location, careless):
        levels.clear()
        with Store.open(location) as store:
            seq = store.last_seq("e1")
            _put(store, a_tick(seq=seq + 1))
            _put(store, a_tick(seq=seq + 2), a_decision(seq=seq + 2))
            _put(store, an_override())
            _put(store, a_tick(seq=seq + 3))
        assert levels == ["off", "on", "on", "off"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_a_restarted_server_is_taken_up_again(
    restartable: PostgresServer, url: str, number: int
) -> None:
    with Store.open(url) as store:
        before = _put(store, a_tick(seq=1), an_audit_entry(1))
        assert store.last_seq("e1") == 1
        restartable.stop(number)
        with pytest.raises(StoreUnreachable, match="cannot be reached"):
            store.last_seq("e1")
        kept = store.write([a_tick(seq=2), a_decision(seq=2)], keep=True)
        with pytest.raises(StoreUnreachable):
            store.write([an_override()]).result(timeout=30)
        kept_too = store.write([a_tick(seq=3)], keep=True)
        assert "cannot be reached" in store.state.trouble
        assert not kept.done()
        restartable.start()
        assert kept.result(timeout=60)[0].id > before[0].id + SKIPPED_IDS
        assert kept_too.result(timeout=60)
        assert _seqs(store.ticks("e1")) == [1, 2, 3]
        assert store.overrides() == []
        _put(store, an_override(), an_audit_entry(2))
        assert store.state.trouble == ""
        assert store.check_audit().intact
    with Store.open(url) as store:
        assert _seqs(store.ticks("e1")) == [1, 2, 3]


def test_a_commit_that_was_not_answered_is_neither_lost_nor_done_twice(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server commits, and the connection ends before its answer."""
    cut: list[bool] = []
    real = psycopg.Connection.commit

    def commit(self: psycopg.Connection[Any]) -> None:
        if not cut or self.info.transaction_status is TransactionStatus.IDLE:
            real(self)
            return
        if cut.pop():
            real(self)
        place.run(
            "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity "
            f"WHERE pid = {self.info.backend_pid}"
        )
        self.execute("SELECT 1")

    monkeypatch.setattr(psycopg.Connection, "commit", commit)
    with Store.open(place.location) as store:
        _put(store, a_tick(seq=1))
        for seq, answered in ((2, True), (3, False)):
            cut.append(answered)
            parts = [a_tick(seq=seq), an_audit_entry(seq), a_decision(seq=seq)]
            kept = store.write(parts, keep=True).result(timeout=60)
            assert [type(one) for one in kept] == [type(one) for one in parts]
        cut.append(True)
        asked = store.write([an_override()])
        with pytest.raises(StoreUnreachable, match="is not known"):
            asked.result(timeout=60)
        _put(store, a_tick(seq=4))
        assert _seqs(store.ticks("e1")) == [1, 2, 3, 4]
        assert sorted(one.at_utc_ms for one in store.audit()) == [2, 3]
        assert store.check_audit().intact
        assert sorted(one.seq for one in store.decisions()) == [2, 3]


def test_of_every_kind_it_is_known_whether_it_may_be_stored_again() -> None:
    again = {Decision, EngineSwitch, PolicyConfig, EngineRecord, KeptAnswer, RawScrape}
    assert not again & set(ADDED)
    assert again | set(ADDED) == set(Record.__args__)


def test_a_database_taken_over_meanwhile_is_left_alone(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended() -> None:
        place.run(
            "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity "
            "WHERE application_name LIKE 'specdeck writer%'"
        )

    with Store.open(place.location) as first:
        _put(first, a_tick(seq=1))
        ended()
        with Store.open(place.location) as second:
            _put(second, a_tick(seq=2))
            kept = first.write([a_tick(seq=3)], keep=True)
            end = time.monotonic() + 60
            while "open for writing" not in first.state.trouble:
                assert time.monotonic() < end
                time.sleep(0.02)
            _put(second, a_tick(seq=4))
            assert not kept.done()
        with pytest.raises(StoreRefused, match="does not follow 4"):
            kept.result(timeout=60)
        assert _seqs(first.ticks("e1")) == [1, 2, 4]


def test_closing_without_a_server_ends_and_tells(restartable: PostgresServer, url: str) -> None:
    store = Store.open(url)
    _put(store, a_tick(seq=1))
    restartable.stop()
    kept: Future[Any] = store.write([a_tick(seq=2)], keep=True)
    store.close()
    assert isinstance(kept.exception(timeout=0), StoreUnreachable)


# the schema


def test_an_empty_database_becomes_one_of_ours(empty: Place) -> None:
    with empty.session() as session:
        assert postgres_migrations.migrate(session) == (0, len(MIGRATIONS))
        assert postgres_migrations.migrate(session) == (len(MIGRATIONS), len(MIGRATIONS))
    assert dict(empty.run("SELECT key, value FROM meta")) == {
        "application": "specdeck",
        "needs_specdeck": MIGRATIONS[-1].since,
        "schema_version": str(len(MIGRATIONS)),
    }


def test_the_migrated_database_has_the_declared_tables(place: Place) -> None:
    made: dict[str, set[tuple[str, bool]]] = {}
    for table, column, nullable in place.run(
        "SELECT table_name, column_name, is_nullable = 'YES' FROM information_schema.columns "
        "WHERE table_schema = 'public'"
    ):
        made.setdefault(table, set()).add((column, nullable))
    assert made == {
        table.name: {(column.name, bool(column.nullable)) for column in table.columns}
        for table in SQLModel.metadata.tables.values()
    }
    kinds = place.run(
        "SELECT DISTINCT data_type FROM information_schema.columns WHERE table_schema = 'public'"
    )
    assert {kind for (kind,) in kinds} == {"bigint", "text", "bytea"}


def test_an_older_database_is_upgraded_when_the_store_opens_it(
    empty: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(empty.location) as store:
        (tick,) = _put(store, a_tick())
    for name in ("inspect", "migrate"):
        known = getattr(postgres_migrations, name)
        monkeypatch.setitem(known.__kwdefaults__, "migrations", (*MIGRATIONS, COLOUR))
    count = len(MIGRATIONS)
    assert f"schema version {count}, older than {count + 1}" in _message(
        StoreOlder, empty.location, read_only=True
    )
    with Store.open(empty.location) as store:
        assert store.last_tick("e1") == tick
    assert ("9.9.0",) in empty.run("SELECT value FROM meta")
    monkeypatch.undo()
    for read_only in (False, True):
        message = _message(StoreNewer, empty.location, read_only=read_only)
        assert f"schema version {count + 1}" in message
        assert "9.9.0 or newer" in message


def test_a_failing_step_leaves_the_version_before_it(empty: Place) -> None:
    bad = Migration(
        since="9.9.1",
        apply=lambda _: None,
        postgres=("CREATE TABLE half_done ()", "DELETE FROM no"),
    )
    with empty.session() as session:
        with pytest.raises(psycopg.Error):
            postgres_migrations.migrate(session, migrations=(*MIGRATIONS, COLOUR, bad))
        assert postgres_migrations.schema_version(session) == len(MIGRATIONS) + 1
        assert session.execute("SELECT to_regclass('half_done')").fetchone() == (None,)


@pytest.mark.parametrize(
    "table", ["contacts (name TEXT)", "meta (key TEXT, value TEXT)", "meta (key INT)"]
)
def test_a_database_of_another_program_is_refused_and_left_as_it_was(
    empty: Place, table: str
) -> None:
    empty.run(f"CREATE TABLE {table}")
    for read_only in (False, True):
        message = _message(StoreForeign, empty.location, read_only=read_only)
        assert table.split()[0] in message
    assert empty.run("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(1,)]


def test_a_table_that_is_gone_is_damage(empty: Place) -> None:
    with Store.open(empty.location) as store:
        empty.run("DROP TABLE policies")
        with pytest.raises(StoreCorrupt, match="is damaged"):
            store.policies("e1")


def test_a_dump_taken_while_it_is_written_is_a_whole_store(
    postgres_server: PostgresServer, url: str, empty: Place
) -> None:
    dump, restore = postgres_server.program("pg_dump"), postgres_server.program("psql")
    if dump is None or restore is None:
        pytest.skip("pg_dump and psql are not installed beside the server")
    with Store.open(url) as store:
        ticks = _put(store, *(a_tick(seq=seq) for seq in range(1, 300)))
        _put(store, an_override(), an_audit_entry(1), an_audit_entry(2))
        text = subprocess.run(
            [dump, url.replace("+psycopg", "", 1)], check=True, capture_output=True
        ).stdout
        head = store.check_audit().head
    target = empty.location.replace("+psycopg", "", 1)
    quiet = ["-q", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null"]
    subprocess.run([restore, *quiet, target], check=True, input=text)
    with Store.open(empty.location) as copy:
        assert copy.ticks("e1", after_id=0) == ticks
        assert len(copy.overrides()) == 1
        assert copy.check_audit(head).intact
        (later,) = _put(copy, a_tick(seq=300))
        assert later.id > ticks[-1].id
        _put(copy, an_audit_entry(3))
        assert copy.check_audit(head).intact
    with pytest.raises(psycopg.Error, match="never deleted"):
        empty.run("DELETE FROM audit")


def test_commands_for_files_say_that_this_is_none(
    url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for arguments in (
        ["backup", str(tmp_path / "copy.db"), "--database", url],
        ["check", url],
        ["stats", "--database", url],
    ):
        assert run_store(arguments) == 5
        out, err = capfd.readouterr()
        assert out == ""
        assert "is no SQLite file" in err
        assert PASSWORD not in err
    assert list(tmp_path.iterdir()) == []


# what stands in the way


def test_a_url_says_what_is_wrong_with_it_without_its_password() -> None:
    for url, words in (
        (f"postgresql://op:{PASSWORD}@127.0.0.1:1/deck", "cannot be reached"),
        (f"postgresql+psycopg://op:{PASSWORD}@127.0.0.1:1/deck", "cannot be reached"),
        (f"postgresql+psycopg://op:a@{PASSWORD}@127.0.0.1:1/deck", "written %40"),
        (f"postgresql+psycopg://op:{PASSWORD}@127.0.0.1:1", "names no database"),
        (f"postgresql+asyncpg://op:{PASSWORD}@127.0.0.1:1/deck", "postgresql+psycopg://"),
        (f"postgresql+psycopg://op:{PASSWORD}@127.0.0.1:port/deck", "database URL"),
        (f"postgresql://op@127.0.0.1:1/deck?password={PASSWORD}&no_such=1", "no_such"),
    ):
        for read_only in (False, True):
            assert words in _message(StoreError, url, read_only=read_only), url


def test_the_name_of_a_store_has_no_password(url: str) -> None:
    with Store.open(url) as store:
        assert "/specdeck_test_" in store.name
        assert PASSWORD not in store.name
        assert "?" not in store.name
        with pytest.raises(StoreError, match="pg_dump"):
            _ = store.path


def test_a_wrong_password_is_refused_and_not_repeated(
    postgres_server: PostgresServer, place: Place
) -> None:
    if not postgres_server.ours:
        pytest.skip("needs a server of its own")
    place.run("DROP ROLE IF EXISTS guarded")
    place.run("CREATE ROLE guarded LOGIN PASSWORD 'another'")
    message = _message(StoreUnwritable, place.location.replace("//op:", "//guarded:"))
    assert 'password authentication failed for user "guarded"' in message


def test_a_role_that_may_not_make_tables_is_told_so(
    postgres_server: PostgresServer, empty: Place
) -> None:
    if not postgres_server.ours:
        pytest.skip("needs a server of its own")
    empty.run("DROP ROLE IF EXISTS visitor")
    empty.run("CREATE ROLE visitor LOGIN")
    empty.run("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    message = _message(StoreUnwritable, empty.location.replace("//op:", "//visitor:"))
    assert "owner of the database" in message


def test_a_read_only_server_is_told_from_others(place: Place) -> None:
    read_only = place.setting("default_transaction_read_only", "on")
    assert "is read-only" in _message(StoreUnwritable, read_only)
    with Store.open(read_only, read_only=True) as store:
        assert store.engines() == []


def test_a_missing_driver_is_named_with_its_remedy(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any, **given: Any) -> Any:
        if name == "psycopg":
            raise ImportError(name)
        return real(name, *more, **given)

    monkeypatch.setattr(builtins, "__import__", without)
    assert "pip install 'specdeck[postgres]'" in _message(StoreError, url)


def test_a_reader_cannot_write(url: str) -> None:
    with (
        Store.open(url, read_only=True) as store,
        store._reading() as connection,
        pytest.raises(Exception, match="read-only"),
    ):
        connection.exec_driver_sql("DELETE FROM meta")


def test_more_readers_than_sessions_take_turns(url: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with Store.open(url) as store, ThreadPoolExecutor(20) as pool:
        _put(store, a_tick())
        reads = [pool.submit(store.last_seq, "e1") for _ in range(200)]
        wait(reads, timeout=60)
        assert {read.result() for read in reads} == {1}
