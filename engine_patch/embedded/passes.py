"""Forward passes of the embedded engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from engine_patch.embedded.requests import Request
from engine_patch.tier import TierName


class Kind(StrEnum):
    """What a pass does."""

    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(slots=True)
class Pass:
    """A forward pass that is under way.

    Args:
        tokens: prompt tokens computed (prefill).
        chunks: tokens computed per request (prefill).
    """

    kind: Kind
    start_ms: float
    end_ms: float
    tier: TierName
    requests: list[Request]
    chunks: list[int] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Prompt tokens computed by it."""
        return sum(self.chunks)
