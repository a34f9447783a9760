"""Where a store of a test lies, and another program's hands on the same database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from store import postgres, sqlite


@dataclass(frozen=True)
class Place:
    """A database that no store has open: a path or a URL."""

    location: str

    @property
    def is_file(self) -> bool:
        """Whether it is SQLite's."""
        return "://" not in self.location

    @contextmanager
    def session(self) -> Iterator[Any]:
        """A connection in autocommit, past the store."""
        if self.is_file:
            with closing(sqlite3.connect(self.location, isolation_level=None)) as connection:
                yield connection
        else:
            url = self.location.replace("+psycopg", "", 1)
            with psycopg.connect(url, autocommit=True) as session:
                yield session

    def run(self, statement: str) -> list[Any]:
        """What another program does to the database."""
        with self.session() as session:
            cursor = session.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    @contextmanager
    def held(self) -> Iterator[None]:
        """Another program keeps everybody from writing."""
        with self.session() as other:
            if self.is_file:
                other.execute("BEGIN IMMEDIATE")
            else:
                tables = other.execute(
                    "SELECT string_agg(tablename, ', ') FROM pg_tables "
                    "WHERE schemaname = current_schema()"
                ).fetchone()[0]
                other.execute("BEGIN")
                other.execute(f"LOCK TABLE {tables} IN EXCLUSIVE MODE")
            yield
            other.execute("ROLLBACK")

    def give_up_soon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Stores opened from now on wait a tenth of a second for another program."""
        monkeypatch.setattr(sqlite, "BUSY_MS", 100)
        monkeypatch.setitem(postgres.SETTINGS, "lock_timeout", "100ms")
