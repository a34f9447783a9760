"""How sure a measured ratio is: bootstrap intervals over repeats, tolerances without them.  Pure.

**Repeats.**  The unit is one repeat of the ratio: the two runs of the same repeat number, measured
next to each other where runs were interleaved (A B B A), which takes slow drift out; where the
numbers do not match, each side by itself.  The residuals of the logarithms are resampled with
replacement.  Up to seven repeats, those of the same two tiers at other concurrencies are pooled
with them, because two to four values alone cannot show their own spread: the quiet ones (below 128)
and the busy ones apart, as their noise was measured to differ, and a point that is much noisier
than its pool not at all.  Quantiles are stretched by Student's t over the normal quantile for the
degrees of freedom there are.  The resamples are drawn by a fixed generator, so the same file always
gives the same interval.

**One run.**  There is no interval.  A ratio closer to 1 than the noise of two single runs is a tie.
The noise was measured by repeating short closed loops on one H200 (8B shape, SGLang 0.5.17): up to
10 % without drafts at 128 and 256 running requests, 1 % for a chain.  Below 128 half of it is
assumed, and for a tree as much as that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean

from controlplane.bench_records import BenchPoint

CONFIDENCE = 0.95
RESAMPLES = 1000
OWN_REPEATS = 8
"""From so many repeats on a point's own residuals are used, not pooled ones."""
LEAST_FREEDOM = 2
"""Degrees of freedom that the points of one load range must bring to be pooled by themselves."""
OWN_IF_NOISIER = 4
NOISIER = 3.0
"""With four repeats or more a point whose variance is so many times its pool's stands alone."""
SEED = 0x5DECC

NOISE_PLAIN = 0.10
NOISE_PLAIN_QUIET = 0.05
BUSY_FROM = 128
NOISE_CHAIN = 0.01
NOISE_TREE = 0.05


def tolerance(run: BenchPoint, base: BenchPoint) -> float:
    """Ratios of two single runs closer to 1 than this are ties."""
    return math.hypot(_noise(run), _noise(base))


def _noise(run: BenchPoint) -> float:
    if not run.speculates:
        return NOISE_PLAIN if run.concurrency >= BUSY_FROM else NOISE_PLAIN_QUIET
    return NOISE_CHAIN if run.shape is not None and run.shape.topk == 1 else NOISE_TREE


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds of a ratio with ``CONFIDENCE``."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class Repeats:
    """Repeated measurements of one ratio.

    Args:
        centre: logarithm of the ratio of means.
        sides: log residuals that vary independently; their means add up.  One side where runs were
            paired, two where numerator and denominator were repeated apart.
    """

    centre: float
    sides: tuple[tuple[float, ...], ...]

    @property
    def smallest(self) -> int:
        """Repeats of the less repeated side."""
        return min(len(side) for side in self.sides)


def repeats(runs: Sequence[BenchPoint], base: Sequence[BenchPoint]) -> Repeats | None:
    """The repeats of a ratio; None if either side was measured once only."""
    if len(runs) < 2 or len(base) < 2:
        return None
    centre = math.log(fmean(r.tok_s for r in runs) / fmean(r.tok_s for r in base))
    paired = _paired(runs, base)
    if paired is not None:
        return Repeats(centre, (_centred(paired),))
    return Repeats(
        centre,
        (
            _centred(sorted(math.log(r.tok_s) for r in runs)),
            _centred(sorted(-math.log(r.tok_s) for r in base)),
        ),
    )


def _paired(runs: Sequence[BenchPoint], base: Sequence[BenchPoint]) -> list[float] | None:
    """Log ratios by repeat number; None if the runs do not pair up."""
    mine = {run.repeat: run.tok_s for run in runs}
    theirs = {run.repeat: run.tok_s for run in base}
    common = sorted(mine.keys() & theirs.keys())
    if len(common) < 2 or len(mine) != len(runs) or len(theirs) != len(base):
        return None
    return [math.log(mine[repeat] / theirs[repeat]) for repeat in common]


