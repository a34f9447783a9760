"""Trends: values over time on a fixed range, drawn as columns.  Pure.

Buckets are cut by time, not by count, and are aligned to the clock, so that a column keeps its
shape while it moves.  A bucket without a value stays blank; nothing is carried over a gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from console.formatting import UNICODE, Glyphs
from console.spans import Line, Role, Span

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Range:
    """A fixed range; values outside are drawn at its end.

    Args:
        high: from here on a column is marked as over its threshold, None for no mark.
    """

    low: float
    top: float
    high: float | None = None


def buckets(
    points: Iterable[tuple[int, T | None]], end_ms: int, window_ms: int, columns: int
) -> list[list[T]]:
    """The values of each of ``columns`` equal stretches of the window that ends at ``end_ms``.

    Args:
        points: (time in ms, value) in any order; a missing value adds nothing.
    """
    if columns <= 0:
        return []
    size = max(window_ms // columns, 1)
    last = end_ms // size
    result: list[list[T]] = [[] for _ in range(columns)]
    for at_ms, value in points:
        column = columns - 1 - (last - at_ms // size)
        if value is not None and 0 <= column < columns:
            result[column].append(value)
    return result


def means(values: Sequence[Sequence[float]]) -> list[float | None]:
    """The mean of each bucket, None for an empty one."""
    return [sum(bucket) / len(bucket) if bucket else None for bucket in values]


def draw(
    values: Sequence[float | None], within: Range, rows: int = 1, glyphs: Glyphs = UNICODE
) -> tuple[Line, ...]:
    """Draw ``values`` as columns ``rows`` characters high, top row first.

    Every value leaves a mark, the range's lower end included: only a missing one is blank.
    """
    steps = len(glyphs.bars)
    heights = [level(value, within, rows * steps) for value in values]
    drawn: list[Line] = []
    for row in range(rows - 1, -1, -1):
        cells = [
            (
                " " if height is None else _cell(height - row * steps, glyphs.bars),
                _role(value, within),
            )
            for height, value in zip(heights, values, strict=True)
        ]
        drawn.append(runs(cells))
    return tuple(drawn)


def level(value: float | None, within: Range, steps: int) -> int | None:
    """The height of ``value`` in 1 to ``steps``; None if it is missing."""
    if value is None or math.isnan(value):
        return None
    span = within.top - within.low
    share = (value - within.low) / span if span > 0 else 0.0
    return 1 + round(min(max(share, 0.0), 1.0) * (steps - 1))


def _cell(height: int, bars: str) -> str:
    return " " if height <= 0 else bars[min(height, len(bars)) - 1]


def _role(value: float | None, within: Range) -> Role:
    over = value is not None and within.high is not None and value >= within.high
    return Role.TREND_HIGH if over else Role.TREND


def runs(cells: Iterable[tuple[str, Role]]) -> Line:
    """Join neighbouring cells of one role."""
    spans: list[Span] = []
    for text, role in cells:
        if spans and (spans[-1].role is role or text == " "):
            spans[-1] = Span(spans[-1].text + text, spans[-1].role)
        else:
            spans.append(Span(text, role))
    return tuple(spans)


def strip(values: Sequence[Sequence[T]], sign: Callable[[T], tuple[str, Role]], blank: str) -> Line:
    """One sign per bucket for its newest value; ``blank`` where nothing was seen."""
    return runs(sign(bucket[-1]) if bucket else (blank, Role.LABEL) for bucket in values)


def nice_top(value: float) -> float:
    """The smallest round number (1, 2, 4, 6 or 8 times a power of ten) that holds ``value``."""
    if value <= 0 or not math.isfinite(value):
        return 1.0
    power: float = 10.0 ** math.floor(math.log10(value))
    for factor in (1, 2, 4, 6, 8, 10):
        if value <= factor * power * (1 + 1e-9):
            return factor * power
    return 10 * power


def progress(held: float, needed: float, cells: int = 10) -> str:
    """A bar of a condition that must hold: ``[####------]``."""
    share = min(max(held / needed, 0.0), 1.0) if needed > 0 else 1.0
    filled = int(share * cells + 1e-9)
    return f"[{'#' * filled}{'-' * (cells - filled)}]"
