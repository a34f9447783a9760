"""The writer thread: each write on its own, nothing acknowledged is lost, trouble is told."""

from __future__ import annotations

import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import wait
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection

from store import sqlite, writer
from store.db import Store
from store.errors import StoreBusy, StoreOverloaded, StoreRefused, StoreUnwritable
from store.records import RawScrape, Tick
from store.sqlite import SKIPPED_IDS
from store.sqlite_file import SqliteFile
from tests.store_place import Place
from tests.store_records import a_decision, a_policy, a_tick, an_audit_entry, an_override, busy_day


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def _seqs(ticks: list[Tick]) -> list[int]:
    return [tick.observation.seq for tick in ticks]


def test_writes_that_wait_together_still_succeed_or_fail_on_their_own(place: Place) -> None:
    with Store.open(place.location) as store:
        with place.held():
            writes = [store.write([a_tick(seq=seq)]) for seq in (1, 2, 2, 3, 1, 4)]
            writes.append(store.write([a_decision(seq=9), a_tick(seq=4)]))
            writes.append(store.write([a_decision(seq=5), a_tick(seq=5)]))
            assert not writes[0].done()
        wait(writes, timeout=20)
        failed = [index for index, write in enumerate(writes) if write.exception() is not None]
        assert failed == [2, 4, 6]
        assert isinstance(writes[2].exception(), StoreRefused)
        assert _seqs(store.ticks("e1")) == [1, 2, 3, 4, 5]
        assert [decision.seq for decision in store.decisions()] == [5]
        ids = [write.result()[-1].id for index, write in enumerate(writes) if index not in failed]
        assert ids == [tick.id for tick in store.ticks("e1")]


def test_waiting_writes_share_transactions(path: Path) -> None:
    with Store.open(path) as store:
        with Place(str(path)).held():
            writes = [store.write([a_tick(seq=seq)]) for seq in range(1, 201)]
            # The log grows with each transaction, so few transactions make a short log.
        wait(writes, timeout=20)
        together = sqlite.wal_of(path).stat().st_size
        for seq in range(201, 401):
            store.write([a_tick(seq=seq)]).result(timeout=10)
        assert sqlite.wal_of(path).stat().st_size > 5 * together
        assert _seqs(store.ticks("e1")) == list(range(1, 401))


def test_a_full_queue_refuses_ticks_first_and_loses_nothing_it_took(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "TICK_LIMIT", 20)
    monkeypatch.setattr(writer, "QUEUE_LIMIT", 30)
    monkeypatch.setattr(writer, "GROUP_LIMIT", 1)
    with Store.open(place.location) as store:
        with place.held():
            ticks = [store.write([a_tick(seq=1)])]
            while store.waiting:  # the thread takes it up and waits for the other program
                time.sleep(0.001)
            ticks += [store.write([a_tick(seq=seq)]) for seq in range(2, 60)]
            audits = [store.write([an_audit_entry(seq)]) for seq in range(1, 60)]
            assert store.waiting == 30
            message = str(ticks[-1].exception(timeout=0))
        wait([*ticks, *audits], timeout=20)
        assert "20 writes behind" in message
        assert "not recorded" in message
        kinds = {type(write.exception()) for write in [*ticks, *audits]}
        assert kinds == {type(None), StoreOverloaded}
        assert len(store.ticks("e1")) == sum(write.exception() is None for write in ticks) == 21
        assert len(store.audit()) == sum(write.exception() is None for write in audits) == 10
        store.write([a_tick(seq=100)]).result(timeout=10)


def test_closing_finishes_what_is_queued(place: Place) -> None:
    store = Store.open(place.location)
    writes = [store.write([tick]) for tick in busy_day(500, ranks=1)]
    store.close()
    assert all(write.result(timeout=0) for write in writes)
    with Store.open(place.location) as again:
        assert again.last_seq("h200-0") == 500
        assert len(again.ticks("h200-0", limit=600)) == 500


