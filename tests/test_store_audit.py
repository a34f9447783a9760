"""Audit rows are only ever appended, whoever holds the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from store.db import Store
from tests.store_place import Place
from tests.store_records import an_audit_entry


@pytest.fixture
def raw(place: Place) -> Iterator[Any]:
    with Store.open(place.location) as store:
        store.write([an_audit_entry(at) for at in (1, 2, 3)]).result(timeout=10)
    with place.session() as session:
        yield session


def _refused(raw: Any, statement: str, why: str) -> None:
    before = raw.execute("SELECT * FROM audit").fetchall()
    with pytest.raises((sqlite3.IntegrityError, psycopg.Error), match=why):
        raw.execute(statement)
    assert raw.execute("SELECT * FROM audit").fetchall() == before
    assert len(before) == 3


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("DELETE FROM audit", "never deleted"),
        ("DELETE FROM audit WHERE id = 2", "never deleted"),
        ("UPDATE audit SET actor = 'somebody else' WHERE id = 2", "never changed"),
        ("UPDATE audit SET hash = '' WHERE id = 3", "never changed"),
    ],
)
def test_an_audit_row_cannot_be_touched(raw: Any, statement: str, why: str) -> None:
    _refused(raw, statement, why)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE audit SET id = 9 WHERE id = 2", "never changed"),
        ("REPLACE INTO audit VALUES (2, 2, 'x', 'x', 'x', 'x', '')", "only appended"),
        ("INSERT INTO audit VALUES (0, 2, 'x', 'x', 'x', 'x', '')", "only appended"),
        ("INSERT OR IGNORE INTO audit VALUES (3, 2, 'x', 'x', 'x', 'x', '')", "only appended"),
    ],
)
def test_sqlite_slips_no_row_in(raw: Any, statement: str, why: str) -> None:
    _refused(raw, statement, why)


_GIVEN = "INSERT INTO audit OVERRIDING SYSTEM VALUE VALUES"


@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("TRUNCATE audit", "never deleted"),
        ("UPDATE audit SET id = 9 WHERE id = 2", "can only be updated to DEFAULT"),
        ("INSERT INTO audit VALUES (9, 2, 'x', 'x', 'x', 'x', '')", "non-DEFAULT value"),
        (f"{_GIVEN} (0, 2, 'x', 'x', 'x', 'x', '')", "only appended"),
        (
            f"{_GIVEN} (2, 2, 'x', 'x', 'x', 'x', '') ON CONFLICT (id) DO UPDATE SET actor = 'x'",
            "only appended",
        ),
        (
            "MERGE INTO audit USING (SELECT 2::bigint AS n) AS s ON audit.id = s.n "
            "WHEN MATCHED THEN UPDATE SET actor = 'x'",
            "never changed",
        ),
    ],
)
def test_postgresql_slips_no_row_in(raw: Any, statement: str, why: str) -> None:
    _refused(raw, statement, why)


def test_an_audit_row_can_be_appended(raw: Any) -> None:
    raw.execute(
        "INSERT INTO audit (at_utc_ms, actor, action, target, detail) VALUES (1,'','','','')"
    )
    ids = [row[0] for row in raw.execute("SELECT id FROM audit ORDER BY id").fetchall()]
    assert ids == [1, 2, 3, 4]
