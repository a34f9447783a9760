"""A file that cannot be written for a while: what may wait does, in order, within bounds."""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from store import backlog, sqlite, writer
from store.db import Store
from store.errors import StoreBusy, StoreError, StoreOverloaded, StoreRefused, StoreUnwritable
from store.records import Tick
from tests.store_records import a_decision, a_tick, an_audit_entry

HOLDER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a lock only as long as a test needs; retry soon."""
    monkeypatch.setattr(sqlite, "BUSY_MS", 50)
    monkeypatch.setattr(backlog, "RETRY_S", 0.02)
    monkeypatch.setattr(writer, "RETRY_S", 0.02)


@contextmanager
def locked_by_another_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A second process inside ``BEGIN EXCLUSIVE``; it lets go at the end."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.stdin.close()


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def _seqs(store: Store) -> list[int]:
    return [tick.observation.seq for tick in store.ticks("e1")]


def _driver(store: Store) -> sqlite3.Connection:
    assert store._writer is not None
    driver = store._writer._line.connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


def _no_more_pages(store: Store) -> None:
    """The real SQLITE_FULL: the file may not grow by a single page."""
    pages = _driver(store).execute("PRAGMA page_count").fetchone()[0]
    _driver(store).execute(f"PRAGMA max_page_count = {pages}")


def _room_again(store: Store) -> None:
    _driver(store).execute("PRAGMA max_page_count = 4294967294")


def test_writes_that_may_wait_are_stored_in_order_once_another_process_lets_go(
    path: Path,
) -> None:
    with Store.open(path) as store:
        store.write([a_tick(seq=1)]).result(timeout=20)
        with locked_by_another_process(path):
            kept = [store.write([a_tick(seq=seq)], keep=True) for seq in range(2, 700)]
            until(lambda: bool(store.state.trouble))
            kept.append(store.write([a_decision(seq=700), a_tick(seq=700)], keep=True))
            told = store.write([an_audit_entry()])
            assert isinstance(told.exception(timeout=60), StoreBusy)
            assert not any(one.done() for one in kept)
            assert store.state.waiting == 699
            assert "locked by another program" in store.state.trouble
        stored = [one.result(timeout=60)[-1] for one in kept]
        ids = [tick.id for tick in stored if isinstance(tick, Tick)]
        assert len(ids) == 699
        assert ids == sorted(ids)
        until(lambda: not store.state.trouble)
        assert store.state == ("", 0, 0)
        assert [tick.observation.seq for tick in store.ticks("e1", limit=1000)] == [*range(1, 701)]
        assert [one.seq for one in store.decisions()] == [700]
        assert store.audit() == []


def test_a_full_disk_makes_records_wait_and_space_brings_them_in(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "specdeck.store")
    with Store.open(path) as store:
        store.write([a_tick(seq=1)]).result(timeout=20)
        _no_more_pages(store)
        kept = [
            store.write([a_tick(seq=seq), a_decision(seq=seq)], keep=True) for seq in range(2, 300)
        ]
        until(lambda: bool(store.state.trouble))
        assert "the disk is full" in store.state.trouble
        until(lambda: "waits in memory" in caplog.text)
        told = store.write([an_audit_entry().model_copy(update={"detail": "x" * 100_000})])
        assert isinstance(told.exception(timeout=60), StoreUnwritable)
        time.sleep(0.2)  # many attempts later it has still been said once
        assert caplog.text.count("waits in memory") == 1
        _room_again(store)
        wait(kept, timeout=60)
        assert _seqs(store) == [*range(1, 300)]
        assert len(store.decisions(limit=1000)) == 298
        until(lambda: not store.state.trouble)
        assert caplog.text.count("is written again") == 1


def test_too_many_that_wait_are_refused_and_counted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "TICK_LIMIT", 20)
    monkeypatch.setattr(writer, "QUEUE_LIMIT", 30)
    with Store.open(path) as store:
        store.write([a_tick(seq=1)]).result(timeout=20)
        with locked_by_another_process(path):
            first = store.write([a_tick(seq=2)], keep=True)
            until(lambda: bool(store.state.trouble))
            ticks = [store.write([a_tick(seq=seq)], keep=True) for seq in range(3, 40)]
            refused = [one for one in ticks if one.done()]
            assert 15 <= len(refused) <= 20  # one that is being tried is counted a moment later
            error = refused[0].exception()
            assert isinstance(error, StoreOverloaded)
            assert "writes behind" in str(error)
            assert "locked by another program" in str(error)
            decisions = [store.write([a_decision(seq=seq)], keep=True) for seq in range(40, 60)]
            late = [one for one in decisions if one.done()]
            assert 8 <= len(late) <= 12
            assert store.state.refused == len(refused) + len(late)
        wait([first, *ticks, *decisions], timeout=60)
        assert len(_seqs(store)) == 2 + len(ticks) - len(refused)
        assert len(store.decisions()) == 20 - len(late)


def test_one_refused_record_among_those_that_wait_costs_no_other(path: Path) -> None:
    with Store.open(path) as store:
        with locked_by_another_process(path):
            kept = [store.write([a_tick(seq=seq)], keep=True) for seq in (1, 2, 2, 3, 1, 4)]
            until(lambda: bool(store.state.trouble))
        wait(kept, timeout=60)
        failed = [index for index, one in enumerate(kept) if one.exception() is not None]
        assert failed == [2, 4]
        assert isinstance(kept[2].exception(), StoreRefused)
        assert _seqs(store) == [1, 2, 3, 4]


def test_closing_beside_a_lock_tells_what_is_lost(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with locked_by_another_process_of_a_new_store(path) as store:
        kept = [store.write([a_tick(seq=seq)], keep=True) for seq in (1, 2, 3)]
        until(lambda: bool(store.state.trouble))
        store.close()
        assert all(isinstance(one.exception(timeout=0), StoreBusy) for one in kept)
        assert "3 writes are lost with the end" in caplog.text


@contextmanager
def locked_by_another_process_of_a_new_store(path: Path) -> Iterator[Store]:
    store = Store.open(path)
    try:
        with locked_by_another_process(path):
            yield store
    finally:
        store.close()


def test_closing_after_the_lock_went_loses_nothing(path: Path) -> None:
    store = Store.open(path)
    with locked_by_another_process(path):
        kept = [store.write([a_tick(seq=seq)], keep=True) for seq in range(1, 600)]
        until(lambda: bool(store.state.trouble))
    store.close()
    assert all(one.exception(timeout=0) is None for one in kept)
    with Store.open(path, read_only=True) as again:
        assert len(again.ticks("e1", limit=1000)) == 599


def test_a_failed_write_that_nobody_keeps_leaves_no_trouble_behind(path: Path) -> None:
    with Store.open(path) as store:
        with locked_by_another_process(path):
            assert isinstance(store.write([a_tick()]).exception(timeout=60), StoreBusy)
            until(lambda: store.state == ("", 0, 0))
        store.write([a_tick()]).result(timeout=60)


def test_a_file_that_may_not_be_changed_for_a_while_is_waited_for(path: Path) -> None:
    with Store.open(path) as store:
        store.write([a_tick(seq=1)]).result(timeout=20)
        _driver(store).execute("PRAGMA query_only = ON")  # the real SQLITE_READONLY
        kept = store.write([a_tick(seq=2)], keep=True)
        until(lambda: bool(store.state.trouble))
        assert "writable" in store.state.trouble
        _driver(store).execute("PRAGMA query_only = OFF")
        kept.result(timeout=60)
        assert _seqs(store) == [1, 2]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB that is really full when it is full."""
    place = tmp_path / "small"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system takes root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_really_full_file_system_makes_records_wait_until_there_is_space(
    small_disk: Path,
) -> None:
    filler = small_disk / "filler"
    with Store.open(small_disk / "s.db") as store:
        store.write([a_tick(seq=1)]).result(timeout=20)
        with suppressed_full(), filler.open("wb", buffering=0) as out:
            while True:
                out.write(bytes(4096))
        kept = [
            store.write([a_tick(seq=seq), a_decision(seq=seq)], keep=True) for seq in range(2, 100)
        ]
        until(lambda: bool(store.state.trouble))
        assert not kept[-1].done()
        filler.unlink()
        wait(kept, timeout=60)
        assert _seqs(store) == [*range(1, 100)]
        until(lambda: not store.state.trouble)
    with closing(sqlite3.connect(small_disk / "s.db")) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@contextmanager
def suppressed_full() -> Iterator[None]:
    with pytest.raises(OSError, match="No space left"):
        yield


def test_a_store_error_is_what_the_state_tells(path: Path) -> None:
    with Store.open(path) as store:
        assert store.state.trouble == ""
    with Store.open(path, read_only=True) as reader:
        assert reader.state == ("", 0, 0)
        assert isinstance(reader.write([a_tick()], keep=True).exception(timeout=0), StoreError)
