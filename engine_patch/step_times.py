"""Measured step times of one rank, from clean windows only.  Pure: times are arguments.

A window is the time between the results of two successive decode steps.  It is clean if both ran
the same tier at the same bucket from a captured graph, and nothing else ran between them: no
prefill, no idle moment, no switch, no retraction.  The numbers are telemetry; no decision of the
engine uses a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine_patch.costs import ContextBand, StepCost, bucket, context_band
from engine_patch.tier import TierName

_SETTLED = 8
"""Samples after which a window far above the mean is taken for a hiccup of the host."""
_HICCUP = 8.0
"""How many times the mean such a window lasts."""


@dataclass(slots=True)
class _Cell:
    samples: int = 0
    mean: float = 0.0
    spread: float = 0.0
    tokens: float = 0.0

    def add(self, ms: float, tokens: int) -> None:
        self.samples += 1
        before = ms - self.mean
        self.mean += before / self.samples
        self.spread += before * (ms - self.mean)
        self.tokens += (tokens - self.tokens) / self.samples


class StepTimes:
    """Collects step times by tier, batch bucket and context band."""

    def __init__(self) -> None:
        self._cells: dict[tuple[TierName, int, ContextBand], _Cell] = {}
        self._last: tuple[TierName, int, int] | None = None
        self.changes = 0
        """Rises with each sample."""

    def disturb(self) -> None:
        """Something else than a decode step happened: the next window is not clean."""
        self._last = None

    def result(
        self, tier: TierName, batch: int, tokens: int, context: float, now_ns: int, *, graph: bool
    ) -> None:
        """The result of a decode step has arrived.

        Args:
            tier: that produced it.
            tokens: emitted by the whole batch.
            context: mean committed tokens per request.
            now_ns: a monotonic clock.
            graph: whether it ran from a captured graph, or graphs are turned off.
        """
        size = bucket(batch)
        last = self._last
        self._last = (tier, size, now_ns) if graph else None
        if not graph or last is None or last[:2] != (tier, size):
            return
        ms = (now_ns - last[2]) / 1e6
        cell = self._cells.setdefault((tier, size, context_band(context)), _Cell())
        if ms <= 0 or (cell.samples >= _SETTLED and ms > _HICCUP * cell.mean):
            return
        cell.add(ms, tokens)
        self.changes += 1

    def table(self) -> tuple[StepCost, ...]:
        """The cells with their statistics."""
        return tuple(
            StepCost(
                tier=tier,
                bucket=size,
                band=band,
                samples=cell.samples,
                mean_ms=round(cell.mean, 6),
                var_ms2=round(cell.spread / (cell.samples - 1), 9) if cell.samples > 1 else 0.0,
                tokens_per_step=round(cell.tokens, 6),
            )
            for (tier, size, band), cell in sorted(self._cells.items())
        )
