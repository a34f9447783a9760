"""Where to measure next: time goes where the answer is least certain.  Pure.

The question is the crossover, so the grid is searched from its quiet end (a quiet point costs few
requests) by halving; a concurrency that cannot be told apart from a tie is passed over first and
measured again when the ends of the band are known.  One step is one block: base, tier, tier, base.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from controlplane.bench_cells import Cell, Series, beyond_caps, series_of
from controlplane.bench_noise import Interval, intervals, repeats, student
from controlplane.bench_records import BenchPoint
from engine_patch.tier import Frozen

PRIOR_NOISE = 0.05
"""Noise of one run assumed before repeats have shown it, as a share."""
PRIOR_FREEDOM = 4
"""How many degrees of freedom that assumption is worth."""
MARGIN = 1.2
"""A sign counts as known when its distance from 1 is this many times what an interval needs."""
SURE = 1.6
"""Both ends of the band this many times as far as needed: nothing is left to learn."""
PATIENCE = 4
"""Pairs after which an end of the band that is not resolved is looked for one step further."""
MOST_BLOCKS = 12
"""A concurrency that needs more blocks than this to leave a tie is a tie."""


class NextBlock(Frozen):
    """One block to measure: ``base``, ``tier``, ``tier``, ``base`` at one concurrency.

    Args:
        price: requests it costs.
        reason: why this one, in a sentence.
    """

    base: str
    tier: str
    concurrency: int
    price: int
    reason: str


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known at one concurrency.

    Args:
        pairs: pairs of runs.
        distance: of the log ratio from 0, in units of what an interval needs, with a prior noise:
            what the search goes by.
        resolved: the same by the interval that the analysis will give.
    """

    pairs: int
    distance: float
    resolved: float

    @property
    def certainty(self) -> float:
        """The smaller of the two, without sign."""
        return min(abs(self.distance), self.resolved)

    @property
    def sign(self) -> int:
        """1 faster, -1 slower, 0 not known."""
        if abs(self.distance) < MARGIN:
            return 0
        return 1 if self.distance > 0 else -1


def next_block(
    points: Sequence[BenchPoint],
    *,
    base: str,
    tiers: Sequence[str],
    grid: Sequence[int],
    left: float,
    price: Callable[[int], int],
) -> NextBlock | None:
    """The block to measure next; None if nothing more can be learnt for what is left.

    Args:
        points: runs so far, of one setup.
        base: what is compared with: ``plain`` or ``off``.
        tiers: speculating tiers to place.
        grid: concurrencies that may be measured, rising.
        left: requests that may still be sent.
        price: requests of one block at a concurrency.
    """
    every = {series.tier: series for series in series_of(points)}
    wishes: list[tuple[float, NextBlock]] = []
    for tier in tiers:
        known = _known(every.get(tier), every.get(base))
        usable = _usable(every.get(tier), every.get(base), grid)
        for wish in _wishes(known, usable, left, price):
            at, worth, reason = wish
            block = NextBlock(
                base=base, tier=tier, concurrency=at, price=price(at), reason=f"{tier}: {reason}"
            )
            wishes.append((worth, block))
            break
    return max(wishes, key=lambda wish: wish[0])[1] if wishes else None


def _usable(series: Series | None, base: Series | None, grid: Sequence[int]) -> tuple[int, ...]:
    """The grid without what caps forbid or what turned out not to be comparable."""
    if series is None or base is None:
        return tuple(grid)
    gone = {
        left.concurrency
        for one in (series, base)
        for left in one.left_out
        if left.concurrency not in one.cells
    }
    return tuple(at for at in grid if at not in gone and not beyond_caps(series, base, at))


def _known(series: Series | None, base: Series | None) -> dict[int, _Known]:
    if series is None or base is None:
        return {}
    pairs = {
        at: _pairs(cell, base.cells[at]) for at, cell in series.cells.items() if at in base.cells
    }
    pairs = {at: values for at, values in pairs.items() if values}
    freedom = PRIOR_FREEDOM
    squares = PRIOR_FREEDOM * 2 * PRIOR_NOISE**2
    for values in pairs.values():
        mean = fmean(values)
        squares += sum((value - mean) ** 2 for value in values)
        freedom += len(values) - 1
    spread = math.sqrt(squares / freedom)
    needed = student(0.975, freedom) * spread
    bounds = intervals(
        {
            at: found
            for at in pairs
            if (found := repeats(series.cells[at].runs, base.cells[at].runs)) is not None
        }
    )
    return {
        at: _Known(
            len(values),
            fmean(values) * math.sqrt(len(values)) / needed,
            _resolved(bounds[at]) if at in bounds else 0.0,
        )
        for at, values in pairs.items()
    }


