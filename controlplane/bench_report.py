"""A benchmark as one HTML file that needs nothing else: no script, font or picture from outside.

The plots are those of ``controlplane.bench_charts``; every curve is also a table below it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape

from controlplane.bench_charts import speeds, speedups
from controlplane.bench_findings import Analysis, Point, SeriesFindings
from controlplane.bench_propose import Proposal
from controlplane.bench_records import BenchFile
from engine_patch.tier import OFF

_STYLE = """
:root { color-scheme: light dark; --line: #8888; --soft: #8882; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2.5rem }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid var(--line) }
th { font-weight: 600 } td.word, th.word { text-align: left }
.verdict { font-size: 1.15rem; padding: .8rem 1rem; border-left: 4px solid }
.warn::before { content: "! "; font-weight: 700 }
figure { margin: 1rem 0; background: #fff } svg { width: 100%; height: auto }
footer { margin-top: 3rem; font-size: .85rem; opacity: .75 }
@media print { body { max-width: none } }
"""


def html(
    file: BenchFile,
    analysis: Analysis,
    proposal: Proposal | None,
    made_utc_ms: int,
    title: str = "Does speculation pay?",
) -> str:
    """The whole report.

    Raises:
        ModuleNotFoundError: pygal is not installed.
    """
    made = datetime.fromtimestamp(made_utc_ms / 1000, UTC)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        f'<p class="verdict">{escape(analysis.verdict)}</p>',
    ]
    if analysis.simulated:
        parts.append('<p class="warn">The engine\'s times are simulated from a measured table.</p>')
    if not analysis.complete:
        parts.append('<p class="warn">The benchmark was not finished.</p>')
    parts += [_setup_groups(analysis)]
    for series in analysis.series:
        parts.append(_series(series))
    if proposal is not None:
        parts.append(_proposal(proposal))
    parts.append(_left_out(analysis))
    if analysis.notes:
        parts.append("<h2>Notes</h2><ul>")
        parts += [f"<li>{escape(note)}</li>" for note in analysis.notes]
        parts.append("</ul>")
    key = f", setup key {escape(file.setup_key)}" if file.setup_key else ""
    parts.append(
        f"<footer>specdeck, {made:%Y-%m-%d %H:%M} UTC, from {escape(analysis.source or '-')}{key}. "
        f"{len(file.points)} runs. Intervals are 95 %; how they are made: docs/benchmarks.md."
        "</footer></body></html>"
    )
    return "\n".join(parts) + "\n"


def _setup_groups(analysis: Analysis) -> str:
    """One pair of plots per setup and label: speed-up and tokens per second."""
    groups: dict[str, list[SeriesFindings]] = {}
    for series in analysis.series:
        if series.points and series.tier != OFF:
            name = ", ".join(
                part
                for part in (series.backend, series.gpu, series.engine_version, series.label)
                if part
            )
            groups.setdefault(name, []).append(series)
    for series in analysis.series:
        if series.points and series.tier == OFF:
            for name, members in groups.items():
                same = (members[0].backend, members[0].gpu, members[0].engine_version)
                if same == (series.backend, series.gpu, series.engine_version):
                    groups[name].append(series)
    parts = []
    for name, members in groups.items():
        base = members[0].base.text if members[0].base else "-"
        parts.append(f"<h2>{escape(name or 'Curves')}</h2>")
        parts.append(f"<figure>{speedups(members, base)}</figure>")
        parts.append(f"<figure>{speeds(members, base)}</figure>")
    return "\n".join(parts)


def _series(series: SeriesFindings) -> str:
    parts = [f"<h2>{escape(series.name)}</h2>", f"<p>{escape(series.verdict)}</p>"]
    if series.tier != OFF:
        parts.append(
            f"<p>Crossover: low {_number(series.crossover.low)}, high "
            f"{_number(series.crossover.high)}; {escape(series.crossover.reason)}.</p>"
        )
    if series.points:
        head = "".join(
            f"<th{' class=word' if word else ''}>{name}</th>"
            for name, word in (
                ("requests", False),
                ("tok/s", False),
                ("base tok/s", False),
                ("speed-up", False),
                ("95 % interval", False),
                ("", True),
                ("accept length", False),
                ("break-even", False),
                ("floor", False),
            )
        )
        rows = "".join(_row(point) for point in series.points)
        parts.append(f"<table><tr>{head}</tr>{rows}</table>")
    parts += [
        f'<p class="warn">at {below.concurrency}: {below.speedup:.2f} of the base, arithmetic '
        f"allows no less than {below.floor:.2f}; {escape(below.advice)}</p>"
        for below in series.below_floor
    ]
    return "\n".join(parts)


def _row(point: Point) -> str:
    interval = (
        "-" if point.interval is None else f"{point.interval.low:.3f} to {point.interval.high:.3f}"
    )
    cells = (
        str(point.concurrency),
        f"{point.tok_s:,.0f}",
        f"{point.base_tok_s:,.0f}",
        f"{point.speedup:.3f}",
        interval,
    )
    more = (_number(point.accept_length, 2), _number(point.break_even, 2), _number(point.floor, 2))
    return (
        "<tr>"
        + "".join(f"<td>{cell}</td>" for cell in cells)
        + f'<td class="word">{escape(str(point.sign))}</td>'
        + "".join(f"<td>{cell}</td>" for cell in more)
        + "</tr>"
    )


def _proposal(proposal: Proposal) -> str:
    rows = "".join(
        f'<tr><td>{one.concurrency}</td><td class="word">{escape(one.tier)}</td>'
        f'<td>{one.tok_s:,.0f}</td><td class="word">{escape(one.best_tier)}</td>'
        f"<td>{100 * one.share_of_best:.1f} %</td></tr>"
        for one in proposal.predicted
    )
    tiers = " → ".join(proposal.policy.tiers)
    edges = ", ".join(
        f"busier from {boundary.up_at}, back at {boundary.down_at}"
        for boundary in proposal.policy.boundaries
    )
    notes = "".join(f'<p class="warn">{escape(note)}</p>' for note in proposal.notes)
    return (
        "<h2>Proposed thresholds</h2>"
        f"<p>{escape(tiers)}: {escape(edges or 'no boundary')} (running requests per replica). "
        f"Expected: {escape(proposal.gain)}.</p>{notes}"
        "<table><tr><th>requests</th><th class=word>tier</th><th>tok/s</th>"
        f"<th class=word>best tier</th><th>of best</th></tr>{rows}</table>"
    )


def _left_out(analysis: Analysis) -> str:
    if not analysis.not_comparable:
        return ""
    rows = "".join(
        f'<tr><td class="word">{escape(gone.series)}</td><td>{gone.concurrency}</td>'
        f'<td class="word">{escape("; ".join(gone.reasons))}</td></tr>'
        for gone in analysis.not_comparable
    )
    return (
        "<h2>Not comparable</h2><table><tr><th class=word>series</th><th>requests</th>"
        f"<th class=word>why</th></tr>{rows}</table>"
    )


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
