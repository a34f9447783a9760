"""Which parts a terminal of a given size shows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from console.layout import CARD_ROWS, GAUGES, LOG_LEAST, plan


def test_80x24_has_everything_but_the_side_panel() -> None:
    chosen = plan(80, 24, 0)
    assert (chosen.essentials, chosen.panel, chosen.trend_rows) == (False, 0, 1)


def test_a_hundred_columns_add_the_panel() -> None:
    assert plan(99, 24, 0).panel == 0
    assert plan(100, 24, 0).panel == 28
    assert plan(120, 40, 0).panel == 40


def test_narrow_screens_give_up_the_trends_before_the_card() -> None:
    chosen = plan(79, 24, 0)
    assert chosen.trend_rows == 0
    assert not chosen.essentials


def test_under_60x16_the_essentials_remain() -> None:
    assert not plan(60, 16, 0).essentials
    assert plan(59, 16, 0).essentials
    assert plan(60, 15, 0).essentials


@given(st.integers(1, 300), st.integers(1, 120), st.integers(0, 3))
def test_the_parts_never_need_more_rows_than_there_are(
    columns: int, rows: int, notices: int
) -> None:
    chosen = plan(columns, rows, notices)
    if chosen.essentials:
        return
    table = 2 + GAUGES * chosen.trend_rows if chosen.trend_rows else 0
    least_log = LOG_LEAST if chosen.trend_rows else 1
    assert 1 + chosen.notices + CARD_ROWS + table + least_log + 2 + 1 <= rows
    assert chosen.panel == 0 or columns - chosen.panel >= 72
