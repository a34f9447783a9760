"""Trends: fixed ranges, buckets by time, gaps that stay blank."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from console.formatting import ASCII, UNICODE
from console.spans import Role, plain, width
from console.trend import (
    Range,
    buckets,
    draw,
    level,
    means,
    nice_top,
    progress,
    runs,
    strip,
)

VALUES = st.one_of(st.none(), st.floats(-1e6, 1e6))


def test_values_fall_into_the_bucket_of_their_time() -> None:
    points = [(1000, 1.0), (1999, 3.0), (2000, 5.0), (3000, None)]
    assert buckets(points, 3500, 4000, 4) == [[], [1.0, 3.0], [5.0], []]


def test_points_outside_the_window_are_left_out() -> None:
    assert buckets([(-5000, 1.0), (99_000, 2.0)], 3500, 4000, 4) == [[], [], [], []]


def test_a_bucket_keeps_its_values_while_the_window_moves_inside_it() -> None:
    points = [(1500, 1.0), (2500, 2.0)]
    assert buckets(points, 3000, 4000, 4) == buckets(points, 3999, 4000, 4)


def test_no_columns_hold_nothing() -> None:
    assert buckets([(1, 1.0)], 1, 1000, 0) == []


def test_a_gap_stays_blank_between_its_neighbours() -> None:
    (row,) = draw([1.0, None, None, 1.0], Range(0, 1))
    assert plain(row) == "█  █"


def test_zero_leaves_a_mark_and_a_missing_value_does_not() -> None:
    (row,) = draw([0.0, None], Range(0, 10))
    assert plain(row) == "▁ "
    (row,) = draw([0.0, None], Range(0, 10), glyphs=ASCII)
    assert plain(row) == "_ "


def test_the_range_is_fixed_and_values_outside_stand_at_its_ends() -> None:
    (row,) = draw([-5.0, 50.0, 500.0], Range(0, 100))
    assert plain(row) == "▁▅█"


def test_a_column_over_its_threshold_is_marked() -> None:
    (row,) = draw([5.0, 24.0, 30.0], Range(0, 64, high=24))
    assert [span.role for span in row] == [Role.TREND, Role.TREND_HIGH]


def test_two_rows_stack_into_one_column() -> None:
    upper, lower = draw([0.0, 50.0, 100.0], Range(0, 100), rows=2)
    assert plain(lower) == "▁██"
    assert plain(upper) == " ▁█"


@given(st.lists(VALUES, max_size=40), st.integers(1, 4))
def test_every_value_is_drawn_and_every_missing_one_blank(
    values: list[float | None], rows: int
) -> None:
    drawn = draw(values, Range(0, 100), rows)
    assert len(drawn) == rows
    assert all(width(row) == len(values) for row in drawn)
    lowest = plain(drawn[-1])
    assert [char == " " for char in lowest] == [value is None for value in values]


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_a_greater_value_is_never_drawn_lower(one: float, other: float) -> None:
    low, high = sorted((one, other))
    first, second = level(low, Range(0, 1e8), 8), level(high, Range(0, 1e8), 8)
    assert first is not None
    assert second is not None
    assert 1 <= first <= second <= 8


def test_means_are_of_what_was_seen() -> None:
    assert means([[1.0, 3.0], [], [5.0]]) == [2.0, None, 5.0]


@given(st.floats(1e-6, 1e12))
def test_a_range_end_holds_its_value_and_is_round(value: float) -> None:
    top = nice_top(value)
    assert value <= top * (1 + 1e-9)
    assert top < 2.001 * value
    assert float(f"{top / 10 ** math.floor(math.log10(top)):.6f}") in (1, 2, 4, 6, 8, 10)


def test_the_strip_shows_the_newest_of_each_bucket_and_what_is_missing() -> None:
    row = strip([["a"], [], ["a", "b"]], lambda tier: (tier, Role.ON), UNICODE.nothing)
    assert plain(row) == "a·b"


def test_neighbours_of_one_role_are_joined() -> None:
    row = runs([("1", Role.ON), ("1", Role.ON), ("0", Role.OFF)])
    assert [span.text for span in row] == ["11", "0"]


def test_progress_fills_as_the_condition_holds() -> None:
    assert progress(0, 5) == "[----------]"
    assert progress(1.9, 5) == "[###-------]"
    assert progress(9, 5) == progress(1, 0) == "[##########]"
