"""The audit's hash chain finds every row that was changed, removed or slipped in."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.audit_cli import run
from store.audit_chain import START, check, link
from store.db import Store
from store.migrations import MIGRATIONS, migrate
from store.records import AuditEntry
from tests.store_place import Place
from tests.store_records import an_audit_entry


@pytest.fixture
def chained(place: Place) -> Place:
    """A database with five rows in its audit."""
    with Store.open(place.location) as store:
        store.write([an_audit_entry(at) for at in (1, 2, 3)]).result(timeout=10)
        store.write([an_audit_entry(at) for at in (4, 5)]).result(timeout=10)
    return place


def tamper(place: Place, statement: str) -> None:
    with place.unguarded_audit():
        place.run(statement)


def test_an_untouched_audit_is_intact_over_several_writes(chained: Place) -> None:
    with Store.open(chained.location, read_only=True) as store:
        found = store.check_audit()
        newest = store.audit(limit=1)[0]
    assert (found.rows, found.broken, found.intact) == (5, (), True)
    assert found.head == newest.hash
    assert len(found.head) == 64


@pytest.mark.parametrize(
    ("statement", "broken"),
    [
        ("UPDATE audit SET actor = 'somebody else' WHERE id = 2", (2,)),
        ("UPDATE audit SET at_utc_ms = 9 WHERE id = 5", (5,)),
        ("UPDATE audit SET detail = 'x' WHERE id = 1", (1,)),
        ("UPDATE audit SET hash = 'f00' WHERE id = 3", (3, 4)),
        ("DELETE FROM audit WHERE id = 3", (4,)),
        ("DELETE FROM audit WHERE id = 1", (2,)),
        ("UPDATE audit SET id = -id WHERE id IN (2, 3)", (4,)),
        ("INSERT INTO audit SELECT 9, 9, 'x', 'x', 'x', 'x', ''", (9,)),
    ],
)
def test_a_tampered_row_is_named(chained: Place, statement: str, broken: tuple[int, ...]) -> None:
    tamper(chained, statement)
    with Store.open(chained.location, read_only=True) as store:
        found = store.check_audit()
    assert not found.intact
    assert set(broken) <= set(found.broken)


def test_a_removed_end_is_found_by_a_head_that_was_noted(chained: Place) -> None:
    with Store.open(chained.location) as store:
        head = store.check_audit().head
        store.write([an_audit_entry(6)]).result(timeout=10)
        later = store.check_audit(head[:12])
        assert (later.intact, later.found) == (True, 5)
    tamper(chained, "DELETE FROM audit WHERE id >= 5")
    with Store.open(chained.location, read_only=True) as store:
        assert store.check_audit().intact
        assert not store.check_audit(head).intact


def test_rows_of_an_older_file_are_chained_when_it_is_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        migrate(old, migrations=MIGRATIONS[:3])
        for at in (1, 2):
            old.execute(
                "INSERT INTO audit (at_utc_ms, actor, action, target, detail) "
                "VALUES (?, 'a', 'b', 'c', '')",
                (at,),
            )
    with Store.open(path) as store:
        store.write([an_audit_entry(3)]).result(timeout=10)
        found = store.check_audit()
        assert (found.rows, found.intact) == (3, True)
    with closing(sqlite3.connect(path)) as raw, pytest.raises(sqlite3.IntegrityError):
        raw.execute("UPDATE audit SET actor = 'x' WHERE id = 1")


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            AuditEntry,
            at_utc_ms=st.integers(0, 2**40),
            actor=st.text(max_size=5),
            action=st.text(max_size=5),
            target=st.text(max_size=5),
            detail=st.text(max_size=5),
        ),
        min_size=2,
        max_size=6,
    ),
    st.data(),
)
def test_any_two_rows_changed_for_each_other_break_the_chain(
    entries: list[AuditEntry], data: st.DataObject
) -> None:
    chain, before = [], START
    for number, entry in enumerate(entries, start=1):
        before = link(before, entry)
        chain.append(entry.model_copy(update={"id": number, "hash": before}))
    assert check(chain).intact
    one = data.draw(st.integers(0, len(chain) - 2))
    swapped = [*chain[:one], chain[one + 1], chain[one], *chain[one + 2 :]]
    assert not check(swapped).intact


def test_fields_cannot_be_moved_into_each_other() -> None:
    one = AuditEntry(at_utc_ms=1, actor="ab", action="c", target="", detail="")
    other = AuditEntry(at_utc_ms=1, actor="a", action="bc", target="", detail="")
    assert link(START, one) != link(START, other)


def test_the_command_proves_it_and_exits_with_6_when_it_cannot(
    chained: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    database = chained.location
    assert run(["verify", "--database", database]) == 0
    out = capsys.readouterr().out
    assert out.startswith("intact: 5 rows\nhead ")
    head = out.split()[-1]
    assert run(["verify", "--database", database, "--head", head]) == 0
    assert run(["verify", "--database", database, "--head", "00ff"]) == 6
    assert run(["verify", "--database", database, "--head", "zz"]) == 2
    capsys.readouterr()
    tamper(chained, "UPDATE audit SET actor = 'somebody else' WHERE id = 2")
    assert run(["verify", "--database", database]) == 6
    assert capsys.readouterr().out.startswith("NOT INTACT: 1 of 5 rows")


def test_the_command_says_what_is_not_there(tmp_path: Path) -> None:
    assert run(["verify", "--database", str(tmp_path / "none.db")]) == 5


@pytest.mark.parametrize("call", [lambda: check([]), lambda: check([], "")])
def test_an_empty_audit_is_intact_and_has_no_head(call: Callable[[], object]) -> None:
    found = call()
    assert found == check([])
    assert check([]).head == ""
