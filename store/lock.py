"""The right to write a database file: one process at a time, given back even by SIGKILL.

SQLite itself would let two writers take turns; two control planes on one file would each believe
to be the only one.  The lock lies in a file beside the database, never on the database: closing
any descriptor of that would drop SQLite's own locks.
"""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path
from typing import Self

from store.errors import StoreBusy, StoreUnwritable


class WriterLock:
    """An exclusive ``flock`` on ``<database>.lock``; the file stays behind, the lock does not."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, database: Path) -> Self:
        """Take the lock at once or say who has it.

        Raises:
            StoreBusy: another process (or another store of this one) writes this database.
            StoreUnwritable: the lock file cannot be made.
        """
        path = database.with_name(database.name + ".lock")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreUnwritable(
                f"{database} cannot be written: {path}: {error.strerror}. Make its directory "
                "writable for this user, or choose another path."
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(descriptor, 200).decode("utf-8", "replace").strip()
            os.close(descriptor)
            raise StoreBusy(
                f"{database} is open for writing by {holder or 'another process'}. Stop that "
                "control plane, or give this one a file of its own. Reading is still possible."
            ) from error
        except OSError as error:
            os.close(descriptor)
            raise StoreUnwritable(
                f"{path} cannot be locked ({error.strerror}). Keep the database on a local disk."
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        return cls(descriptor)

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