def _centred(values: Sequence[float]) -> tuple[float, ...]:
    """Residuals with the spread that the values' parent has: a mean of n values hides 1/n of it."""
    mean = fmean(values)
    scale = math.sqrt(len(values) / (len(values) - 1))
    return tuple((value - mean) * scale for value in values)


def intervals(cells: Mapping[int, Repeats], confidence: float = CONFIDENCE) -> dict[int, Interval]:
    """Intervals of the ratios of one pair of tiers.

    Args:
        cells: repeats by concurrency.
    """
    pools = {
        (sides, place): _pools(cells, sides, place) for sides, place in ((1, 0), (2, 0), (2, 1))
    }
    found: dict[int, Interval] = {}
    for concurrency, cell in cells.items():
        deviations = [0.0] * RESAMPLES
        freedom = 0
        for place, side in enumerate(cell.sides):
            values, degrees = pools[len(cell.sides), place][concurrency]
            freedom += degrees
            rows = _resamples(len(values), len(side), place)
            deviations = [
                so_far + sum(values[index] for index in row) / len(row)
                for so_far, row in zip(deviations, rows, strict=True)
            ]
        deviations.sort()
        tail = (1 - confidence) / 2
        stretch = student(1 - tail, freedom) / NormalDist().inv_cdf(1 - tail)
        low, high = _quantile(deviations, tail), _quantile(deviations, 1 - tail)
        found[concurrency] = Interval(
            low=math.exp(cell.centre + stretch * low), high=math.exp(cell.centre + stretch * high)
        )
    return found


def _pools(
    cells: Mapping[int, Repeats], sides: int, place: int
) -> dict[int, tuple[Sequence[float], int]]:
    """By concurrency, the residuals to resample and their degrees of freedom."""
    here = {at: cell.sides[place] for at, cell in cells.items() if len(cell.sides) == sides}
    found: dict[int, tuple[Sequence[float], int]] = {}
    for at, side in here.items():
        alike = [
            other for where, other in here.items() if (where >= BUSY_FROM) == (at >= BUSY_FROM)
        ]
        if sum(len(other) - 1 for other in alike) < LEAST_FREEDOM:
            alike = list(here.values())
        pool = [value for other in alike for value in other]
        degrees = sum(len(other) - 1 for other in alike)
        if len(side) >= OWN_REPEATS or _noisier(side, pool):
            found[at] = (side, len(side) - 1)
        else:
            found[at] = (pool, degrees)
    return found


def _noisier(side: Sequence[float], pool: Sequence[float]) -> bool:
    """Whether a point is so much noisier than its pool that it must speak for itself."""
    own = fmean(value**2 for value in side)
    return len(side) >= OWN_IF_NOISIER and own > NOISIER * fmean(value**2 for value in pool)


def _quantile(ranked: Sequence[float], share: float) -> float:
    place = share * (len(ranked) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (place - low) * (ranked[high] - ranked[low])


@lru_cache(maxsize=256)
def _resamples(size: int, draws: int, stream: int) -> tuple[tuple[int, ...], ...]:
    """``RESAMPLES`` rows of ``draws`` places below ``size`` (SplitMix64, fixed seed)."""
    state = (SEED + 0x1000193 * stream) & _MASK
    rows = []
    for _ in range(RESAMPLES):
        row = []
        for _ in range(draws):
            state = (state + 0x9E3779B97F4A7C15) & _MASK
            mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
            mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
            row.append(((mixed ^ (mixed >> 31)) >> 11) * size >> 53)
        rows.append(tuple(row))
    return tuple(rows)


_MASK = (1 << 64) - 1


def student(share: float, freedom: int) -> float:
    """Quantile of Student's t: exact for one and two degrees of freedom, else the expansion around
    the normal quantile (within 1 % at three)."""
    if freedom < 1:
        raise ValueError("a quantile of t needs at least one degree of freedom")
    if freedom == 1:
        return math.tan(math.pi * (share - 0.5))
    if freedom == 2:
        return (2 * share - 1) * math.sqrt(2 / (4 * share * (1 - share)))
    z = NormalDist().inv_cdf(share)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )
