"""A session as one self-contained HTML page: no scripts, no requests, readable in print."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from controlplane.setup_key import setup_key
from controlplane.whatif_answer import Subject, subject_of
from controlplane.whatif_costs import band_of
from store.records import Decision, Marker
from store.session_reader import SessionFile

WIDTH, HEIGHT = 960, 90
POINTS = 480
"""Points along a time line at most; each is the mean of what it stands for."""
SHADES = ("#3b6ea5", "#e0a030", "#7a9a4a", "#a05c8c", "#606060", "#2a8f8f")
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#1b1b1b;background:#fff;max-width:1000px;
margin:2em auto;padding:0 1em}
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}
table{border-collapse:collapse}td,th{padding:.2em .8em .2em 0;text-align:left;vertical-align:top}
td.n,th.n{text-align:right}svg{display:block;max-width:100%}.d{color:#555}
"""


def render(session: SessionFile, version: str) -> str:
    """The page.

    Args:
        version: of this specdeck, for the last line.

    Raises:
        StoreError: nothing is known of the engine or its policy.
    """
    subject = subject_of(session)
    name = session.meta.get("name") or session.path.stem
    parts = [
        f"<h1>{_e(name)}</h1>",
        f"<p>{_e(_when(subject))}</p>",
        "<h2>In short</h2>",
        *(f"<p>{_e(line)}</p>" for line in _summary(session, subject)),
        "<h2>Time line</h2>",
        *_timeline(subject, session.markers()),
        "<h2>Where time went</h2>",
        _lost(subject),
        "<h2>Decisions</h2>",
        _decisions(session.decisions()),
        "<h2>Step-cost table</h2>",
        _table(subject),
        f'<p class="d">Made by specdeck {_e(version)} from {_e(session.path.name)}.</p>',
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{_e(name)}</title>'
        f"<style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def _e(text: object) -> str:
    return html.escape(str(text))


def _clock(utc_ms: int) -> str:
    return datetime.fromtimestamp(utc_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _when(subject: Subject) -> str:
    moments = subject.moments.moments
    if not moments:
        return "There is no usable sample in this recording."
    begin, end = _clock(moments[0].at_utc_ms), _clock(moments[-1].at_utc_ms)
    identity = subject.config.facts.identity
    model = "-" if identity is None else f"{identity.model} on {identity.gpu or '-'}"
    told = " Step times of this engine are simulated." if subject.config.facts.simulated else ""
    return f"{begin} to {end}, {subject.moments.seconds:.0f} s with samples. {model}.{told}"


def _summary(session: SessionFile, subject: Subject) -> Iterable[str]:
    moments = subject.moments.moments
    tokens = sum(one.tokens or 0 for one in moments)
    seconds = subject.moments.seconds
    yield (
        f"{len(moments)} samples, {subject.moments.gaps} failed polls, "
        f"{session.unreadable} unreadable rows."
    )
    if seconds:
        most = max(one.total for one in moments)
        yield (
            f"The engine decoded {tokens} tokens, {tokens / seconds:.0f} tok/s on average "
            f"(from its own counter); at most {most} requests ran at a time."
        )
    spent = subject.recorded.seconds_in(moments)
    shares = ", ".join(
        f"{tier} {value / max(sum(spent.values()), 1e-9):.0%}"
        for tier, value in sorted(spent.items(), key=lambda one: -one[1])
    )
    yield f"Tiers: {shares or '-'}. It changed tier {len(subject.recorded.switches)} times."
    overrides = session.overrides()
    if overrides:
        yield f"{len(overrides)} overrides by people were in force."
    policy = subject.config.policy
    yield f"Policy version {policy.version} ({policy.policy.kind}), stance {policy.stance.value}."


def _timeline(subject: Subject, markers: Sequence[Marker]) -> Iterable[str]:
    moments = subject.moments.moments
    if len(moments) < 2:
        yield "<p>-</p>"
        return
    begin, end = moments[0].now_ms, moments[-1].now_ms
    span = max(end - begin, 1)

    def x(now_ms: int) -> float:
        return (now_ms - begin) / span * WIDTH

    tiers = sorted({one.tier for one in moments if one.tier is not None})
    shade = {tier: SHADES[index % len(SHADES)] for index, tier in enumerate(tiers)}
    strip = []
    start = moments[0]
    for before, moment in zip(moments, [*moments[1:], None], strict=True):
        if moment is None or moment.tier != start.tier:
            if start.tier is not None:
                left, right = x(start.now_ms), x((moment or before).now_ms)
                strip.append(
                    f'<rect x="{left:.1f}" y="0" width="{max(right - left, 0.8):.1f}" height="14" '
                    f'fill="{shade[start.tier]}"><title>{_e(start.tier)}</title></rect>'
                )
            if moment is not None:
                start = moment
    flags = [
        f'<line x1="{x(at):.1f}" x2="{x(at):.1f}" y1="0" y2="14" stroke="#000">'
        f"<title>{_e(marker.kind)}: {_e(marker.text)}</title></line>"
        for marker in markers
        if (at := _at(subject, marker.seq)) is not None
    ]
    legend = " · ".join(f'<span style="color:{shade[tier]}">■</span> {_e(tier)}' for tier in tiers)
    yield f"<p>{legend}</p>"
    yield f'<svg viewBox="0 0 {WIDTH} 14" role="img">{"".join(strip)}{"".join(flags)}</svg>'
    load = [(x(one.now_ms), float(one.total)) for one in moments]
    yield _line("running requests", "req", load)
    rates = [
        (x(one.now_ms), one.tokens * 1000 / one.dt_ms)
        for one in moments
        if one.dt_ms and one.tokens is not None
    ]
    yield _line("decode", "tok/s", rates)
    accepts = [(x(one.now_ms), one.accept) for one in moments if one.accept is not None]
    yield _line("accept length", "tok", accepts)


def _at(subject: Subject, seq: int) -> int | None:
    last = None
    for moment in subject.moments.moments:
        if moment.seq > seq:
            break
        last = moment.now_ms
    return last


def _line(name: str, unit: str, points: Sequence[tuple[float, float]]) -> str:
    if not points:
        return f"<p>{_e(name)}: -</p>"
    every = max(len(points) // POINTS, 1)
    means = [
        (
            sum(one for one, _ in group) / len(group),
            sum(value for _, value in group) / len(group),
        )
        for start in range(0, len(points), every)
        if (group := points[start : start + every])
    ]
    top = max(value for _, value in points) or 1.0
    path = " ".join(f"{at:.1f},{HEIGHT - value / top * (HEIGHT - 8):.1f}" for at, value in means)
    return (
        f'<p class="d">{_e(name)}, 0 to {top:.4g} {_e(unit)}</p>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{_e(name)}">'
        f'<polyline points="{path}" fill="none" stroke="#3b6ea5" stroke-width="1.2"/></svg>'
    )


def _lost(subject: Subject) -> str:
    """Time in a tier that the table knows a better one for, by tier and batch bucket."""
    from engine_patch.costs import bucket

    lost: dict[tuple[str, str, int], tuple[float, float]] = {}
    tiers = [tier.name for tier in subject.config.facts.tiers]
    for moment in subject.moments.moments:
        if moment.tier is None or not moment.dt_ms or moment.total < 1:
            continue
        band = band_of(moment)
        rates = {
            tier: rate.tok_s
            for tier in tiers
            if (rate := subject.model.rate(tier, moment.total, band)) is not None
        }
        if moment.tier not in rates:
            continue
        best = max(rates, key=lambda tier: rates[tier])
        share = 1 - rates[moment.tier] / rates[best]
        if share > 0.02:
            key = (moment.tier, best, bucket(moment.total))
            seconds, gone = lost.get(key, (0.0, 0.0))
            lost[key] = (seconds + moment.dt_ms / 1000, gone + share * moment.dt_ms / 1000)
    if not subject.model.tiers:
        return "<p>There is no step-cost table for this setup, so this cannot be said.</p>"
    if not lost:
        return "<p>By the table, the tier that ran was always within 2 % of the best one.</p>"
    rows = "".join(
        f'<tr><td>{_e(tier)}</td><td>{_e(best)}</td><td class="n">{at}</td>'
        f'<td class="n">{seconds:.1f}</td><td class="n">{gone:.1f}</td></tr>'
        for (tier, best, at), (seconds, gone) in sorted(lost.items(), key=lambda one: -one[1][1])
    )
    return (
        '<table><tr><th>ran</th><th>better by the table</th><th class="n">batch up to</th>'
        f'<th class="n">for, s</th><th class="n">worth, s</th></tr>{rows}</table>'
    )


def _decisions(decisions: Sequence[Decision]) -> str:
    if not decisions:
        return "<p>None.</p>"
    rows = "".join(
        f"<tr><td>{_e(_clock(one.at_utc_ms)[11:19])}</td><td>{_e(one.from_tier or '-')} → "
        f"{_e(one.to_tier)}</td><td>{_e(one.author)}</td><td>{_e(one.text)}</td>"
        f"<td>{_e(one.outcome.value)}"
        f"{'' if one.latency_ms is None else f' {one.latency_ms:.0f} ms'}</td></tr>"
        for one in decisions[:500]
    )
    more = f"<p>{len(decisions) - 500} more.</p>" if len(decisions) > 500 else ""
    return f"<table>{rows}</table>{more}"


def _table(subject: Subject) -> str:
    if not subject.model.tiers:
        return "<p>None.</p>"
    accepts = "; ".join(
        f"{tier} {one.length:.2f} tok ({one.source})"
        for tier, one in sorted(subject.model.accepts.items())
    )
    return (
        f"<p>{_e(setup_key(subject.config.facts))}<br>tiers: "
        f"{_e(', '.join(sorted(subject.model.tiers)))}<br>accept length: {_e(accepts or '-')}</p>"
    )
