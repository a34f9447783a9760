"""The tables of a session file that may be damaged: what cannot be read is skipped and counted."""

from __future__ import annotations

import logging
import sqlite3
import threading
import zlib
from collections import OrderedDict
from pathlib import Path
from typing import Any

from store.errors import StoreCorrupt
from store.session_schema import explain

DAMAGED = (ValueError, TypeError, KeyError, IndexError, OverflowError, zlib.error)
"""What decoding a row of a damaged file can raise."""
_CACHED_TEMPLATES = 256
_LOGGED = 20
"""Skipped rows of a file that are logged; all are counted."""
_log = logging.getLogger("specdeck.store")


class SessionTables:
    """The rows of one file; safe from several threads.

    Raises:
        StoreCorrupt: it has no ticks.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._db = connection
        self._lock = threading.RLock()
        self._templates: OrderedDict[int, bytes] = OrderedDict()
        self._bad: set[tuple[str, int]] = set()
        self._tables = {
            name for (name,) in self._rows("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        if "ticks" not in self._tables:
            raise StoreCorrupt(f"{path} is damaged: it has no ticks table. Nothing was changed.")

    def close(self) -> None:
        """Close it."""
        self._db.close()

    @property
    def unreadable(self) -> int:
        """Rows skipped so far because they are damaged, each counted once."""
        return len(self._bad)

    def _rows(self, query: str, *values: object) -> list[Any]:
        with self._lock:
            try:
                return self._db.execute(query, values).fetchall()
            except (sqlite3.Error, UnicodeError) as error:
                # A damaged text may break even the words of SQLite's own message.
                raise explain(error, self.path) from error

    def _all(self, table: str, query: str, *values: object) -> list[Any]:
        """The rows of a table that this file's schema may not have yet."""
        if table not in self._tables:
            return []
        try:
            return self._rows(query, *values)
        except StoreCorrupt as error:
            self._skip(table, -1, error)
            return []

    def _template(self, template: int | None) -> bytes:
        if template is None:
            return b""
        with self._lock:
            known = self._templates.get(template)
            if known is None:
                rows = self._rows("SELECT body FROM templates WHERE id = ?", template)
                if not rows:
                    raise ValueError(f"its template {template} is missing")
                known = self._templates[template] = zlib.decompress(rows[0][0])
                if len(self._templates) > _CACHED_TEMPLATES:
                    self._templates.popitem(last=False)
            return known

    def _skip(self, table: str, row: int, error: Exception) -> None:
        with self._lock:
            if (table, row) in self._bad:
                return
            self._bad.add((table, row))
            if len(self._bad) > _LOGGED:
                return
        _log.warning("%s: row %s of %s is skipped: %s", self.path.name, row, table, error)
