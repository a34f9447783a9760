"""The fleet's rows: order, filter, groups, what is wrong, and staleness."""

from __future__ import annotations

import pytest

from console.board import Board
from console.fleet import columns, drawn, sort_at, totals
from console.fleet_choice import GROUP, Choice, Sort, listed, ordered
from console.fleet_notices import reading
from console.fleet_row import mode_sign, stale, wrong
from console.formatting import UNICODE
from console.lookups import Looked, Lookups
from console.matching import matches
from console.places import Need
from console.scene import Scene
from console.spans import Role, plain, width
from controlplane.messages import Fleet, FleetRow
from store.observations import PluginStatus
from store.policies import Stance
from tests.console_fleet_story import READ_MS, fleet, row
from tests.console_story import ENGINE, alarm


def scene(*rows: FleetRow, late_ms: int = 0) -> Scene:
    """A moment ``late_ms`` after the rows were read."""
    told = Fleet(now_utc_ms=READ_MS, rows=rows or fleet().rows)
    looked = Lookups(fleet=Looked(told, READ_MS))
    return Scene(Board(ENGINE), READ_MS + late_ms, looked=looked, place="fleet")


def ids(rows: tuple[FleetRow, ...]) -> list[str]:
    """Their ids."""
    return [one.engine_id for one in rows]


def test_numbers_stand_greatest_first_and_missing_ones_last_both_ways() -> None:
    rows = (row("a", concurrency=3), row("b", concurrency=None), row("c", concurrency=9))
    assert ids(ordered(rows, Choice(Sort.LOAD))) == ["c", "a", "b"]
    assert ids(ordered(rows, Choice(Sort.LOAD, backwards=True))) == ["a", "c", "b"]
    assert ids(ordered(rows, Choice())) == ["a", "b", "c"]


@pytest.mark.parametrize("sort", list(Sort))
def test_every_order_keeps_every_engine(sort: Sort) -> None:
    rows = fleet().rows
    for backwards in (False, True):
        assert sorted(ids(ordered(rows, Choice(sort, backwards)))) == sorted(ids(rows))


def test_what_is_wrong_stands_first_when_ordered_by_alarm() -> None:
    assert ids(ordered(fleet().rows, Choice(Sort.ALARM)))[:2] == ["b200-0", "b200-1"]


def test_a_filter_needs_every_word_in_any_case() -> None:
    rows = fleet().rows
    assert ids(ordered(rows, Choice(words="BATCH shadow"))) == ["b200-2"]
    assert ids(ordered(rows, Choice(words="override op1"))) == ["h200-2"]
    assert ordered(rows, Choice(words="no such engine")) == ()
    assert matches("", ("anything",))


def test_groups_open_and_close() -> None:
    rows = fleet().rows
    keys = listed(rows, Choice(grouped=True))
    assert keys[0] == f"{GROUP}batch"
    assert keys[4] == f"{GROUP}chat"
    closed = listed(rows, Choice(grouped=True).toggled("batch"))
    assert closed[:2] == (f"{GROUP}batch", f"{GROUP}chat")


@pytest.mark.parametrize("size", [40, 60, 80, 109, 110, 160])
def test_rows_fill_their_width_exactly(size: int) -> None:
    told = scene()
    lines = drawn(told, size, Choice(), listed(told.looked.rows, Choice()), None)
    assert {width(line) for line in lines} == {size}
    assert sum(column.width + 1 for column in columns(size)) <= size


def test_a_click_on_a_title_names_its_order() -> None:
    assert sort_at(80, 3) is Sort.NAME
    assert sort_at(80, 30) is Sort.LOAD
    assert sort_at(80, 79) is Sort.ALARM


def test_alarms_come_before_gaps_before_overrides_before_shadow() -> None:
    told = scene()
    every = row(
        "x",
        alarms=(alarm("a", "ranks differ"), alarm("b", "other")),
        gap="refused",
        override_by="op1",
        override_left_s=60.0,
        stance=Stance.SHADOW,
    )
    assert wrong(told, every)[0] == "! ranks differ (+1)"
    every = every.model_copy(update={"alarms": ()})
    assert wrong(told, every)[0].startswith("! STALE 0.3s: refused")
    every = every.model_copy(update={"gap": ""})
    assert wrong(told, every)[0] == "OVERRIDE 1m00s · op1"
    every = every.model_copy(update={"override_by": ""})
    assert wrong(told, every)[0].startswith("SHADOW ")
    absent = row("y", plugin=PluginStatus.ABSENT)
    assert wrong(told, absent) == ("! plugin absent: observed only", Role.WARNING)
    assert wrong(told, row("z")) == ("", Role.TEXT)


def test_an_old_answer_makes_every_row_stale_in_words() -> None:
    told = scene(row("a"), late_ms=6000)
    assert stale(told, told.looked.rows[0])
    line = drawn(told, 80, Choice(), ("a",), None)[0]
    assert "! STALE 6.3s" in plain(line)
    assert any(span.role is Role.STALE for span in line)


def test_an_override_counts_down_between_two_answers() -> None:
    held = row("a", override_by="op1", override_left_s=60.0)
    assert wrong(scene(held, late_ms=1000), held)[0] == "OVERRIDE 59s · op1"


def test_asked_and_confirmed_stand_apart() -> None:
    told = scene()
    assert mode_sign(told, row("a", asked="off"))[0] == "s3k1d4→off"
    assert mode_sign(told, row("a", confirmed="off"))[0] == "○ off"
    assert mode_sign(told, row("a", confirmed="s1k1d2"))[0] == "■ s1k1d2"
    assert mode_sign(told, row("a", confirmed=None, gap="x"))[0] == "? unseen"


def test_totals_leave_out_what_nobody_told() -> None:
    rows = (row("a", concurrency=None, decode_tok_s=None),)
    assert totals(rows, UNICODE) == "1 engine"
    assert totals(fleet().rows, UNICODE).startswith("7 engines · 1 alarm · 1 not reached")


@pytest.mark.parametrize(
    ("place", "need", "age_ms", "old"),
    [
        ("fleet", Need.FLEET, 2_500, False),
        ("fleet", Need.FLEET, 3_500, True),
        ("audit", Need.AUDIT, 5_000, False),
        ("audit", Need.AUDIT, 7_000, True),
    ],
)
def test_a_screen_is_as_old_as_what_it_shows(
    place: str, need: Need, age_ms: int, old: bool
) -> None:
    looked = Lookups().told(need, Looked((), READ_MS))
    shown = Scene(Board(ENGINE), READ_MS + age_ms, place=place, looked=looked)
    assert reading(shown)[1:] == (age_ms / 1000, old)
