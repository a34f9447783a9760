"""Estimated tokens per second of a policy over a recording, with an interval and its coverage.

The table says how long decode steps take; ``whatif_fit`` says how well it fits the recorded engine
and what prompts cost beside them.  Both are carried over to the other policy.  Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from controlplane.whatif_arrivals import Arrivals, Queue
from controlplane.whatif_costs import CostModel, band_of
from controlplane.whatif_fit import Fit
from controlplane.whatif_moments import Moment
from engine_patch.tier import Frozen

Z95 = 1.96
TRANSFER = 0.02
"""Relative standard error of carrying the fit over to another tier."""
FEWER_PASSES, MORE_PASSES = 0.45, 1.3
"""How much cheaper or dearer prefill passes may come: requests that finish together are prefilled
together, and a recording does not tell how they would have fallen under another policy."""
COUNTING = 0.005
"""Relative half width that an interval has at least: counters are read at polls."""

Ask = Callable[[Moment, int, int], str | None]
"""The tier at a moment for (running requests of the busiest replica, of all)."""


class LoadModel(StrEnum):
    """What the load would have done under another policy."""

    RECORDED = "recorded"
    """As many requests run at a time as were recorded: clients that wait for their answers."""
    ARRIVALS = "arrivals"
    """The same requests come at the same times: clients that do not wait."""


class Estimate(Frozen):
    """Tokens per second over the covered time.

    Args:
        tok_s: estimated decode tokens per second; None if nothing is covered.
        low, high: 95 % interval.
        coverage: share of the time with requests that the table covers, 0 to 1.
        seconds: covered time.
    """

    tok_s: float | None
    low: float | None
    high: float | None
    coverage: float
    seconds: float


def under_recorded_load(
    moments: Sequence[Moment],
    tiers: Sequence[str | None],
    model: CostModel,
    known: Fit | None,
) -> Estimate:
    """The tiers of a course with the load as it was recorded."""
    made = error = moved = busy = covered = idle = 0.0
    last = len(moments) - 1
    for at, (moment, tier) in enumerate(zip(moments, tiers, strict=True)):
        seconds = moment.dt_ms / 1000
        if not seconds or at == last:
            continue
        batch = (moment.total + moments[at + 1].total) / 2
        if batch <= 0:
            idle += seconds
            made += moment.tokens or 0
            continue
        busy += seconds
        rate = None if tier is None else model.rate(tier, batch, band_of(moment))
        if tier is None or rate is None or known is None:
            continue
        covered += seconds
        if tier == moment.tier and moment.tokens is not None:
            made += moment.tokens  # it was measured
            continue
        share = known.busy_rate(rate.tok_s, batch * model.accept(tier)) * seconds
        made += share
        moved += share
        error += share * math.hypot(rate.error, TRANSFER)
    coverage = covered / busy if busy else 0.0
    span = covered + idle
    if not covered or known is None:
        return Estimate(tok_s=None, low=None, high=None, coverage=coverage, seconds=covered)
    half = Z95 * math.hypot(error, known.error * moved) + COUNTING * made
    return Estimate(
        tok_s=made / span,
        low=max(made - half, 0.0) / span,
        high=(made + half) / span,
        coverage=coverage,
        seconds=span,
    )


def under_arrivals(
    moments: Sequence[Moment],
    ask: Callable[[], Ask],
    model: CostModel,
    known: Fit | None,
    arrivals: Arrivals,
    *,
    most: int | None,
) -> tuple[Estimate, list[str | None]]:
    """A policy with the same arrivals; its interval comes from rates a little lower and higher.

    Args:
        ask: begins anew and asks the policy.
        most: ``max_running_requests``; what comes beyond waits.

    Returns:
        The estimate and the tier by moment.
    """
    middle = _flow(moments, ask(), model, known, arrivals, most, 0.0)
    low = _flow(moments, ask(), model, known, arrivals, most, -1.0)
    high = _flow(moments, ask(), model, known, arrivals, most, 1.0)
    span = middle.covered + middle.idle
    if not span or not middle.covered:
        coverage = middle.covered / middle.busy if middle.busy else 0.0
        nothing = Estimate(tok_s=None, low=None, high=None, coverage=coverage, seconds=0.0)
        return nothing, middle.tiers
    # How much the requests under way at the end had left is not known well.
    ends = COUNTING * middle.made + Z95 * arrivals.mean * math.sqrt(
        max(middle.left, arrivals.cut, 1)
    )
    tok_s = middle.made / span
    bottom = min(low.made, middle.made) - ends
    top = max(high.made, middle.made) + ends
    estimate = Estimate(
        tok_s=tok_s,
        low=max(bottom / span, 0.0),
        high=top / span,
        coverage=middle.covered / middle.busy if middle.busy else 0.0,
        seconds=span,
    )
    return estimate, middle.tiers


@dataclass
class _Flowed:
    tiers: list[str | None]
    made: float = 0.0
    covered: float = 0.0
    busy: float = 0.0
    idle: float = 0.0
    left: int = 0


def _flow(
    moments: Sequence[Moment],
    ask: Ask,
    model: CostModel,
    known: Fit | None,
    arrivals: Arrivals,
    most: int | None,
    bend: float,
) -> _Flowed:
    queue = Queue(most)
    out = _Flowed([])
    if known is not None and bend:
        share = FEWER_PASSES if bend > 0 else MORE_PASSES
        known = replace(
            known,
            pass_s=known.pass_s * share,
            token_s=max(known.token_s - bend * Z95 * known.token_error, 0.0),
        )
    debt, paid = 0.0, 0
    for moment, works in zip(moments, arrivals.works, strict=True):
        if moment.first:
            queue.clear()
            debt = 0.0
        running = queue.running
        recorded = max(moment.total, 1)
        load = running if moment.load == moment.total else round(running * moment.load / recorded)
        tier = ask(moment, load, running)
        out.tiers.append(tier)
        queue.come(works)
        seconds = moment.dt_ms / 1000
        if not seconds:
            continue
        running = queue.running
        if not running:
            out.idle += seconds
            continue
        out.busy += seconds
        rate = None if tier is None else model.rate(tier, running, band_of(moment))
        if tier is None or rate is None or known is None:
            queue.advance((moment.tokens or 0) / seconds, seconds)  # as recorded, not counted
            continue
        out.covered += seconds
        error = Z95 * math.hypot(rate.error, TRANSFER, known.error)
        per_step = running * model.accept(tier)
        tok_s = rate.tok_s / known.stretch * (1 + bend * error)
        debt += known.prompts_between(queue.admitted - paid, per_step / tok_s, seconds)
        prompts = min(debt, seconds)
        debt -= prompts
        paid = queue.admitted
        if queue.count > running:
            # Each that finishes lets one in, whose prompt takes its time then and there.
            tok_s = known.busy_rate(rate.tok_s * (1 + bend * error), per_step)
            out.made += queue.advance(tok_s, seconds - prompts)
            paid = queue.admitted
        else:
            out.made += queue.advance(tok_s, seconds - prompts)
    out.left = queue.count
    return out
