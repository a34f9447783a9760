"""The one sentence a manager understands.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.bench_crossover import Crossover, Sign
from controlplane.bench_findings import Base, Point, SeriesFindings
from engine_patch.tier import OFF

NO_PLAIN = " (no plain server was measured)"


def verdict(
    tier_text: str, points: Sequence[Point], found: Crossover, base: Base | None, limit: str | None
) -> str:
    """What one series means.

    Args:
        limit: why nothing is said above the last point (unequal caps).
    """
    if base is None:
        return (
            f"Nothing can be said of {tier_text}: neither a plain server nor tier off was "
            "measured on the same setup."
        )
    if not points:
        why = f": {limit}" if limit else ": no point of it can be compared"
        return f"Nothing can be said of {tier_text} against {base.text}{why}."
    tail = f"; above that nothing is said, because {limit}" if limit else ""
    return f"{_body(tier_text, points, found, base)}{tail}."


def _body(tier_text: str, points: Sequence[Point], found: Crossover, base: Base) -> str:
    gains = [point for point in points if point.sign is Sign.FASTER]
    losses = [point for point in points if point.sign is Sign.SLOWER]
    last = points[-1].concurrency
    against = f"compared with {base.text.removesuffix(NO_PLAIN)}"
    if points[0].tier == OFF:
        return _off(tier_text, losses, against, last)
    best = max(gains, key=lambda point: point.speedup) if gains else None
    worst = min(losses, key=lambda point: point.speedup) if losses else None
    if best is None and worst is None:
        return f"{tier_text} makes no measurable difference {against} at {_span(points)}"
    if best is None:
        assert worst is not None
        unsure = [point.concurrency for point in points if point.sign is Sign.TIE]
        ties = f" (at {_listed(unsure)} the two cannot be told apart)" if unsure else ""
        return (
            f"{tier_text} is not shown to pay at any measured load{ties} and costs up to "
            f"{_percent(worst)} of the tokens per second at {_load(worst.concurrency)}, "
            f"{against}: leave it off"
        )
    gain = f"{tier_text} gives up to {_percent(best)} more tokens per second"
    if worst is None:
        return (
            f"{gain} (at {_load(best.concurrency)}, {against}) and was never seen to cost anything "
            f"up to {last}: leave it on"
        )
    if found.low is None or found.high is None or found.low > found.high:
        return (
            f"{gain} at {_load(best.concurrency)} and costs {_percent(worst)} at "
            f"{worst.concurrency}, {against}, but not in one order: measure more before switching"
        )
    return (
        f"{gain} (at {_load(best.concurrency)}, {against}), pays up to {found.low} and costs "
        f"{_percent(worst)} at {worst.concurrency}: switch it off somewhere between "
        f"{found.low} and {found.high}"
    )


def _off(tier_text: str, losses: Sequence[Point], against: str, last: int) -> str:
    if not losses:
        return (
            f"Switched off ({tier_text}) the server loses nothing measurable, {against}, up to "
            f"{_load(last)}"
        )
    worst = min(losses, key=lambda point: point.speedup)
    return (
        f"Switched off by {tier_text} the server loses {_percent(worst)} of its tokens per second "
        f"at {_load(worst.concurrency)}, {against}: do not count on it as an off"
    )


def overall(series: Sequence[SeriesFindings], best: Crossover) -> str:
    """The verdict of a file of several series."""
    speculating = [one for one in series if one.tier != OFF]
    if len(speculating) == 1:
        return speculating[0].verdict
    if not series:
        return "Nothing was compared: the file holds no speculating tier beside plain or off."
    if not speculating:
        return series[0].verdict
    setups = {(one.backend, one.engine_version, one.gpu, one.label) for one in speculating}
    if len(setups) > 1:
        return (
            f"{len(speculating)} series on {len(setups)} setups were measured, each with a verdict "
            "of its own."
        )
    tiers = ", ".join(one.tier for one in speculating)
    if best.low is None and best.high is None:
        return f"None of {tiers} is shown to pay or to cost: {best.reason}."
    if best.low is None:
        return f"None of {tiers} is shown to pay at any measured load: {best.reason}."
    if best.high is None:
        return f"With the best of {tiers}, speculation pays up to {best.low}: {best.reason}."
    return (
        f"With the best of {tiers}, speculation pays up to {best.low} requests at a time and costs "
        f"from {best.high} on: switch it off somewhere between."
    )


def _percent(point: Point) -> str:
    return f"{abs(point.speedup - 1) * 100:.0f} %"


def _span(points: Sequence[Point]) -> str:
    first, last = points[0].concurrency, points[-1].concurrency
    return _load(first) if first == last else f"{first} to {_load(last)}"


def _load(concurrency: int) -> str:
    return "1 request at a time" if concurrency == 1 else f"{concurrency} requests at a time"


def _listed(values: Sequence[int]) -> str:
    return ", ".join(str(value) for value in values)
