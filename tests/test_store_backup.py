"""A copy taken while the store is written is one moment, checked, and can be taken up again."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from store import backup
from store.backup import back_up, check
from store.db import Store
from store.errors import StoreCorrupt, StoreError, StoreUnwritable
from store.stats import read
from tests.store_records import a_decision, a_tick, an_audit_entry, busy_day


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def _beside(folder: Path) -> list[str]:
    """What lies beside the store and its own files."""
    return sorted(one.name for one in folder.iterdir() if not one.name.startswith("s.db"))


def _seqs(store: Store) -> list[int]:
    found: list[int] = []
    after = 0
    while page := store.ticks("e1", after_id=after, limit=1000):
        found += [tick.observation.seq for tick in page]
        after = page[-1].id
    return found


def test_a_copy_under_writes_is_one_moment_and_goes_on(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "STEP_PAGES", 1)
    copy = tmp_path / "copy.db"
    stop, acknowledged = threading.Event(), [0]
    told: list[tuple[int, int]] = []

    with Store.open(path) as store:
        store.write(busy_day(600, ranks=2)).result(timeout=30)

        def go_on_writing() -> None:
            seq = 0
            while not stop.is_set():
                seq += 1
                written = store.write([a_tick(seq=seq), a_decision(seq=seq), an_audit_entry(seq)])
                written.result(timeout=60)
                acknowledged[0] = seq

        writing = threading.Thread(target=go_on_writing)
        writing.start()
        try:
            while acknowledged[0] < 5:
                stop.wait(0.01)
            before = acknowledged[0]

            def progress(done: int, pages: int) -> None:
                if len(told) == 10:  # in the middle of it, until more was written
                    seen = acknowledged[0]
                    while acknowledged[0] < seen + 5:
                        stop.wait(0.01)
                told.append((done, pages))

            found = back_up(path, copy, progress=progress)
        finally:
            stop.set()
            writing.join()

    assert len(told) > 20
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert len({pages for _, pages in told}) == 1
    assert found.path == copy
    assert found.audit.intact
    assert found.size == copy.stat().st_size
    assert _beside(tmp_path) == ["copy.db"]
    with Store.open(copy) as again:
        seqs = _seqs(again)
        assert seqs == list(range(1, len(seqs) + 1))
        assert before <= len(seqs) < acknowledged[0]
        assert len(again.decisions(limit=100_000)) == len(again.audit(limit=100_000)) == len(seqs)
        again.write([a_tick(seq=len(seqs) + 1), an_audit_entry()]).result(timeout=30)
        assert again.check_audit().intact


def test_a_copy_never_replaces_a_file_and_leaves_nothing_behind(path: Path, tmp_path: Path) -> None:
    with Store.open(path) as store:
        store.write([a_tick()]).result(timeout=30)
    with pytest.raises(StoreUnwritable, match="exists"):
        back_up(path, path)
    with pytest.raises(StoreUnwritable, match="no directory"):
        back_up(path, tmp_path / "none" / "copy.db")
    with pytest.raises(StoreError, match="does not exist"):
        back_up(tmp_path / "none.db", tmp_path / "copy.db")
    with pytest.raises(StoreError, match="pg_dump"):
        back_up("postgresql+psycopg://u@127.0.0.1/x", tmp_path / "copy.db")
    assert _beside(tmp_path) == []


def test_a_damaged_database_makes_no_copy(path: Path, tmp_path: Path) -> None:
    with Store.open(path) as store:
        store.write(busy_day(600, ranks=8)).result(timeout=30)
    with path.open("r+b") as file:
        file.seek(5 * 4096)
        file.write(os.urandom(20 * 4096))
    with pytest.raises(StoreCorrupt):
        back_up(path, tmp_path / "copy.db")
    with pytest.raises(StoreCorrupt):
        check(path)
    assert _beside(tmp_path) == []


def test_a_changed_audit_is_copied_and_told(path: Path, tmp_path: Path) -> None:
    with Store.open(path) as store:
        store.write([an_audit_entry(), an_audit_entry(2), an_audit_entry(3)]).result(timeout=30)
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("DROP TRIGGER audit_is_never_changed")
        raw.execute("UPDATE audit SET actor = 'nobody' WHERE id = 2")
    found = back_up(path, tmp_path / "copy.db")
    assert not found.audit.intact
    assert found.audit.broken == (2,)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system takes root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_under_the_copy_is_told_and_cleared_up(path: Path, small_disk: Path) -> None:
    with Store.open(path) as store:
        store.write(busy_day(2000, ranks=8)).result(timeout=30)
        with pytest.raises(StoreUnwritable):
            back_up(path, small_disk / "copy.db")
        assert list(small_disk.iterdir()) == []
        store.write([a_tick()]).result(timeout=30)


def test_the_sizes_and_rows_are_told(path: Path) -> None:
    with Store.open(path) as store:
        store.write([a_tick(seq=1), a_tick(seq=2), an_audit_entry()]).result(timeout=30)
        found = read(path)
        assert (found.rows["ticks"], found.rows["audit"], found.rows["decisions"]) == (2, 1, 0)
        assert found.file_bytes > 0
        assert found.log_bytes > 0