def _resolved(bounds: Interval) -> float:
    """Distance of an interval's middle from 0 in half widths, in logarithms."""
    low, high = math.log(bounds.low), math.log(bounds.high)
    return abs(low + high) / (high - low) if high > low else math.inf


def _pairs(cell: Cell, other: Cell) -> list[float]:
    theirs = {run.repeat: run.tok_s for run in other.runs}
    return [math.log(run.tok_s / theirs[run.repeat]) for run in cell.runs if run.repeat in theirs]


def _wishes(
    known: Mapping[int, _Known], grid: Sequence[int], left: float, price: Callable[[int], int]
) -> list[tuple[int, float, str]]:
    """What would help, best first: concurrency, worth, reason.  Empty if nothing would."""
    affordable = [at for at in grid if price(at) <= left]
    if not affordable:
        return []
    if grid[0] not in known:
        return [(grid[0], math.inf, "the quiet end comes first")]
    low = max((at for at in grid if at in known and known[at].sign > 0), default=None)
    high = min(
        (at for at in grid if at in known and known[at].sign < 0 and (low is None or at > low)),
        default=None,
    )
    gap = [
        at
        for at in affordable
        if at not in known and (low is None or at > low) and (high is None or at < high)
    ]
    if high is None:
        # Halve what lies above everything that was measured.
        gap = [at for at in gap if at > max(at for at in grid if at in known)] or gap
    if gap and (low is not None or known[grid[0]].sign == 0):
        # Of the two middle ones the quieter is cheaper.
        at = gap[(len(gap) - 1) // 2]
        bounds = f"{low if low is not None else 'nothing'} and {high or 'the end of the grid'}"
        return [(at, 1e6 * len(gap), f"between {bounds} nothing is known of {at}")]
    return _repeat(known, grid, low, high, left, price)


def _repeat(
    known: Mapping[int, _Known],
    grid: Sequence[int],
    low: int | None,
    high: int | None,
    left: float,
    price: Callable[[int], int],
) -> list[tuple[int, float, str]]:
    """Measure again: what leaves its tie for least, else the weaker end of the band."""
    open_ties = [
        at
        for at in grid
        if at in known
        and known[at].sign == 0
        and (low is None or at > low)
        and (high is None or at < high)
    ]
    offers: list[tuple[float, int, str]] = []
    for at in open_ties:
        blocks = _blocks_needed(known[at])
        if blocks * price(at) <= left and known[at].pairs / 2 + blocks <= MOST_BLOCKS:
            offers.append(
                (blocks * price(at), at, f"{at} is not resolved; about {blocks} more blocks")
            )
    if high is None and offers:
        # Without an upper end the busiest tie is the one that matters.
        offers.sort(key=lambda offer: -offer[1])
        _, at, reason = offers[0]
        return [(at, 1e3, reason)]
    if offers:
        _, at, reason = min(offers)
        return [(at, 1e3, reason)]
    beyond = next((at for at in grid if high is not None and at > high), None)
    if (
        high is not None
        and beyond is not None
        and beyond not in known
        and known[high].resolved < 1
        and known[high].pairs >= PATIENCE
        and price(beyond) <= left
    ):
        # A loss grows with the load: the next concurrency may show it where this one does not.
        return [(beyond, 1e2, f"{high} is not resolved; {beyond} bounds the band from above")]
    ends = [at for at in (low, high) if at is not None and price(at) <= left]
    weak = [
        at
        for at in ends
        if known[at].certainty < SURE * MARGIN and known[at].pairs < 2 * MOST_BLOCKS
    ]
    if not weak:
        return []
    at = min(weak, key=lambda end: known[end].certainty)
    worth = 1.0 / max(known[at].certainty, 1e-3)
    return [(at, worth, f"{at} is the less certain end of the band")]


def _blocks_needed(known: _Known) -> int:
    """Further blocks after which a ratio like the one seen would be resolved."""
    if known.distance == 0:
        return MOST_BLOCKS + 1
    pairs = known.pairs * (MARGIN / abs(known.distance)) ** 2
    return max(1, math.ceil(min((pairs - known.pairs) / 2, MOST_BLOCKS + 1)))
