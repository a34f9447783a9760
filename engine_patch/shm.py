"""Shared memory between the ranks and the HTTP process: one mapped file per rank, never a wait.

Each file has four slots (facts, live numbers, journal, costs), each of two buffers.  The writer
fills the buffer that is not shown and then shows it, so a reader finds a whole record even while
the writer is stopped in the middle of the next one.  A checksum guards against a reader so slow
that its buffer is filled again, and against machines that reorder stores.  Neither side ever waits.

The folder lies in ``/dev/shm``; the first process of an engine makes it and holds a lock on it.  A
folder whose lock is free belongs to an engine that is gone, and is removed at the next start.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import shutil
import struct
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

FOLDER_PREFIX = "specdeck-"
FILE_SUFFIX = ".rank"

_MAGIC = b"specdk2\0"
_HEADER = struct.Struct("<QqII")
"""Number of the record, monotonic time in ns, length, checksum."""
_WORD = 8
"""Bytes of a counter: the number of the newest whole record, 0 before the first."""
_SIZES = {"facts": 32 * 1024, "live": 8 * 1024, "journal": 192 * 1024, "costs": 96 * 1024}
"""Bytes of one buffer of each slot."""
_FILE_SIZE = len(_MAGIC) + sum(_WORD + 2 * size for size in _SIZES.values())
_TRIES = 256


class SharedMemoryError(Exception):
    """A rank's file cannot be made or does not hold what was given."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a slot holds.

    Args:
        payload: the bytes last written.
        number: how often the slot was written.
        at_ns: the writer's CLOCK_MONOTONIC, which all processes of a host share.
    """

    payload: bytes
    number: int
    at_ns: int


class _Slot:
    def __init__(self, memory: mmap.mmap, offset: int, size: int) -> None:
        self._memory = memory
        # A view of one word is stored at once; ``struct`` would clear it first.
        self._shown = memoryview(memory)[offset : offset + _WORD].cast("Q")
        self._buffers = (offset + _WORD, offset + _WORD + size)
        self._most = size - _HEADER.size

    def write(self, payload: bytes, at_ns: int) -> None:
        if len(payload) > self._most:
            raise SharedMemoryError(f"{len(payload)} bytes do not fit into {self._most}")
        memory = self._memory
        number = self._shown[0] + 1
        start = self._buffers[number % 2]
        body = start + _HEADER.size
        memory[body : body + len(payload)] = payload
        _HEADER.pack_into(memory, start, number, at_ns, len(payload), _checksum(payload, number))
        self._shown[0] = number

    def read(self) -> Reading | None:
        memory = self._memory
        for _ in range(_TRIES):
            shown = self._shown[0]
            if shown == 0:
                return None
            start = self._buffers[shown % 2]
            number, at_ns, length, checksum = _HEADER.unpack_from(memory, start)
            if number != shown or length > self._most:
                continue
            body = start + _HEADER.size
            payload = memory[body : body + length]
            if _checksum(payload, number) == checksum:
                return Reading(payload, number, at_ns)
        return None


def _checksum(payload: bytes, number: int) -> int:
    # The number is part of it: a reader that is stopped between header and payload must not take a
    # later record for the one whose number it has read.
    return zlib.crc32(payload, number & 0xFFFFFFFF)


class RankFile:
    """The slots of one rank, open for writing (by the rank) or reading (by anybody)."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        offset = len(_MAGIC)
        self._slots: dict[str, _Slot] = {}
        for name, size in _SIZES.items():
            self._slots[name] = _Slot(memory, offset, size)
            offset += _WORD + 2 * size

    @classmethod
    def create(cls, folder: Path, dp_rank: int, pp_rank: int, tp_rank: int) -> Self:
        """Make a rank's file; an old one of the same rank is replaced.

        Raises:
            SharedMemoryError: the folder is gone or cannot be written.
        """
        target = folder / f"dp{dp_rank}-pp{pp_rank}-tp{tp_rank}{FILE_SUFFIX}"
        draft = target.with_suffix(f".{os.getpid()}")
        try:
            # Made aside and renamed, so that no reader ever maps a file of the wrong size.
            handle = os.open(draft, os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o600)
            try:
                os.posix_fallocate(handle, 0, _FILE_SIZE)
                memory = mmap.mmap(handle, _FILE_SIZE)
            finally:
                os.close(handle)
            memory[: len(_MAGIC)] = _MAGIC
            draft.rename(target)
        except OSError as error:
            raise SharedMemoryError(f"cannot make {target}: {error}") from error
        return cls(memory)

    @classmethod
    def open(cls, file: Path) -> Self | None:
        """Map a rank's file for reading; None if it is not there or not one of ours."""
        try:
            handle = os.open(file, os.O_RDONLY)
        except OSError:
            return None
        try:
            memory = mmap.mmap(handle, _FILE_SIZE, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            return None
        finally:
            os.close(handle)
        return cls(memory) if memory[: len(_MAGIC)] == _MAGIC else None

    def write(self, slot: str, payload: bytes, at_ns: int) -> None:
        """Write a slot ("facts", "live", "journal" or "costs").

        Raises:
            SharedMemoryError: the payload is too large.
        """
        self._slots[slot].write(payload, at_ns)

    def read(self, slot: str) -> Reading | None:
        """Read a slot; None if nothing was written yet."""
        return self._slots[slot].read()


class Board:
    """All rank files of one engine on this host, for reading."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, RankFile] = {}

    def ranks(self) -> Iterator[tuple[str, RankFile]]:
        """Every rank's name and file, in the order of replica, stage and rank."""
        try:
            names = sorted((path.name for path in self._folder.iterdir()), key=_order)
        except OSError:
            return
        for name in names:
            if not name.endswith(FILE_SUFFIX):
                continue
            if name not in self._files:
                file = RankFile.open(self._folder / name)
                if file is None:
                    continue
                self._files[name] = file
            yield name, self._files[name]


def _order(name: str) -> tuple[int, str]:
    return len(name), name


class Folder:
    """The folder of this engine, with its lock; removed by ``close`` or at the next start."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def make(cls, boot_id: str, base: Path | None = None) -> Self:
        """Make the folder of an engine, and remove those of engines that are gone.

        Raises:
            SharedMemoryError: no folder can be made.
        """
        base = shared_memory() if base is None else base
        remove_stale(base)
        path = base / f"{FOLDER_PREFIX}{boot_id}"
        try:
            # Locked under another name first: an engine that starts now must not clean it away.
            draft = Path(tempfile.mkdtemp(prefix=".specdeck.", dir=base))
            lock = _locked(draft)
            draft.rename(path)
        except OSError as error:
            raise SharedMemoryError(f"cannot make {path}: {error}") from error
        if lock is None:
            raise SharedMemoryError(f"cannot lock {path}")
        return cls(path, lock)

    def close(self) -> None:
        """Remove the folder.  Ranks that still have their file mapped are not disturbed."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._lock)


def shared_memory() -> Path:
    """``/dev/shm`` where it can be written, else the folder for temporary files."""
    preferred = Path("/dev/shm")  # the system's shared memory, not a temporary file
    if preferred.is_dir() and os.access(preferred, os.W_OK):
        return preferred
    return Path(tempfile.gettempdir())


def remove_stale(base: Path) -> list[Path]:
    """Remove the folders of this user's engines that are gone; returns them."""
    removed = []
    for path in base.glob(f"{FOLDER_PREFIX}*"):
        try:
            if not path.is_dir() or path.stat().st_uid != os.getuid():
                continue
            lock = _locked(path)
        except OSError:
            continue
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)
            removed.append(path)
    return removed


def _locked(path: Path) -> int | None:
    """Lock a folder; None if its engine lives.  A lock ends with its process, however it ends."""
    handle = os.open(path / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle
