"""Lengths of time as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.durations import parse_duration, written


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("1h30m", 5400), ("1d", 86400), ("0.5s", 0.5), (" 2H ", 7200)],
)
def test_a_written_length_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "ten", "10m 5", "5x", "-5m", "30m1h", "1.5h", "s"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write it like 90s, 10m or 1h30m"):
        parse_duration(text)


def test_no_time_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="above zero"):
        parse_duration("0s")


@given(st.integers(min_value=1, max_value=10_000_000))
def test_what_is_shown_is_true_to_its_smaller_unit(seconds: int) -> None:
    shown = written(seconds)
    step = {"s": 1, "m": 60, "h": 3600, "d": 86400}[shown[-1]]
    assert 0 <= seconds - parse_duration(shown) < max(step, 3600)


def test_a_length_is_shown_with_two_units_at_most() -> None:
    assert [written(s) for s in (0, 5, 252, 3600, 90_061)] == ["0s", "5s", "4m12s", "1h", "1d1h"]
