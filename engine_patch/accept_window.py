"""Accept length of the newest verify steps of a tier.  Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import accumulate

from engine_patch.contract import AcceptWindow
from engine_patch.tier import TierName, TierShape

WINDOW_STEPS = 64
"""Verify steps in the accept window."""


class Window:
    """Accepted drafts of the newest verify steps of one tier, with running sums."""

    __slots__ = ("_depths", "_rows", "accepted", "requests", "tier")

    def __init__(self, tier: TierName) -> None:
        self.tier = tier
        self._rows: deque[tuple[int, int, tuple[int, ...]]] = deque()
        self.requests = self.accepted = 0
        self._depths = [0] * TierShape.parse(tier).num_steps

    def add(self, accepted: Sequence[int]) -> None:
        """Add one verify step: accepted drafts of each of its requests."""
        most = len(self._depths)
        counts = [0] * (most + 1)
        for count in accepted:
            counts[count if count < most else most] += 1
        # A request that accepted n drafts accepted each of the first n positions.
        depths = list(accumulate(reversed(counts[1:])))[::-1]
        row = (len(accepted), sum(accepted), tuple(depths))
        self._rows.append(row)
        self._shift(row, 1)
        if len(self._rows) > WINDOW_STEPS:
            self._shift(self._rows.popleft(), -1)

    def _shift(self, row: tuple[int, int, tuple[int, ...]], sign: int) -> None:
        self.requests += sign * row[0]
        self.accepted += sign * row[1]
        for depth, count in enumerate(row[2]):
            self._depths[depth] += sign * count

    @property
    def length(self) -> float | None:
        """Tokens per verify step and request, bonus included; None for an empty window."""
        return 1 + self.accepted / self.requests if self.requests else None

    def record(self) -> AcceptWindow:
        """The window as it is reported."""
        return AcceptWindow(
            tier=self.tier,
            length=self.length,
            requests=self.requests,
            steps=len(self._rows),
            per_position=tuple(d / self.requests for d in self._depths) if self.requests else (),
        )
