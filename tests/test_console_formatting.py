"""Numbers, times and foreign text as an operator reads them."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.formatting import (
    ASCII,
    UNICODE,
    cells,
    clean,
    clock,
    countdown,
    cut,
    fill,
    fit,
    length,
    metric,
    milliseconds,
    number,
    plain_ascii,
    seconds,
    short,
    zone_name,
)


def test_a_missing_value_is_a_dash_and_never_zero() -> None:
    assert number(None) == metric(None, "req") == seconds(None) == short(None) == "-"
    assert countdown(None) == milliseconds(None) == number(float("nan")) == "-"


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [(0, 0, "0"), (1490, 0, "1 490"), (1234567.8, 1, "1 234 567.8"), (3.416, 2, "3.42")],
)
def test_numbers_are_grouped_by_thin_spaces(value: float, decimals: int, text: str) -> None:
    assert number(value, decimals) == text


def test_a_value_that_rounds_to_nothing_has_no_minus() -> None:
    assert number(-0.04, 1) == "0.0"
    assert number(-0.4) == "0"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0s"),
        (-3.0, "0.0s"),
        (0.34, "0.3s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (59.6, "1m00s"),
        (252, "4m12s"),
        (3599.6, "1h00m"),
        (7500, "2h05m"),
        (273600, "3d04h"),
    ],
)
def test_lengths_of_time_are_short_and_never_negative(value: float, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(600, "10m"), (90, "90s"), (3600, "1h"), (5400, "1h30m"), (86400, "1d")]
)
def test_a_granted_length_has_no_empty_parts(value: float, text: str) -> None:
    assert length(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(221.0, "03:41"), (0.2, "00:01"), (0.0, "00:00"), (-5.0, "00:00"), (3821, "1:03:41")],
)
def test_time_left_reads_zero_only_at_the_end(value: float, text: str) -> None:
    assert countdown(value) == text


def test_a_share_is_shown_in_percent() -> None:
    assert metric(0.92, "share") == "92"
    assert metric(0.9254, "share") == "92.5"


@pytest.mark.parametrize(
    ("value", "text"), [(64, "64"), (4000, "4k"), (2500, "2.5k"), (2_000_000, "2M"), (0, "0")]
)
def test_range_ends_are_short(value: float, text: str) -> None:
    assert short(value) == text


def test_times_are_shown_in_the_asked_zone_and_name_it() -> None:
    india = timezone(timedelta(hours=5, minutes=30))
    assert clock(0, UTC) == "00:00:00"
    assert zone_name(0, UTC) == "UTC"
    assert clock(0, india) == "05:30:00"
    assert zone_name(0, india) == "UTC+05:30"


def test_escape_codes_and_line_breaks_are_taken_out() -> None:
    hostile = "a\x1b[31mred\x1b[0m\nb\tc\x07\u202ed\u200be\x9b2J"
    assert clean(hostile) == "a\ufffd[31mred\ufffd[0m b c\ufffd\ufffdd\ufffde\ufffd2J"


@given(st.text())
def test_whatever_is_written_nothing_is_left_that_a_terminal_acts_on(text: str) -> None:
    assert clean(text).isprintable()
    assert plain_ascii(clean(text)).isascii()


@given(st.text(), st.integers(0, 40), st.sampled_from([UNICODE, ASCII]))
def test_cut_text_fits_and_filled_text_fits_exactly(text: str, width: int, glyphs: object) -> None:
    chosen = ASCII if glyphs is ASCII else UNICODE
    assert cells(cut(clean(text), width, chosen)) <= width
    assert cells(fill(clean(text), width, chosen)) == width


def test_what_was_cut_ends_in_an_ellipsis() -> None:
    assert cut("abcdef", 4) == "abc…"
    assert cut("abcdef", 4, ASCII) == "abc~"
    assert cut("abcdef", 6) == "abcdef"


def test_wide_characters_take_two_cells() -> None:
    assert cells("模型") == 4
    assert cells("e\u0301") == 1
    assert cut("模型模型", 5) == "模型…"


def test_the_longest_wording_that_fits_is_taken() -> None:
    assert fit(12, "rather long text", "shorter", "short") == "shorter"
    assert fit(3, "long", "short") == "sh…"


def test_no_level_of_a_trend_looks_like_a_gap() -> None:
    for glyphs in (UNICODE, ASCII):
        assert " " not in glyphs.bars
        assert len(set(glyphs.bars)) == len(glyphs.bars)


def test_the_ascii_set_is_ascii() -> None:
    for name in ASCII.__slots__:
        value = getattr(ASCII, name)
        assert isinstance(value, bool) or "".join(value).isascii(), name
