"""Thresholds from a benchmark, with the gain they promise.  Pure.

Each measured concurrency is given a tier so that the whole load range loses least against the best
tier of each point, never quieter again as load rises.  A boundary lies where the two tiers' curves
cross between the two measured concurrencies around it, so that no measured point lies inside a gap.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from pydantic import Field

from controlplane.bench_cells import Series, beyond_caps, series_of
from controlplane.bench_noise import tolerance
from controlplane.bench_records import PLAIN, BenchPoint
from engine_patch.contract import OffKind
from engine_patch.tier import OFF, Boundary, Frozen, Thresholds, TierShape
from store.policies import HysteresisPolicy

GAP = 0.1
"""Distance from ``up_at`` down to ``down_at``, as a share of the crossing."""
SWITCH_COST = 0.002
"""Relative speed that a further tier must bring to be worth a boundary."""


class ProposalError(ValueError):
    """No thresholds can be proposed; the text says what is missing."""


class Predicted(Frozen):
    """What the proposal gives at one measured concurrency.

    Args:
        tok_s: measured speed of the tier it would run there.
        share_of_best: that speed over the best tier's.
        against: gain over staying on each tier that was measured there, as a share.
    """

    concurrency: int
    tier: str
    tok_s: float
    best_tier: str
    share_of_best: float
    against: dict[str, float]


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
    points: Sequence[BenchPoint], *, dp_size: int = 1, only_chains: bool = False
) -> Proposal:
    """Thresholds for the setup that was measured.

    Args:
        points: runs of one setup.
        dp_size: replicas the requests were spread over; thresholds are per replica.
        only_chains: leave trees out, for engines that cannot switch to one.

    Raises:
        ProposalError: several setups, or fewer than two tiers with a common concurrency.
    """
    notes: list[str] = []
    tiers = _tiers(points, notes, only_chains=only_chains)
    grid = _grid(tiers)
    if len(tiers) < 2 or not grid:
        raise ProposalError(
            "thresholds need a speculating tier and off (or a plain server) measured at the same "
            "concurrencies without anything in the way"
        )
    names = sorted(tiers, key=_quiet_first)
    rates = {name: {at: tiers[name].cells[at].tok_s for at in grid} for name in names}
    chosen = _assign(names, grid, rates)
    used = [name for name in names if name in chosen.values()]
    boundaries = _boundaries(used, grid, chosen, rates, dp_size)
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
        used.insert(0, max(names[:-1], key=lambda name: rates[name][grid[0]]))
        boundaries = [Boundary(up_at=1, down_at=0)]
    predicted = tuple(_predicted(at, chosen[at], rates) for at in grid)
    floors = _floors(used, tiers, grid[0])
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


def _tiers(
    points: Sequence[BenchPoint], notes: list[str], *, only_chains: bool
) -> dict[str, Series]:
    every = series_of(points)
    first = next((series for series in every if series.tier not in (PLAIN, OFF)), None)
    if first is None:
        raise ProposalError("no speculating tier was measured")
    for other in every:
        is_yardstick = other.tier in (PLAIN, OFF)
        if not other.setup.fits(first.setup) or not (is_yardstick or other.label == first.label):
            raise ProposalError(
                f"several setups in one file ({first.name}; {other.name}): choose one with "
                "--backend, --tier or --label"
            )
    found: dict[str, Series] = {}
    for series in every:
        if series.tier in (PLAIN, OFF):
            continue
        if only_chains and TierShape.parse(series.tier).topk != 1:
            notes.append(f"{series.tier} left out: a tree cannot be written in this format")
            continue
        found[series.tier] = series
    plain = next((series for series in every if series.tier == PLAIN and series.cells), None)
    offs = [series for series in every if series.tier == OFF and series.cells]
    offs.sort(key=lambda series: series.off_kind is OffKind.ONE_TOKEN_VERIFY)
    if offs and plain is not None and _much_slower(offs[0], plain):
        notes.append(
            f"{offs[0].tier_text} is slower than a plain server by more than the noise: it is not "
            "proposed"
        )
    elif offs:
        found[OFF] = offs[0]
    elif plain is not None:
        notes.append("off was not measured: the plain server's speed stands in for it")
        found[OFF] = plain
    return found


def _much_slower(off: Series, plain: Series) -> bool:
    shared = [at for at in off.cells if at in plain.cells and not beyond_caps(off, plain, at)]
    return any(
        off.cells[at].tok_s
        < plain.cells[at].tok_s * (1 - tolerance(off.cells[at].runs[0], plain.cells[at].runs[0]))
        for at in shared
    )


def _grid(tiers: Mapping[str, Series]) -> list[int]:
    """Concurrencies at which every tier has a usable point."""
    if not tiers:
        return []
    shared = set.intersection(*(set(series.cells) for series in tiers.values()))
    several = list(tiers.values())
    return sorted(
        at
        for at in shared
        if not any(beyond_caps(a, b, at) for a, b in itertools.combinations(several, 2))
    )


def _quiet_first(tier: str) -> tuple[int, int, str]:
    shape = TierShape.parse(tier)
    return (-shape.num_draft_tokens, -shape.num_steps, tier)


def _assign(
    names: Sequence[str], grid: Sequence[int], rates: Mapping[str, Mapping[int, float]]
) -> dict[int, str]:
    """A tier for each concurrency: least total loss against the best one, in order of load."""
    loss: list[float] = [0.0] * len(names)
    trail: list[list[int]] = []
    for step, at in enumerate(grid):
        best = max(rates[name][at] for name in names)
        here: list[float] = []
        back: list[int] = []
        for place, name in enumerate(names):
            ways = [
                (loss[before] + (SWITCH_COST if step and before != place else 0.0), before)
                for before in range(place + 1)
            ]
            cost, before = min(ways) if step else (0.0, place)
            here.append(cost + math.log(best / rates[name][at]))
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
    dp_size: int,
) -> list[Boundary]:
    boundaries: list[Boundary] = []
    for quiet, busy in itertools.pairwise(used):
        low = max(at for at in grid if chosen[at] == quiet)
        high = min(at for at in grid if chosen[at] == busy)
        lead = [math.log(rates[quiet][at] / rates[busy][at]) for at in (low, high)]
        # The curves cross at a share of the way in the logarithm of the load.
        share = lead[0] / (lead[0] - lead[1]) if lead[0] > 0 > lead[1] else 0.5
        crossing = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
        up_at = min(max(math.ceil(crossing), low + 1), high)
        down_at = min(max(math.floor(crossing * (1 - GAP)), low), up_at - 1)
        boundaries.append(_above(-(-up_at // dp_size), down_at // dp_size, boundaries))
    return boundaries


def _above(up_at: int, down_at: int, earlier: Sequence[Boundary]) -> Boundary:
    """A valid boundary next to these numbers that lies above the earlier ones."""
    if earlier:
        up_at = max(up_at, earlier[-1].up_at + 1)
        down_at = max(down_at, earlier[-1].down_at + 1)
    up_at = max(up_at, 1)
    return Boundary(up_at=up_at, down_at=max(min(down_at, up_at - 1), 0))


def _predicted(at: int, tier: str, rates: Mapping[str, Mapping[int, float]]) -> Predicted:
    best = max(rates, key=lambda name: rates[name][at])
    return Predicted(
        concurrency=at,
        tier=tier,
        tok_s=rates[tier][at],
        best_tier=best,
        share_of_best=rates[tier][at] / rates[best][at],
        against={name: rates[tier][at] / rate[at] - 1 for name, rate in rates.items()},
    )


def _floors(used: Sequence[str], tiers: Mapping[str, Series], quietest: int) -> dict[str, float]:
    """Break-even accept lengths against ``off`` where speculation pays most: below them a tier
    loses everywhere."""
    if OFF not in used:
        return {}
    floors: dict[str, float] = {}
    for name in used:
        cell = tiers[name].cells[quietest]
        if name == OFF or cell.accept_length is None:
            continue
        even = cell.accept_length * tiers[OFF].cells[quietest].tok_s / cell.tok_s
        most = TierShape.parse(name).num_steps + 1
        if even < most:
            floors[name] = round(max(even, 1.0), 2)
    return floors


def _gain(predicted: Sequence[Predicted]) -> str:
    """The most that switching brings over staying on each tier."""
    parts = []
    for name in predicted[0].against:
        most = max(predicted, key=lambda one: one.against[name])
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
