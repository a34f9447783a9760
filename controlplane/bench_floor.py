"""The arithmetic of speculation: speed-up, break-even accept length, compute-bound floor.  Pure.

``S = tau * T_target / (T_verify + T_draft + T_overhead)``.  Speculation breaks even at
``tau* = (T_verify + T_draft + T_overhead) / T_target``; from two measured throughputs that is
``tau / S``.

Each proposed node is verified, and verifying ``n`` nodes never costs more than ``n`` decode steps
of the same batch, so even a fully compute-bound server keeps ``S >= tau / (n + d)`` with
``d = T_draft / T_target``.  Below that floor the cause is not speculation arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine_patch.tier import OFF, TierShape

QUIET = 4
"""Up to so many running requests a step is bound by memory, and a verify takes as long as a decode
step; what is left of ``tau / S - 1`` there is drafting."""
ASSUMED_D = 0.5
"""``d`` where nothing quiet was measured.  Measured on one H200 (8B shape, one-layer drafter,
SGLang 0.5.17): 0.27 to 0.68.  Too large a ``d`` only lowers the floor: it flags less."""
ADVICE = (
    "below the floor: not speculation arithmetic, look at the cap on running requests, "
    "CUDA graph misses and kernels"
)


@dataclass(frozen=True, slots=True)
class DraftShare:
    """``d = T_draft / T_target`` and where it comes from."""

    value: float
    source: str


def break_even(tau: float, ratio: float) -> float:
    """The accept length at which speculation would cost as much as it gives.

    Args:
        tau: measured accept length.
        ratio: measured speed-up with it.
    """
    return tau / ratio


def floor(tau: float, tier: str, d: float) -> float:
    """The least speed-up that arithmetic allows for this accept length."""
    return tau / (TierShape.parse(tier).num_draft_tokens + d)


def draft_share(
    tier: str, quiet: Mapping[int, tuple[float, float]], others: float | None = None
) -> DraftShare:
    """``d`` of a tier.

    Args:
        quiet: accept length and speed-up by concurrency.
        others: ``d`` of another tier of the same setup, an upper bound for ``off``, which runs one
            draft pass at most.
    """
    at = min((concurrency for concurrency in quiet if concurrency <= QUIET), default=None)
    if at is not None:
        tau, ratio = quiet[at]
        value = max(0.0, tau / ratio - 1.0)
        return DraftShare(value, f"from concurrency {at}: accept length / speed-up - 1")
    if tier == OFF and others is not None:
        return DraftShare(others, "a speculating tier of the same setup, as an upper bound")
    return DraftShare(
        ASSUMED_D, f"assumed: nothing was measured at {QUIET} running requests or fewer"
    )
