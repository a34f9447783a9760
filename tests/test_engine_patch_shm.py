"""Shared memory: readers get whole records or none, and folders of dead engines are removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine_patch import shm
from engine_patch.shm import Board, Folder, RankFile, SharedMemoryError

BOOT = "0123456789abcdef0123456789abcdef"


def test_what_a_rank_writes_another_mapping_reads(tmp_path: Path) -> None:
    writer = RankFile.create(tmp_path, 0, 0, 1)
    writer.write("live", b'{"step":1}', 123)
    writer.write("live", b'{"step":22}', 456)
    reader = RankFile.open(tmp_path / "dp0-pp0-tp1.rank")
    assert reader is not None
    reading = reader.read("live")
    assert reading is not None
    assert (reading.payload, reading.number, reading.at_ns) == (b'{"step":22}', 2, 456)


def test_a_slot_nobody_wrote_reads_as_nothing(tmp_path: Path) -> None:
    assert RankFile.create(tmp_path, 0, 0, 0).read("journal") is None


def test_the_slots_do_not_touch_each_other(tmp_path: Path) -> None:
    file = RankFile.create(tmp_path, 0, 0, 0)
    payloads = {"facts": b"f" * 32_000, "live": b"l" * 8_000, "journal": b"j" * 190_000}
    for _ in range(3):
        for slot, payload in payloads.items():
            file.write(slot, payload, 1)
    for slot, payload in payloads.items():
        reading = file.read(slot)
        assert reading is not None
        assert reading.payload == payload


def test_a_payload_that_is_too_large_is_refused_and_the_old_one_stays(tmp_path: Path) -> None:
    file = RankFile.create(tmp_path, 0, 0, 0)
    file.write("live", b"old", 1)
    with pytest.raises(SharedMemoryError, match="do not fit"):
        file.write("live", b"x" * 10_000, 2)
    reading = file.read("live")
    assert reading is not None
    assert reading.payload == b"old"


WRITER = """
import sys; from pathlib import Path
from engine_patch.shm import RankFile
file = RankFile.create(Path(sys.argv[1]), 0, 0, 0)
number = 0
while True:
    number += 1
    file.write("live", b"abcdefghij"[number % 10:][:1] * (100 + 7 * (number % 1000)), number)
    if number == 1:
        print("ready", flush=True)
"""


def test_a_reader_never_sees_half_of_a_record_and_never_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, tmp_path], stdout=subprocess.PIPE
    ) as writer:
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            reader = RankFile.open(tmp_path / "dp0-pp0-tp0.rank")
            assert reader is not None
            last = 0
            for _ in range(20_000):
                reading = reader.read("live")
                assert reading is not None
                assert len(set(reading.payload)) == 1
                assert len(reading.payload) == 100 + 7 * (reading.at_ns % 1000)
                assert reading.number >= last
                last = reading.number
            assert last > 100
        finally:
            writer.kill()


def test_a_writer_stopped_in_the_middle_does_not_hide_its_last_record(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, tmp_path], stdout=subprocess.PIPE
    ) as writer:
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            reader = RankFile.open(tmp_path / "dp0-pp0-tp0.rank")
            assert reader is not None
            for _ in range(50):  # it hardly ever stops between two records
                writer.send_signal(signal.SIGSTOP)
                os.waitid(os.P_PID, writer.pid, os.WSTOPPED)
                assert reader.read("live") is not None
                writer.send_signal(signal.SIGCONT)
        finally:
            writer.kill()


def test_a_torn_record_is_not_read(tmp_path: Path) -> None:
    RankFile.create(tmp_path, 0, 0, 0).write("live", b"0123456789", 1)
    file = tmp_path / "dp0-pp0-tp0.rank"
    data = bytearray(file.read_bytes())
    data[data.index(b"0123456789")] = ord("x")
    file.write_bytes(data)
    reader = RankFile.open(file)
    assert reader is not None
    assert reader.read("live") is None


def test_a_board_finds_ranks_as_they_appear_in_order_and_skips_what_is_not_ours(
    tmp_path: Path,
) -> None:
    board = Board(tmp_path)
    assert list(board.ranks()) == []
    (tmp_path / "dp0-pp0-tp9.rank").write_bytes(b"too small")
    (tmp_path / "lock").touch()
    for rank in (10, 2, 0):
        RankFile.create(tmp_path, 0, 0, rank)
    assert [name for name, _ in board.ranks()] == [
        "dp0-pp0-tp0.rank",
        "dp0-pp0-tp2.rank",
        "dp0-pp0-tp10.rank",
    ]


def test_a_board_of_a_folder_that_is_gone_is_empty(tmp_path: Path) -> None:
    assert list(Board(tmp_path / "gone").ranks()) == []


def test_a_rank_without_a_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(SharedMemoryError, match="cannot make"):
        RankFile.create(tmp_path / "gone", 0, 0, 0)


def test_a_folder_is_private_and_disappears_when_closed(tmp_path: Path) -> None:
    folder = Folder.make(BOOT, tmp_path)
    assert folder.path.stat().st_mode & 0o077 == 0
    folder.close()
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_living_engine_is_left_alone(tmp_path: Path) -> None:
    folder = Folder.make(BOOT, tmp_path)
    assert shm.remove_stale(tmp_path) == []
    assert folder.path.exists()
    folder.close()


def test_the_folder_of_a_killed_engine_is_removed_at_the_next_start(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from engine_patch.shm import Folder;"
        f"Folder.make({BOOT!r}, Path(sys.argv[1])); os.kill(os.getpid(), signal.SIGKILL)"
    )
    died = subprocess.run([sys.executable, "-c", script, tmp_path], check=False)
    assert died.returncode == -9
    left = tmp_path / f"specdeck-{BOOT}"
    assert left.exists()
    folder = Folder.make("f" * 32, tmp_path)
    assert not left.exists()
    assert folder.path.exists()
    folder.close()


def test_a_child_keeps_no_lock_of_its_engine(tmp_path: Path) -> None:
    """A scheduler that outlives the first process must not keep the folder alive."""
    folder = Folder.make(BOOT, tmp_path)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        os.close(folder._lock)
        assert shm.remove_stale(tmp_path) == [folder.path]
    finally:
        child.communicate(b"\n")


def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    with pytest.raises(SharedMemoryError, match="cannot make"):
        Folder.make(BOOT, tmp_path / "gone")
