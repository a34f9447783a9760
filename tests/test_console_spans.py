"""Lines: exact widths, safe text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from console.formatting import ASCII, UNICODE, clean
from console.spans import (
    Line,
    Role,
    Span,
    boxed,
    crop,
    line,
    pad,
    plain,
    rule,
    safe,
    spread,
    width,
)

TEXTS = st.lists(st.text(max_size=12).map(clean), max_size=5)


def lines(texts: list[str]) -> Line:
    return line(*texts)


@given(TEXTS, st.integers(0, 60))
def test_a_padded_line_is_exactly_as_wide_as_asked(texts: list[str], size: int) -> None:
    assert width(pad(lines(texts), size)) == size
    assert width(crop(lines(texts), size)) <= size


@given(TEXTS, TEXTS, st.integers(0, 80))
def test_both_ends_of_a_spread_line_meet_the_edges(
    left: list[str], right: list[str], size: int
) -> None:
    assert width(spread(lines(left), lines(right), size)) == size


@given(TEXTS, TEXTS, TEXTS, st.integers(12, 80), st.sampled_from([UNICODE, ASCII]))
def test_a_frame_is_exactly_as_wide_as_asked(
    row: list[str], title: list[str], corner: list[str], size: int, glyphs: object
) -> None:
    chosen = ASCII if glyphs is ASCII else UNICODE
    drawn = boxed([lines(row)], lines(title), lines(corner), size, chosen)
    assert [width(one) for one in drawn] == [size] * 3
    assert width(rule(lines(title), lines(corner), size, chosen)) == size


def test_the_right_end_outlives_the_left() -> None:
    text = plain(spread(line("a long left side"), line("right"), 12))
    assert text == "a long…right"


def test_a_cut_span_keeps_its_role() -> None:
    assert crop(line(Span("abcdef", Role.ALARM)), 4) == (Span("abc…", Role.ALARM),)


def test_what_is_drawn_holds_no_control_character() -> None:
    hostile = line("ok ", Span("\x1b]0;title\x07", Role.ALARM))
    assert plain(safe(hostile, UNICODE)) == "ok \ufffd]0;title\ufffd"
    assert plain(safe(hostile, ASCII)) == "ok ?]0;title?"
    assert [span.role for span in safe(hostile, UNICODE)] == [Role.TEXT, Role.ALARM]


def test_harmless_lines_are_passed_on_untouched() -> None:
    harmless = line("concurrency ≥ 24")
    assert safe(harmless, UNICODE) is harmless


def test_markup_is_text() -> None:
    assert plain(line("[bold]x[/bold]")) == "[bold]x[/bold]"
