"""What takes the room in an SQLite store."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from sqlmodel import SQLModel

from store import sqlite, tables
from store.database import locate
from store.errors import StoreError
from store.sqlite_log import measure

assert tables  # importing it declares the tables


class Stats(NamedTuple):
    """Sizes in bytes, and rows by table."""

    file_bytes: int
    free_bytes: int
    log_bytes: int
    rows: dict[str, int]


def read(location: Path | str) -> Stats:
    """Read them, beside a running control plane or without one.

    Raises:
        StoreError: the store cannot be read or is no SQLite file.
    """
    database = locate(location)
    try:
        path = database.path
    except StoreError as error:
        raise StoreError(f"{database.name} is no SQLite file: ask the server for sizes") from error
    database.check_readable()
    try:
        with closing(sqlite.connect(path, "ro")) as connection:

            def number(query: str) -> int:
                return int(connection.execute(query).fetchone()[0])

            free = number("PRAGMA freelist_count") * number("PRAGMA page_size")
            names = sorted(SQLModel.metadata.tables)
            rows = {name: number(f'SELECT count(*) FROM "{name}"') for name in names}
    except sqlite3.Error as error:
        raise sqlite.explain(error, path) from error
    size = measure(path)
    return Stats(size.file, free, size.wal, rows)
