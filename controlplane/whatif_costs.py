"""What a tier would have decoded per second, from a step-cost table.  Pure.

``tok/s = batch * tokens per verify step / step time``.  Only cells of the table count, and only
accept lengths that were seen in the recording or measured with the table: where either is missing
there is no number.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controlplane.whatif_moments import Moment
from engine_patch.costs import BUCKETS, ContextBand, StepCost, bucket, context_band
from engine_patch.tier import OFF

MIN_ACCEPT_REQUESTS = 512
"""Request-steps a recording must hold of a tier before its own accept length is used."""
FLOOR = 0.01
"""Smallest relative standard error of a step time: tables age."""
INTERPOLATED = 0.04
"""That of a cell between measured ones."""
TABLE_ACCEPT = 0.04
"""Relative standard error of an accept length that comes with the table: other work was drafted."""


@dataclass(frozen=True, slots=True)
class Accept:
    """Tokens per verify step and request of one tier.

    Args:
        error: relative standard error.
        source: "recorded" or "table".
    """

    length: float
    error: float
    source: str


@dataclass(frozen=True, slots=True)
class Rate:
    """Decode tokens per second, with its relative standard error."""

    tok_s: float
    error: float


class CostModel:
    """A table and accept lengths as rates.

    Args:
        costs: cells of one setup.
        accepts: by tier; ``off`` needs none.
    """

    def __init__(self, costs: Iterable[StepCost], accepts: dict[str, Accept]) -> None:
        self._cells: dict[tuple[str, ContextBand], list[StepCost]] = {}
        for cost in costs:
            self._cells.setdefault((cost.tier, cost.band), []).append(cost)
        for cells in self._cells.values():
            cells.sort(key=lambda cell: cell.bucket)
        self.accepts = accepts
        self._known: dict[tuple[str, int, ContextBand], Rate | None] = {}

    @property
    def tiers(self) -> set[str]:
        """Tiers with at least one cell."""
        return {tier for tier, _ in self._cells}

    def accept(self, tier: str) -> float:
        """Tokens per step and request of a tier; 1 where nothing is known."""
        known = self.accepts.get(tier)
        return 1.0 if known is None or tier == OFF else known.length

    def rate(self, tier: str, batch: float, band: ContextBand) -> Rate | None:
        """Tokens per second of ``batch`` running requests; None where the table has no cell.

        Between two neighbouring buckets that the table has, step times are interpolated.
        """
        if batch <= 0:
            return Rate(0.0, 0.0)
        key = (tier, round(batch * 16), band)
        if key not in self._known:
            self._known[key] = self._rate(tier, key[1] / 16, band)
        return self._known[key]

    def _rate(self, tier: str, batch: float, band: ContextBand) -> Rate | None:
        accept = Accept(1.0, 0.0, "off") if tier == OFF else self.accepts.get(tier)
        step = self._step(tier, max(batch, 1.0), band)
        if accept is None or step is None:
            return None
        tok_s = batch * accept.length / step.tok_s * 1000
        return Rate(tok_s, math.hypot(accept.error, step.error))

    def _step(self, tier: str, batch: float, band: ContextBand) -> Rate | None:
        """Step time in ms (as ``tok_s``) with its error."""
        cells = self._cells.get((tier, band))
        if not cells:
            return None
        buckets = [cell.bucket for cell in cells]
        at = bisect.bisect_left(buckets, batch)
        if at == len(cells):
            return None
        upper = cells[at]
        lower = cells[at - 1] if at else None
        whole = bucket(math.ceil(batch)) >= upper.bucket
        if lower is None:
            return Rate(upper.mean_ms, _error(upper)) if whole else None
        if not whole and any(lower.bucket < one < upper.bucket for one in BUCKETS):
            return None  # the bucket of this batch is not in the table
        share = (batch - lower.bucket) / (upper.bucket - lower.bucket)
        mean = lower.mean_ms + share * (upper.mean_ms - lower.mean_ms)
        return Rate(mean, max(_error(lower), _error(upper)))


def _error(cell: StepCost) -> float:
    if not cell.measured or cell.samples == 0:
        return INTERPOLATED
    return max(FLOOR, math.sqrt(cell.var_ms2 / cell.samples) / cell.mean_ms)


def accepts_of(moments: Sequence[Moment], costs: Iterable[StepCost]) -> dict[str, Accept]:
    """Accept lengths by tier: the recording's own where it has enough, else the table's.

    Neighbouring samples share verify steps, so only every sixteenth window counts for the error.
    """
    seen: dict[str, list[tuple[float, int]]] = {}
    for moment in moments:
        tier = moment.accept_tier
        if moment.accept is not None and tier is not None and tier == moment.tier:
            seen.setdefault(tier, []).append((moment.accept, moment.accept_requests))
    found: dict[str, Accept] = {}
    for tier, windows in seen.items():
        requests = sum(count for _, count in windows)
        if requests < MIN_ACCEPT_REQUESTS:
            continue
        mean = sum(length * count for length, count in windows) / requests
        spread = sum(count * (length - mean) ** 2 for length, count in windows) / requests
        apart = max(len(windows) / 16, 1.0)
        found[tier] = Accept(mean, math.sqrt(spread / apart) / mean, "recorded")
    from_table: dict[str, list[float]] = {}
    for cost in costs:
        if cost.tokens_per_step is not None and cost.tier != OFF:
            from_table.setdefault(cost.tier, []).append(cost.tokens_per_step / cost.bucket)
    for tier, lengths in from_table.items():
        length = sum(lengths) / len(lengths)
        if tier not in found and length >= 1:
            found[tier] = Accept(length, TABLE_ACCEPT, "table")
    return found


def band_of(moment: Moment) -> ContextBand:
    """The context band of a moment; the smallest where the engine does not tell its KV slots."""
    if moment.committed is None or moment.total <= 0:
        return ContextBand.UP_TO_1K
    return context_band(moment.committed / moment.total)
