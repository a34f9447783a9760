"""Which parts of the replay screen a terminal of a given size shows.  Pure."""

from __future__ import annotations

from dataclasses import dataclass

from console.layout import CARD_ROWS, GAUGES, LOG_LEAST

PANE_ROWS = 13
"""What a what-if takes at most."""
PANE_LEAST = 6


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """What is shown.

    Args:
        essentials: mode, why and age alone under the header.
        line: rows of the time line.
        panel: width of the side panel in cells, 0 for none.
        trend_rows: height of each trend in rows, 0 for no trends.
        pane: rows of the what-if, 0 for none; the log has the rest.
        log: whether the log has room.
    """

    essentials: bool
    line: int = 2
    panel: int = 0
    trend_rows: int = 0
    notices: int = 0
    pane: int = 0
    log: bool = True


def replay_plan(columns: int, rows: int, notices: int, asked: bool, pane: bool) -> ReplayPlan:
    """The parts for ``columns`` by ``rows``.

    Args:
        notices: rows of notices.
        asked: a what-if has an answer, whose tiers are on the time line.
        pane: the answer is shown.
    """
    if columns < 60 or rows < 16:
        return ReplayPlan(essentials=True, notices=notices if rows >= 10 else 0)
    line = 3 if asked else 2
    panel = min(max(columns - 80, 28), 48) if columns >= 100 else 0
    left = rows - 1 - line - CARD_ROWS - 1 - notices
    trend_rows = 0
    least = PANE_LEAST if pane else LOG_LEAST
    if columns >= 80:
        for height, spare in ((3, 14), (2, 6), (1, 0)):
            if left >= 2 + GAUGES * height + least + spare:
                trend_rows = height
                break
    if trend_rows:
        left -= 2 + GAUGES * trend_rows
    shown = 0
    if pane:
        shown = left if left < PANE_LEAST + LOG_LEAST else min(PANE_ROWS, left - LOG_LEAST)
    return ReplayPlan(False, line, panel, trend_rows, notices, shown, log=left > shown)
