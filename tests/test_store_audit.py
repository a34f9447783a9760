"""Audit rows are only ever appended, whoever holds the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from store.db import Store
from tests.store_records import an_audit_entry


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with Store.open(tmp_path / "s.db") as store:
        store.write([an_audit_entry(at) for at in (1, 2, 3)]).result(timeout=10)
    with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as connection:
        yield connection


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("DELETE FROM audit", "never deleted"),
        ("DELETE FROM audit WHERE id = 2", "never deleted"),
        ("UPDATE audit SET actor = 'somebody else' WHERE id = 2", "never changed"),
        ("UPDATE audit SET id = 9 WHERE id = 2", "never changed"),
        ("REPLACE INTO audit VALUES (2, 2, 'x', 'x', 'x', 'x', '')", "only appended"),
        ("INSERT INTO audit VALUES (0, 2, 'x', 'x', 'x', 'x', '')", "only appended"),
        ("INSERT OR IGNORE INTO audit VALUES (3, 2, 'x', 'x', 'x', 'x', '')", "only appended"),
    ],
)
def test_an_audit_row_cannot_be_touched(raw: sqlite3.Connection, statement: str, why: str) -> None:
    before = raw.execute("SELECT * FROM audit").fetchall()
    with pytest.raises(sqlite3.IntegrityError, match=why):
        raw.execute(statement)
    assert raw.execute("SELECT * FROM audit").fetchall() == before
    assert len(before) == 3


def test_an_audit_row_can_be_appended(raw: sqlite3.Connection) -> None:
    raw.execute(
        "INSERT INTO audit (at_utc_ms, actor, action, target, detail) VALUES (1,'','','','')"
    )
    raw.execute("INSERT INTO audit VALUES (10, 2, 'x', 'x', 'x', 'x', '')")
    assert [row[0] for row in raw.execute("SELECT id FROM audit")] == [1, 2, 3, 4, 10]
