"""How long an SQLite file and its write-ahead log are, and how the log is kept short.

SQLite brings the log into the file after every 1,000 pages, as far as readers allow, and begins it
anew when none needs it any more; then it is cut to ``WAL_LIMIT_BYTES``.  A reader that keeps one
moment open for long makes it grow: nothing is lost, but the disk fills.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from store import sqlite

_log = logging.getLogger("specdeck.store")


class StoreSize(NamedTuple):
    """Bytes on the disk.

    Args:
        file: the database.
        wal: its write-ahead log.
    """

    file: int
    wal: int


def measure(path: Path) -> StoreSize:
    """The sizes now; what is not there counts 0."""
    return StoreSize(_bytes(path), _bytes(sqlite.wal_of(path)))


def shorten(connection: Connection, path: Path) -> None:
    """Bring a long log into the file and cut it, without waiting for readers that hold it."""
    if _bytes(sqlite.wal_of(path)) <= sqlite.WAL_LIMIT_BYTES:
        return
    try:
        connection.exec_driver_sql("PRAGMA busy_timeout = 0")
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.commit()
    except SQLAlchemyError as error:
        _log.warning("%s: the write-ahead log cannot be cut: %s", path, error)
        connection.rollback()
    finally:
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {sqlite.BUSY_MS}")
        connection.commit()


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
