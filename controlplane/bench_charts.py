"""The pictures of a benchmark's report, as plain SVG.

Drawn by pygal (extra ``report``), which is imported with the first picture; its tooltips would be
loaded from the network, so they are left out.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import PathFinder
from typing import Any
from xml.etree import ElementTree as ET

from controlplane.bench_findings import Point, SeriesFindings
from engine_patch.tier import OFF

_WIDTH, _HEIGHT = 900, 420
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
"""Okabe and Ito's colours, which colour-blind people can tell apart."""
_LINE = {"show_dots": False}


@contextmanager
def _finders_kept() -> Iterator[None]:
    """Undo what an import does to how this process finds modules and distributions.

    pygal leaves an import finder of an old kind behind, which would warn at every later import that
    does not succeed; the importlib_metadata it brings takes the standard library's finder of
    distributions away in favour of its own.
    """
    finders = list(sys.meta_path)
    distributions = PathFinder.__dict__.get("find_distributions")
    try:
        yield
    finally:
        sys.meta_path[:] = finders
        if distributions is not None:
            PathFinder.find_distributions = distributions  # type: ignore[method-assign]


def _chart(title: str, points: Sequence[Point], colours: Sequence[str], y_title: str) -> Any:
    with _finders_kept():
        import pygal
        from pygal.style import DefaultStyle

    marks = sorted({point.concurrency for point in points})
    style = DefaultStyle(
        background="#fff",
        plot_background="#fff",
        title_font_size=16,
        font_family="system-ui, sans-serif",
        colors=tuple(colours),
    )
    # The concurrencies double; pygal has no logarithmic x axis, so the logarithm is drawn.
    chart = pygal.XY(
        title=title,
        x_title="requests at a time",
        y_title=y_title,
        width=_WIDTH,
        height=_HEIGHT,
        style=style,
        js=(),
        disable_xml_declaration=True,
        legend_at_bottom=True,
        legend_at_bottom_columns=2,
        truncate_legend=-1,
        allow_interruptions=True,
        no_data_text="no comparable point",
    )
    chart.x_labels = [math.log2(at) for at in marks]
    chart.x_value_formatter = _as_concurrency
    return chart


def _as_concurrency(x: float) -> str:
    return f"{2**x:.0f}"


def speedups(members: Sequence[SeriesFindings], base: str) -> str:
    """Curves with their intervals, the line of equality, and the crossover band."""
    points = [point for series in members for point in series.points]
    curves: list[tuple[str, str, list[Any], dict[str, Any]]] = []
    for place, series in enumerate(members):
        colour = _COLOURS[place % len(_COLOURS)]
        curves.append((_legend(series), colour, [_dot(point) for point in series.points], {}))
        bars = _bars(series.points)
        if bars:
            title = "95 % interval"
            curves.append((title, colour, bars, _LINE | {"stroke_style": {"width": 3}}))
    ends = [math.log2(min(points, key=_load).concurrency)]
    ends.append(math.log2(max(points, key=_load).concurrency))
    curves.append(("equal", "#444", [(x, 1.0) for x in ends], dict(_LINE)))
    top = max(point.speedup for point in points)
    for at in _band(members) or ():
        line = [(math.log2(at), 0.0), (math.log2(at), top)]
        curves.append(
            (f"crossover band, {at}", "#888", line, _LINE | {"stroke_style": {"dasharray": "4, 6"}})
        )
    chart = _chart(
        f"Speed-up against {base}", points, [colour for _, colour, _, _ in curves], "times as fast"
    )
    for title, _, values, options in curves:
        chart.add(title, values, **options)
    return _drawn(chart)


def _drawn(chart: Any) -> str:
    """The picture without pygal's script, which would only feed its tooltips."""
    tree = chart.render_tree()
    for parent in list(tree.iter()):
        for child in list(parent):
            if not isinstance(child.tag, str) or child.tag.endswith("script"):
                parent.remove(child)
    return ET.tostring(tree, encoding="unicode")


def _load(point: Point) -> int:
    return point.concurrency


def _dot(point: Point) -> tuple[float, float]:
    return (math.log2(point.concurrency), point.speedup)


def _bars(points: Sequence[Point]) -> list[Any]:
    """One upright line per interval, with breaks between them."""
    bars: list[Any] = []
    for point in points:
        if point.interval is not None:
            x = math.log2(point.concurrency)
            bars += [(x, point.interval.low), (x, point.interval.high), (None, None)]
    return bars[:-1]


def speeds(members: Sequence[SeriesFindings], base: str) -> str:
    """Tokens per second of each curve and of what it is compared with."""
    points = [point for series in members for point in series.points]
    colours = [_COLOURS[place % len(_COLOURS)] for place in range(len(members))]
    chart = _chart("Output tokens per second", points, [*colours, "#444"], "tok/s")
    for series in members:
        chart.add(
            _legend(series),
            [(math.log2(point.concurrency), point.tok_s) for point in series.points],
        )
    of_base = {point.concurrency: point.base_tok_s for point in points}
    chart.add(base, [(math.log2(at), speed) for at, speed in sorted(of_base.items())])
    return _drawn(chart)


def _band(members: Sequence[SeriesFindings]) -> tuple[int, int] | None:
    speculating = [series for series in members if series.tier != OFF]
    if len(speculating) != 1:
        return None
    found = speculating[0].crossover
    return None if found.low is None or found.high is None else (found.low, found.high)


def _legend(series: SeriesFindings) -> str:
    kind = f" ({series.off_kind.value.replace('_', ' ')})" if series.off_kind else ""
    return f"{series.tier}{kind} {series.label}".rstrip()
