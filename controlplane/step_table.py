"""A step-cost table as plain numbers: tokens per second by tier and running requests.  Pure."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from engine_patch.costs import ContextBand, StepCost, context_band
from engine_patch.tier import OFF, TierShape

_BANDS = tuple(ContextBand)


@dataclass(frozen=True, slots=True)
class Row:
    """One tier in one context band: buckets, rising, with their step times in milliseconds."""

    buckets: tuple[int, ...]
    step_ms: tuple[float, ...]

    def at(self, load: int) -> float:
        """Step time at ``load`` running requests: linear between buckets, flat outside."""
        place = bisect_left(self.buckets, load)
        if place == 0:
            return self.step_ms[0]
        if place == len(self.buckets):
            # Past the last bucket a step takes longer in proportion at most.
            return self.step_ms[-1] * load / self.buckets[-1]
        low, high = self.buckets[place - 1], self.buckets[place]
        share = (load - low) / (high - low)
        return self.step_ms[place - 1] + share * (self.step_ms[place] - self.step_ms[place - 1])


@dataclass(frozen=True, slots=True)
class StepTable:
    """Step times by tier and band, and the accept lengths the table was measured with.

    Args:
        accept: tokens per step and request, by tier; a tier without it is missing.
    """

    rows: dict[tuple[str, ContextBand], Row]
    accept: dict[str, float]

    def step_ms(self, tier: str, load: int, context: float = 0.0) -> float | None:
        """Step time of ``tier``; the nearest measured context band counts."""
        wanted = _BANDS.index(context_band(context))
        for distance in range(len(_BANDS)):
            for place in (wanted - distance, wanted + distance):
                if 0 <= place < len(_BANDS):
                    row = self.rows.get((tier, _BANDS[place]))
                    if row is not None:
                        return row.at(load)
        return None

    def rate(self, tier: str, load: int) -> float | None:
        """Steps per second times running requests: tok/s for an accept length of 1."""
        step = self.step_ms(tier, load)
        return None if step is None else load * 1000 / step


def step_table(costs: tuple[StepCost, ...]) -> StepTable | None:
    """The table of these costs; None if there are none."""
    if not costs:
        return None
    cells: dict[tuple[str, ContextBand], dict[int, float]] = {}
    rates: dict[str, list[float]] = {}
    for cost in costs:
        cells.setdefault((cost.tier, cost.band), {})[cost.bucket] = cost.mean_ms
        if cost.tokens_per_step:
            rates.setdefault(cost.tier, []).append(cost.tokens_per_step / cost.bucket)
    rows = {
        key: Row(tuple(sorted(cell)), tuple(cell[at] for at in sorted(cell)))
        for key, cell in cells.items()
    }
    # A bucket's steps hold at most that many requests, so the largest quotient is the truest.
    accept = {
        tier: min(max(max(found), 1.0), TierShape.parse(tier).num_steps + 1.0)
        for tier, found in rates.items()
        if tier != OFF
    }
    return StepTable(rows, accept | {tier: 1.0 for tier, _ in rows if tier == OFF})
