"""Tokens per second over concurrency, drawn with characters: one curve per tier.  Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from console.formatting import Glyphs, short
from console.spans import Line, Role, Span, line
from controlplane.bench_cells import obstacles
from controlplane.bench_records import BenchPoint

AXIS_CELLS = 6
HEADROOM = 1.08
_SHADES = {False: ("░", "┊", "│", "└", "─", "┬"), True: (":", "|", "|", "+", "-", "+")}


@dataclass(frozen=True, slots=True)
class Mark:
    """How a tier is drawn: its sign and role."""

    sign: str
    role: Role


@dataclass(frozen=True, slots=True)
class Spot:
    """One tier at one concurrency: mean, lowest and highest of its repeats, in tok/s."""

    concurrency: int
    mean: float
    low: float
    high: float


def spots(points: Iterable[BenchPoint]) -> dict[str, tuple[Spot, ...]]:
    """The curves, by tier; runs that may not be compared are left out."""
    found: dict[str, dict[int, list[float]]] = {}
    for point in points:
        if not obstacles(point):
            found.setdefault(point.tier, {}).setdefault(point.concurrency, []).append(point.tok_s)
    return {
        tier: tuple(
            Spot(at, fmean(values), min(values), max(values)) for at, values in sorted(here.items())
        )
        for tier, here in found.items()
    }


def plot(
    curves: Mapping[str, Sequence[Spot]],
    marks: Mapping[str, Mark],
    *,
    band: tuple[int | None, int | None],
    now: int | None,
    cells: int,
    height: int,
    glyphs: Glyphs,
) -> tuple[Line, ...]:
    """The picture in ``cells`` by ``height``, two rows of axis included.

    Args:
        band: the crossover's ends; shaded where both are known.
        now: the present concurrency, marked where the picture reaches it.
    """
    every = sorted({spot.concurrency for curve in curves.values() for spot in curve})
    rows, columns = max(height - 2, 1), max(cells - AXIS_CELLS - 1, 8)
    if not every:
        return tuple(line("") for _ in range(height))
    top = HEADROOM * max(spot.high for curve in curves.values() for spot in curve)
    shade, dotted, bar, corner, stroke, tee = _SHADES[glyphs.ascii]

    def column(concurrency: float) -> int:
        low, high = math.log(every[0]), math.log(every[-1])
        if low == high:
            return columns // 2
        return round((math.log(concurrency) - low) / (high - low) * (columns - 3)) + 1

    def row(tok_s: float) -> int:
        return min(max(round((1 - tok_s / top) * (rows - 1)), 0), rows - 1)

    grid: list[list[Span]] = [[Span(" ")] * columns for _ in range(rows)]
    low, high = band
    if low is not None and high is not None and every[0] <= low <= high <= every[-1]:
        for x in range(column(low), column(high) + 1):
            for y in range(rows):
                grid[y][x] = Span(shade, Role.RULE)
    inside = now is not None and every[0] <= now <= every[-1]
    if inside and now is not None:
        for y in range(rows):
            grid[y][column(now)] = Span(dotted, Role.VALUE)
    for tier, curve in curves.items():
        mark = marks[tier]
        _connect(grid, [(column(s.concurrency), row(s.mean)) for s in curve], glyphs, mark.role)
    for tier, curve in curves.items():
        for spot in curve:
            for y in range(row(spot.high), row(spot.low) + 1):
                grid[y][column(spot.concurrency)] = Span(bar, marks[tier].role)
    for tier, curve in curves.items():
        for spot in curve:
            mark = marks[tier]
            grid[row(spot.mean)][column(spot.concurrency)] = Span(mark.sign, mark.role)
    lines = []
    for y in range(rows):
        label = short(_nice(top * (1 - y / max(rows - 1, 1)))) if y % 3 == 0 else ""
        lines.append(
            line(Span(f"{label:>{AXIS_CELLS}}", Role.LABEL), Span(bar, Role.RULE), grid[y])
        )
    ticks = {column(at): at for at in every}
    axis = "".join(tee if x in ticks else stroke for x in range(columns))
    lines.append(line(Span(" " * AXIS_CELLS + corner + axis, Role.RULE)))
    lines.append(_labels(ticks, column(now) if inside and now is not None else None, now, columns))
    return tuple(lines)


def _connect(
    grid: list[list[Span]], places: Sequence[tuple[int, int]], glyphs: Glyphs, role: Role
) -> None:
    """Dots along the way from one point to the next."""
    for (x, y), (to_x, to_y) in itertools.pairwise(places):
        for step in range(x + 1, to_x):
            share = (step - x) / (to_x - x)
            grid[round(y + share * (to_y - y))][step] = Span(glyphs.nothing, role)


def _nice(value: float) -> float:
    """A value with two digits: an axis label is no measurement."""
    if value < 1:
        return 0.0
    scale = 10.0 ** (math.floor(math.log10(value)) - 1)
    return round(value / scale) * scale


def _labels(ticks: Mapping[int, int], at: int | None, now: int | None, columns: int) -> Line:
    text = [" "] * columns
    roles = [Role.LABEL] * columns

    def put(center: int, words: str, role: Role) -> None:
        start = min(max(center - len(words) // 2, 0), columns - len(words))
        around = text[max(start - 1, 0) : start + len(words) + 1]
        if all(char == " " for char in around):
            text[start : start + len(words)] = words
            roles[start : start + len(words)] = [role] * len(words)

    if at is not None:
        put(at, f"now {now}", Role.VALUE)
    for x, concurrency in ticks.items():
        put(x, str(concurrency), Role.LABEL)
    spans = [Span(char, role) for char, role in zip(text, roles, strict=True)]
    return line(Span(" " * (AXIS_CELLS + 1)), spans)
