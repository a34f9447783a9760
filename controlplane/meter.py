"""Decode speed of one tier at one load, and how sure it is.  Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

METER_MS = 20_000
"""Clean time after which a meter forgets half of what it has seen."""
SAMPLES = 3
"""Samples that both sides need, so that their noise can be told."""


@dataclass(frozen=True, slots=True)
class Meter:
    """Decode speed of one tier at one batch bucket.

    Args:
        bucket: of the busiest replica's running requests.
        ms: clean time seen, older time counting less.
        tokens, prefill, load_ms: decode tokens, prompt tokens, requests x ms in it.
        samples, rates, squares: number of samples, sum of their tok/s and of its squares.
    """

    bucket: int
    ms: float = 0.0
    tokens: float = 0.0
    prefill: float = 0.0
    load_ms: float = 0.0
    samples: float = 0.0
    rates: float = 0.0
    squares: float = 0.0

    @property
    def tok_s(self) -> float:
        """Mean decode tokens per second."""
        return self.tokens * 1000 / self.ms

    @property
    def load(self) -> float:
        """Mean running requests over all replicas."""
        return self.load_ms / self.ms

    @property
    def prefill_share(self) -> float:
        """Prompt tokens per decoded token."""
        return self.prefill / self.tokens

    @property
    def error(self) -> float:
        """Standard error of the mean as a share of it."""
        mean = self.rates / self.samples
        if mean <= 0 or self.samples < 2:
            return 1.0
        variance = max(self.squares / self.samples - mean * mean, 0.0)
        return math.sqrt(variance / (self.samples - 1)) / mean

    def usable(self, least_ms: float) -> bool:
        return self.ms >= least_ms and self.samples >= SAMPLES and self.tokens > 0
