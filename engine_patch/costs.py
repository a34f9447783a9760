"""Step-cost table: how long one decode step takes, by tier, batch bucket and context band.

Accept length never changes a step time; it changes how many tokens the step yields.  Prefill is a
separate cost.
"""

from __future__ import annotations

import bisect
from enum import StrEnum

from pydantic import Field

from engine_patch.tier import TierName, Wire

BUCKETS: tuple[int, ...] = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Batch buckets in running requests; a batch belongs to the smallest bucket that holds it."""


class ContextBand(StrEnum):
    """Mean committed tokens per running request."""

    UP_TO_1K = "<=1k"
    UP_TO_4K = "<=4k"
    UP_TO_16K = "<=16k"
    MORE = ">16k"


def bucket(batch: int) -> int:
    """The batch bucket of ``batch`` running requests (at least 1)."""
    index = bisect.bisect_left(BUCKETS, max(batch, 1))
    return BUCKETS[min(index, len(BUCKETS) - 1)]


def context_band(tokens: float) -> ContextBand:
    """The context band of ``tokens`` mean committed tokens per running request."""
    if tokens <= 1024:
        return ContextBand.UP_TO_1K
    if tokens <= 4096:
        return ContextBand.UP_TO_4K
    if tokens <= 16384:
        return ContextBand.UP_TO_16K
    return ContextBand.MORE


class StepCost(Wire):
    """One cell of the table.

    Args:
        samples: clean steps measured; 0 marks an interpolated cell.
        mean_ms: mean step time in milliseconds.
        var_ms2: variance of the step time in ms^2.
        tokens_per_step: mean tokens emitted per step by the whole batch.
        measured: False for a cell interpolated between measured neighbours.
    """

    tier: TierName
    bucket: int = Field(ge=1)
    band: ContextBand = ContextBand.UP_TO_1K
    samples: int = Field(ge=0)
    mean_ms: float = Field(gt=0)
    var_ms2: float = Field(default=0.0, ge=0)
    tokens_per_step: float | None = Field(default=None, ge=0)
    measured: bool = True
