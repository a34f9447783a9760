"""An analysis as text: what ``specdeck bench analyze`` prints.  Pure; a missing value is "-"."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from controlplane.bench_arrivals import arrivals_table
from controlplane.bench_findings import Analysis, Bounds, NotComparable, Point, SeriesFindings
from engine_patch.tier import OFF, TierShape

_HEAD = ("req", "tok/s", "base", "speed-up", "95 % interval", "", "accept", "break-even", "floor")


def text(analysis: Analysis) -> str:
    """The whole analysis."""
    parts = [analysis.verdict, ""]
    if analysis.simulated:
        parts += ["The engine's times are simulated from a measured table.", ""]
    if not analysis.complete:
        parts += ["The benchmark was not finished; what is there is analysed.", ""]
    for series in analysis.series:
        parts += [_series(series, said=series.verdict == analysis.verdict), ""]
    parts += [*arrivals_table(analysis.arrivals), *([""] if analysis.arrivals else [])]
    parts += [
        _gone(gone)
        for gone in analysis.not_comparable
        if all(gone not in series.not_comparable for series in analysis.series)
    ]
    parts += [f"note: {note}" for note in analysis.notes]
    return "\n".join(parts).rstrip() + "\n"


def wrapped(shown: str, width: int) -> str:
    """The same with longer lines broken between words, below where they began."""
    lines: list[str] = []
    for line in shown.splitlines():
        if len(line) <= width:
            lines.append(line)
            continue
        inside = line.lstrip()
        _, columns, rest = inside.partition("  ")
        # A heading and its text: the text goes on below itself.
        below = rest.lstrip() if columns else inside
        indent = " " * (len(line) - len(below))
        first = line[: len(line) - len(below)]
        lines += textwrap.wrap(below, width, initial_indent=first, subsequent_indent=indent)
    return "\n".join(lines) + "\n"


def _series(series: SeriesFindings, *, said: bool) -> str:
    """A series' lines, without its verdict where that was said already."""
    against = "-" if series.base is None else series.base.text
    lines = [series.name, *([] if said else [f"  {series.verdict}"]), f"  against    {against}"]
    if series.tier != OFF:
        band = f"{_number(series.crossover.low)} to {_number(series.crossover.high)}"
        lines.append(f"  crossover  {band} requests: {series.crossover.reason}")
    if series.points:
        lines += ["", *table(series.points)]
        noise = [point.tolerance for point in series.points if point.tolerance is not None]
        if noise:
            lines.append(
                f"  one repeat: no interval; differences up to {100 * max(noise):.0f} % count as "
                "ties (measured noise, see docs/benchmarks.md)"
            )
    lines += [
        f"  ! at {below.concurrency}: {below.speedup:.2f} of the base, arithmetic allows no less "
        f"than {below.floor:.2f}; {below.advice}"
        for below in series.below_floor
    ]
    lines += [f"  {_gone(gone)}" for gone in series.not_comparable]
    return "\n".join(lines)


def table(points: Sequence[Point]) -> list[str]:
    """The points of a series as aligned lines."""
    rows = [_HEAD, *(_row(point) for point in points)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if column == 5 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _row(point: Point) -> tuple[str, ...]:
    even = _number(point.break_even, 2)
    if point.break_even is not None:
        most = TierShape.parse(point.tier).num_steps + 1
        even += " (never)" if point.break_even > most else ""
    return (
        str(point.concurrency),
        f"{point.tok_s:,.0f}",
        f"{point.base_tok_s:,.0f}",
        f"{point.speedup:.3f}",
        _bounds(point.interval),
        str(point.sign),
        _number(point.accept_length, 2),
        even,
        _number(point.floor, 2),
    )


def _gone(gone: NotComparable) -> str:
    which = f" (repeats {', '.join(str(one) for one in gone.repeats)})" if gone.repeats else ""
    return f"not comparable: {gone.tier} at {gone.concurrency}{which}: {'; '.join(gone.reasons)}"


def _bounds(bounds: Bounds | None) -> str:
    return "-" if bounds is None else f"{bounds.low:.3f} to {bounds.high:.3f}"


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
