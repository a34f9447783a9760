"""Thresholds from a benchmark, with the gain they promise.  Pure.

Each measured concurrency is given a tier so that the whole load range loses least against the best
tier of each point, never quieter again as load rises.  A boundary lies where the two tiers' curves
cross between the two measured concurrencies around it, so that no measured point lies inside a gap.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from pydantic import Field

from controlplane.bench_candidates import (
    OffRule,
    ProposalError,
    add_off,
    candidates,
    quiet_first,
    rates_of,
)
from controlplane.bench_cells import Series
from controlplane.bench_records import BenchPoint
from engine_patch.tier import OFF, Boundary, Frozen, Thresholds, TierShape
from store.policies import HysteresisPolicy

__all__ = ["OffRule", "Predicted", "Proposal", "ProposalError", "propose"]

GAP = 0.1
"""Distance from ``up_at`` down to ``down_at``, as a share of the crossing."""
FEWER = 0.8
"""Share of the clients below which the running batch is worth a word."""
SWITCH_COST = 0.002
"""Relative speed that a further tier must bring to be worth a boundary."""


class Predicted(Frozen):
    """What the proposal gives at one measured concurrency.

    Args:
        tok_s: measured speed of the tier it would run there.
        share_of_best: that speed over the best tier's.
        against: gain over staying on each tier that is known there, as a share.
        interpolated: tiers whose speed there lies between two measured ones.
    """

    concurrency: int
    tier: str
    tok_s: float
    best_tier: str
    share_of_best: float
    against: dict[str, float]
    interpolated: tuple[str, ...] = ()


class Proposal(Frozen):
    """Thresholds and what they promise.

    Args:
        worst_share_of_best: over all measured concurrencies.
        gain: in one sentence.
        notes: what a reader must know before applying it.
    """

    policy: HysteresisPolicy
    thresholds: Thresholds
    predicted: tuple[Predicted, ...]
    worst_share_of_best: float
    gain: str
    notes: tuple[str, ...] = Field(default=())


def propose(
    points: Sequence[BenchPoint],
    *,
    dp_size: int = 1,
    only_chains: bool = False,
    off: OffRule = OffRule.MEASURED,
) -> Proposal:
    """Thresholds for the setup that was measured.

    Args:
        points: runs of one setup.
        dp_size: replicas the requests were spread over; thresholds are per replica.
        only_chains: leave trees out, for engines that cannot switch to one.
        off: what stands for ``off``.

    Raises:
        ProposalError: several setups, or nothing to choose between.
    """
    notes: list[str] = []
    tiers = candidates(points, notes, only_chains=only_chains)
    without_off = add_off(points, tiers, notes, off)
    names = sorted(tiers, key=quiet_first)
    rates = rates_of(names, tiers)
    grid = sorted({at for speeds in rates.values() for at in speeds})
    if len(names) < (1 if without_off else 2) or not grid:
        raise ProposalError(
            "thresholds need a speculating tier and off (or a plain server) measured at the same "
            "concurrencies without anything in the way"
        )
    notes += _left_out(names, grid, tiers)
    chosen = _assign(names, grid, rates)
    used = [name for name in names if name in chosen.values()]
    boundaries = _boundaries(used, grid, chosen, rates, tiers, dp_size)
    least = min(grid, key=lambda at: _batch(tiers[chosen[at]], at) / at)
    batch = _batch(tiers[chosen[least]], least)
    if batch < FEWER * least:
        notes.append(
            f"{least} clients kept {batch:.0f} requests running, the others were in prefill or on "
            "their way: thresholds count running requests"
        )
    if OFF in names and OFF not in used:
        notes.append("off never wins; it stays as the busiest tier because it gives KV slots back")
        top = grid[-1] // dp_size
        boundaries.append(_above(top + 1, math.floor(top * (1 - GAP)), boundaries))
        used.append(OFF)
    if used == [OFF]:
        notes.append(
            "no speculating tier wins anywhere: it runs only while nothing does, so that a better "
            "accept length can be noticed"
        )
        used.insert(0, max(names[:-1], key=lambda name: rates[name].get(grid[0], 0.0)))
        boundaries = [Boundary(up_at=1, down_at=0)]
    predicted = tuple(_predicted(at, chosen[at], rates, tiers) for at in grid)
    floors = _floors(used, tiers)
    return Proposal(
        policy=HysteresisPolicy(
            tiers=tuple(used), boundaries=tuple(boundaries), min_accept_length=floors
        ),
        thresholds=Thresholds(
            tiers=tuple(used), boundaries=tuple(boundaries), min_accept_length=floors
        ),
        predicted=predicted,
        worst_share_of_best=min(one.share_of_best for one in predicted),
        gain=_gain(predicted),
        notes=tuple(notes),
    )


def _left_out(names: Sequence[str], grid: Sequence[int], tiers: Mapping[str, Series]) -> list[str]:
    """Says at which loads off was measured in vain, and others were not."""
    if OFF not in names:
        return []
    vain = {one.concurrency for one in tiers[OFF].left_out}
    there = {at for name in names for at in tiers[name].cells}
    lost = sorted((vain & there) - set(grid))
    if not lost:
        return []
    at = ", ".join(map(str, lost))
    return [
        f"nothing is proposed from what was measured at {at}: off has no usable run there, so "
        "nothing says whether speculation pays"
    ]


def _assign(
    names: Sequence[str], grid: Sequence[int], rates: Mapping[str, Mapping[int, float]]
) -> dict[int, str]:
    """A tier for each concurrency: least total loss against the best one, in order of load."""
    loss: list[float] = [0.0] * len(names)
    trail: list[list[int]] = []
    for step, at in enumerate(grid):
        best = max(rates[name][at] for name in names if at in rates[name])
        here: list[float] = []
        back: list[int] = []
        for place, name in enumerate(names):
            ways = [
                (loss[before] + (SWITCH_COST if step and before != place else 0.0), before)
                for before in range(place + 1)
            ]
            cost, before = min(ways) if step else (0.0, place)
            known = rates[name].get(at)
            here.append(cost + (math.inf if known is None else math.log(best / known)))
            back.append(before)
        loss = here
        trail.append(back)
    place = min(range(len(names)), key=lambda index: loss[index])
    chosen: dict[int, str] = {}
    for step in range(len(grid) - 1, -1, -1):
        chosen[grid[step]] = names[place]
        place = trail[step][place]
    return chosen


def _boundaries(
    used: Sequence[str],
    grid: Sequence[int],
    chosen: Mapping[int, str],
    rates: Mapping[str, Mapping[int, float]],
    tiers: Mapping[str, Series],
    dp_size: int,
) -> list[Boundary]:
    boundaries: list[Boundary] = []
    for quiet, busy in itertools.pairwise(used):
        low = max(at for at in grid if chosen[at] == quiet)
        high = min(at for at in grid if chosen[at] == busy)
        share = 0.5
        if all(at in rates[tier] for at in (low, high) for tier in (quiet, busy)):
            lead = [math.log(rates[quiet][at] / rates[busy][at]) for at in (low, high)]
            # The curves cross at a share of the way in the logarithm of the load.
            share = lead[0] / (lead[0] - lead[1]) if lead[0] > 0 > lead[1] else 0.5
        # Measured by clients, applied by running requests, which are fewer.
        below, above = _batch(tiers[quiet], low), _batch(tiers[busy], high)
        first = math.ceil(below) + 1
        crossing = math.exp(math.log(below) + share * (math.log(above) - math.log(below)))
        up_at = max(min(math.ceil(crossing), math.floor(above)), first)
        down_at = min(max(math.floor(crossing * (1 - GAP)), math.ceil(below)), up_at - 1)
        boundaries.append(_above(-(-up_at // dp_size), down_at // dp_size, boundaries))
    return boundaries


def _batch(series: Series, at: int) -> float:
    """Requests that ran on average with ``at`` clients; ``at`` where nobody told."""
    cell = series.cells.get(at)
    told = [run.running for run in cell.runs if run.running] if cell is not None else []
    return min(fmean(told), at) if told else at


def _above(up_at: int, down_at: int, earlier: Sequence[Boundary]) -> Boundary:
    """A valid boundary next to these numbers that lies above the earlier ones."""
    if earlier:
        up_at = max(up_at, earlier[-1].up_at + 1)
        down_at = max(down_at, earlier[-1].down_at + 1)
    up_at = max(up_at, 1)
    return Boundary(up_at=up_at, down_at=max(min(down_at, up_at - 1), 0))


def _predicted(
    at: int,
    tier: str,
    rates: Mapping[str, Mapping[int, float]],
    tiers: Mapping[str, Series],
) -> Predicted:
    here = {name: speeds[at] for name, speeds in rates.items() if at in speeds}
    best = max(here, key=lambda name: here[name])
    return Predicted(
        concurrency=at,
        tier=tier,
        tok_s=here[tier],
        best_tier=best,
        share_of_best=here[tier] / here[best],
        against={name: here[tier] / speed - 1 for name, speed in here.items()},
        interpolated=tuple(name for name in here if at not in tiers[name].cells),
    )


def _floors(used: Sequence[str], tiers: Mapping[str, Series]) -> dict[str, float]:
    """Break-even accept lengths against ``off`` where speculation pays most: below them a tier
    loses everywhere."""
    if OFF not in used:
        return {}
    floors: dict[str, float] = {}
    for name in used:
        shared = tiers[name].cells.keys() & tiers[OFF].cells.keys()
        if name == OFF or not shared:
            continue
        cell, other = tiers[name].cells[min(shared)], tiers[OFF].cells[min(shared)]
        if cell.accept_length is None:
            continue
        even = cell.accept_length * other.tok_s / cell.tok_s
        most = TierShape.parse(name).num_steps + 1
        if even < most:
            floors[name] = round(max(even, 1.0), 2)
    return floors


def _gain(predicted: Sequence[Predicted]) -> str:
    """The most that switching brings over staying on each tier."""
    parts = []
    for name in dict.fromkeys(name for one in predicted for name in one.against):
        known = [one for one in predicted if name in one.against]
        most = max(known, key=lambda one: one.against[name])
        if most.against[name] > 0:
            parts.append(
                f"{100 * most.against[name]:.0f} % more tokens per second at {most.concurrency} "
                f"than staying on {name}"
            )
    worst = min(predicted, key=lambda one: one.share_of_best)
    best = (
        "never slower than the best tier at a measured concurrency"
        if worst.share_of_best >= 0.9995
        else f"at worst {100 * worst.share_of_best:.1f} % of the best tier, at {worst.concurrency}"
    )
    return f"{'; '.join(parts) or 'no gain over one tier'}; {best}"