def test_a_write_once_handed_over_cannot_be_cancelled(place: Place) -> None:
    with Store.open(place.location) as store:
        with place.held():
            write = store.write([a_tick()])
            assert not write.cancel()
        write.result(timeout=10)
        assert store.last_seq("e1") == 1


def test_many_threads_may_write_at_once(place: Place) -> None:
    with Store.open(place.location) as store:

        def engine(name: str) -> None:
            for seq in range(1, 41):
                store.write([a_tick(name, seq)]).result(timeout=20)

        threads = [threading.Thread(target=engine, args=(f"e{n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
        assert all(_seqs(store.ticks(f"e{n}")) == list(range(1, 41)) for n in range(8))
        assert [t.id for t in store.ticks_after(0, 1000)] == list(range(1, 321))


def test_a_database_locked_by_another_program_fails_the_write_and_not_the_next(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.give_up_soon(monkeypatch)
    with Store.open(place.location) as store:
        with place.held(), pytest.raises(StoreBusy, match="locked by another"):
            store.write([a_tick(seq=1)]).result(timeout=10)
        assert store.ticks("e1") == []
        store.write([a_tick(seq=1)]).result(timeout=10)
        assert _seqs(store.ticks("e1")) == [1]


def test_a_disk_that_takes_no_more_fails_the_write_and_loses_nothing(path: Path) -> None:
    scrape = RawScrape(
        engine_id="e1",
        seq=2,
        at_utc_ms=1,
        path="/metrics",
        text="".join(f"sglang:number_{n * n * 7919} {n}\n" for n in range(40_000)),
    )
    with Store.open(path) as store:
        store.write([a_tick(seq=1)]).result(timeout=10)
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        room = sqlite.wal_of(path).stat().st_size + 20_000
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, old[1]))
        try:
            with pytest.raises(StoreUnwritable, match="disk"):
                store.write([a_decision(seq=2), scrape]).result(timeout=10)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
        assert store.decisions() == store.scrapes("e1", 0, 9) == []
        store.write([a_decision(seq=2), scrape]).result(timeout=10)
        assert store.scrapes("e1", 0, 9) == [scrape]
        assert _seqs(store.ticks("e1")) == [1]


def test_a_full_disk_is_called_so(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("CREATE TABLE t (x)")
        raw.execute("PRAGMA max_page_count = 3")
        with pytest.raises(sqlite3.OperationalError) as caught:
            raw.execute("INSERT INTO t VALUES (zeroblob(100000))")
    explained = sqlite.explain(caught.value, path)
    assert isinstance(explained, StoreUnwritable)
    assert "the disk is full" in str(explained)


def test_what_people_rely_on_waits_for_the_disk_and_ticks_do_not(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels: list[int] = []

    def spied(_: SqliteFile, connection: Connection, *, durable: bool) -> None:
        sqlite.begin(connection, durable=durable)
        levels.append(connection.exec_driver_sql("PRAGMA synchronous").scalar_one())

    monkeypatch.setattr(writer, "SYNC_EVERY_S", 1000.0)
    monkeypatch.setattr(SqliteFile, "begin", spied)
    scrape = RawScrape(engine_id="e1", seq=1, at_utc_ms=1, path="/metrics", text="x")
    with Store.open(path) as store:
        for records in (
            [a_tick(seq=1), scrape],
            [a_tick(seq=2), a_decision(seq=2)],
            [an_override()],
            [a_policy()],
            [an_audit_entry()],
            [a_tick(seq=3)],
        ):
            store.write(records).result(timeout=10)
        normal, full = 1, 2
        assert levels == [normal, full, full, full, full, normal]
        monkeypatch.setattr(writer, "SYNC_EVERY_S", 0.0)
        store.write([a_tick(seq=4)]).result(timeout=10)
        assert levels[-1] == full


def test_ticks_reach_the_disk_soon_even_when_nothing_follows_them(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def then_soon(_: SqliteFile, connection: Connection, *, durable: bool) -> None:
        assert not durable
        sqlite.begin(connection, durable=durable)
        monkeypatch.setattr(writer, "SYNC_EVERY_S", 0.2)

    monkeypatch.setattr(writer, "SYNC_EVERY_S", 1000.0)
    monkeypatch.setattr(SqliteFile, "begin", then_soon)
    with Store.open(path) as store:
        store.write([a_tick(seq=1)]).result(timeout=10)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            # Immutable: SQLite looks at the file alone and not at the log beside it.
            with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as file_alone:
                if file_alone.execute("SELECT count(*) FROM ticks").fetchone() == (1,):
                    return
            time.sleep(0.05)
    pytest.fail("the tick stayed in the write-ahead log")


_VICTIM = """
import sys
from store.db import Store
from tests.store_records import a_decision, a_tick, an_audit_entry, an_override
store = Store.open(sys.argv[1])
seq = store.last_seq("e1")
while True:
    writes = []
    for _ in range(5):
        seq += 1
        writes.append(store.write([a_tick(seq=seq)]))
    writes.append(store.write([a_decision(seq=seq), an_override(), an_audit_entry(seq)]))
    for write in writes:
        print(*(f"{type(r).__name__}:{r.id}" for r in write.result()), flush=True)
"""


def test_sigkill_loses_nothing_that_was_acknowledged(place: Place) -> None:
    acknowledged: set[str] = set()
    for lines in (7, 150, 401):
        command = [sys.executable, "-c", _VICTIM, place.location]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
            assert victim.stdout is not None
            for _ in range(lines):
                acknowledged.update(victim.stdout.readline().split())
            victim.send_signal(signal.SIGKILL)
            rest = victim.stdout.read().splitlines(keepends=True)
        # The last line may be torn by the kill; the others were acknowledged as well.
        for line in rest:
            if line.endswith("\n"):
                acknowledged.update(line.split())
        assert victim.returncode == -signal.SIGKILL
    with Store.open(place.location) as store:
        ticks = store.ticks("e1", limit=100_000)
        kept = {f"Tick:{tick.id}" for tick in ticks}
        kept |= {f"Decision:{row.id}" for row in store.decisions(limit=100_000)}
        kept |= {f"Override:{row.id}" for row in store.overrides()}
        kept |= {f"AuditEntry:{row.id}" for row in store.audit(limit=100_000)}
    assert len(acknowledged) > 558
    assert acknowledged <= kept
    assert _seqs(ticks) == list(range(1, len(ticks) + 1))


def test_a_lost_end_of_the_log_costs_the_newest_ticks_and_no_id_is_given_twice(
    path: Path, tmp_path: Path
) -> None:
    crashed = tmp_path / "crashed" / "s.db"
    crashed.parent.mkdir()
    with Store.open(path) as store:
        for seq in range(1, 101):
            seen = store.write([a_tick(seq=seq)]).result(timeout=10)[0].id
        shutil.copy(path, crashed)
        log = sqlite.wal_of(path).read_bytes()
        sqlite.wal_of(crashed).write_bytes(log[: len(log) * 6 // 10])
    with Store.open(crashed) as store:
        kept = _seqs(store.ticks("e1"))
        assert kept == list(range(1, len(kept) + 1))
        assert 0 < len(kept) < 100
        (tick,) = store.write([a_tick(seq=len(kept) + 1)]).result(timeout=10)
        assert tick.id == kept[-1] + SKIPPED_IDS + 1 > seen
        assert store.ticks_after(seen, 10) == [tick]


def test_a_clean_end_leaves_no_hole_in_the_ids(path: Path) -> None:
    for seq in (1, 2, 3):
        with Store.open(path) as store:
            (tick,) = store.write([a_tick(seq=seq)]).result(timeout=10)
            assert tick.id == seq
