"""Which parts a terminal of a given size shows.  Pure."""

from __future__ import annotations

from dataclasses import dataclass

CARD_ROWS = 6
LOG_LEAST = 3
"""The log's rule and at least two entries."""
FIXED_ROWS = 1 + CARD_ROWS + LOG_LEAST + 2 + 1
"""Header, card, log, override section and keys."""
GAUGES = 5
TABS_FROM = 22
"""Rows from which on the row of screens is shown; under it their keys work all the same."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is shown.

    Args:
        essentials: mode, why and age alone.
        panel: width of the side panel in cells, 0 for none.
        trend_rows: height of each trend in rows, 0 for no trends.
        notices: rows of notices.
    """

    essentials: bool
    panel: int = 0
    trend_rows: int = 0
    notices: int = 0


def plan(columns: int, rows: int, notices: int) -> Plan:
    """The parts for ``columns`` by ``rows`` with so many rows of notices.

    80x24 has everything but the side panel, which 100 columns add; less height takes rows from the
    log and then the trends, less width the trends; under 60x16 the essentials remain.
    """
    if columns < 60 or rows < 16:
        return Plan(essentials=True)
    panel = min(max(columns - 80, 28), 48) if columns >= 100 else 0
    trend_rows = 0
    if columns >= 80:
        for height, spare in ((3, 14), (2, 6), (1, 0)):
            table = 2 + GAUGES * height
            if rows >= FIXED_ROWS + (rows >= TABS_FROM) + table + notices + spare:
                trend_rows = height
                break
    return Plan(essentials=False, panel=panel, trend_rows=trend_rows, notices=notices)
