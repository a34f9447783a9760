"""Opening: what can stand in the way, each told in words and with nothing lost."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from store.db import Store
from store.errors import StoreBusy, StoreCorrupt, StoreError, StoreUnwritable
from tests.store_records import a_tick, busy_day

NOBODY = 65534


def _message(kind: type[StoreError], location: Path | str, *, read_only: bool = False) -> str:
    with pytest.raises(kind) as caught:
        Store.open(location, read_only=read_only).close()
    return str(caught.value)


def _filled(path: Path, count: int = 3) -> Path:
    with Store.open(path) as store:
        store.write(busy_day(count)).result(timeout=20)
    return path


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user may enter, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="specdeck-store-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@contextmanager
def _without_privileges() -> Iterator[None]:
    """Permission bits mean nothing to root, so these tests step down for a moment."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


# places


def test_a_missing_directory_is_named_with_its_remedy(tmp_path: Path) -> None:
    message = _message(StoreUnwritable, tmp_path / "no" / "such" / "s.db")
    assert f"{tmp_path / 'no' / 'such'} does not exist" in message
    assert "mkdir -p" in message
    assert list(tmp_path.iterdir()) == []


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = _message(StoreUnwritable, tmp_path / "file" / "s.db")
    assert "is no directory" in message or "cannot be reached" in message


def test_a_directory_is_refused(tmp_path: Path) -> None:
    assert "is a directory" in _message(StoreUnwritable, tmp_path)


def test_a_missing_file_is_not_made_by_a_reader(tmp_path: Path) -> None:
    assert "does not exist" in _message(StoreError, tmp_path / "s.db", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_without_permission_is_refused(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    with _without_privileges():
        message = _message(StoreUnwritable, open_folder / "s.db")
    assert str(open_folder / "s.db") in message
    assert "Permission denied" in message
    assert "writable for this user" in message


def test_a_place_where_no_file_can_be_made_is_refused() -> None:
    message = _message(StoreUnwritable, "/proc/specdeck.db")
    assert "/proc/specdeck.db cannot be written" in message


def test_a_file_without_permission_is_refused_and_left_as_it_was(open_folder: Path) -> None:
    path = _filled(open_folder / "s.db")
    before = path.read_bytes()
    path.chmod(0o444)
    open_folder.chmod(0o777)
    path.with_name("s.db.lock").chmod(0o666)
    with _without_privileges():
        message = _message(StoreUnwritable, path)
    assert "Make the file" in message
    assert path.read_bytes() == before


def test_a_file_on_a_read_only_place_can_be_read(open_folder: Path) -> None:
    path = _filled(open_folder / "s.db")
    path.chmod(0o444)
    open_folder.chmod(0o555)
    with _without_privileges(), Store.open(path, read_only=True) as store:
        assert store.last_seq("h200-0") == 3
    assert sorted(entry.name for entry in open_folder.iterdir()) == ["s.db", "s.db.lock"]


# addresses


def test_a_url_and_a_path_mean_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "with space#and?marks.db"
    with Store.open(path) as store:
        store.write([a_tick()]).result(timeout=10)
        assert store.path == path
    with Store.open(f"sqlite:///{tmp_path}/plain.db") as store:
        assert store.path == tmp_path / "plain.db"
    with Store.open(str(path), read_only=True) as store:
        assert store.last_seq("e1") == 1


def test_another_kind_of_database_is_refused_without_repeating_its_password() -> None:
    message = _message(StoreError, "mysql://op:hunter2@db/specdeck")
    assert "mysql" in message
    assert "file path" in message
    assert "hunter2" not in message


@pytest.mark.parametrize("location", [":memory:", "sqlite://", "", "x://["])
def test_an_address_without_a_file_is_refused(location: str) -> None:
    _message(StoreError, location)


# damage


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.write_text("these are my notes, not a database\n" * 100)
    before = path.read_bytes()
    for read_only in (False, True):
        message = _message(StoreCorrupt, path, read_only=read_only)
        assert str(path) in message
        assert "Move it aside" in message
        assert "restore a backup" in message
        assert "Nothing was deleted" in message
    assert path.read_bytes() == before


def test_a_file_cut_short_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = _filled(tmp_path / "s.db", 500)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "is damaged" in _message(StoreCorrupt, path)
    assert path.read_bytes() == whole[: len(whole) // 2]


def test_damage_inside_a_file_is_reported_when_it_is_met(tmp_path: Path) -> None:
    path = _filled(tmp_path / "s.db", 500)
    with closing(sqlite3.connect(path)) as raw:
        (page,) = raw.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'ticks_by_id'"
        ).fetchone()
        (size,) = raw.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    with Store.open(path) as store:
        with pytest.raises(StoreCorrupt, match="is damaged"):
            store.ticks("h200-0")
        with pytest.raises(StoreCorrupt, match="is damaged"):
            store.write([a_tick("h200-0", 501)]).result(timeout=10)
        assert store.engines() == []


# one writer


def test_a_second_writer_is_refused_with_the_first_one_named(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    (tmp_path / "alias.db").symlink_to(path)
    with Store.open(path) as store:
        for name in (path, tmp_path / "alias.db"):
            message = _message(StoreBusy, name)
            assert f"process {os.getpid()}" in message
            assert "Stop that control plane" in message
        store.write([a_tick()]).result(timeout=10)
    with Store.open(tmp_path / "alias.db") as store:
        assert store.last_seq("e1") == 1


_HOLDER = """
import sys, time
from store.db import Store
store = Store.open(sys.argv[1])
print("open", flush=True)
time.sleep(60)
"""


def test_a_killed_writer_leaves_no_lock_behind(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    command = [sys.executable, "-c", _HOLDER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "open\n"
            assert f"process {holder.pid}" in _message(StoreBusy, path)
            Store.open(path, read_only=True).close()
        finally:
            holder.send_signal(signal.SIGKILL)
    with Store.open(path) as store:
        store.write([a_tick()]).result(timeout=10)


def test_a_refused_file_is_not_kept_locked(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.write_text("no database" * 100)
    _message(StoreCorrupt, path)
    path.unlink()
    Store.open(path).close()
