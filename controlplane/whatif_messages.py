"""The answer to a what-if: pure records."""

from __future__ import annotations

from controlplane.whatif_estimate import Estimate, LoadModel
from engine_patch.tier import Frozen
from store.policies import PolicyConfig


class Turn(Frozen):
    """One change of tier."""

    seq: int
    at_utc_ms: int
    from_tier: str
    to_tier: str
    reason: str


class Side(Frozen):
    """What one policy did.

    Args:
        switches: number of changes of tier; ``turns`` lists the first of them.
        seconds_in: seconds by tier.
        estimate: decode tokens per second by the table; of the recorded side the measured ones.
        regret: share of the oracle's tokens per second that it missed; None if not known.
    """

    switches: int
    turns: tuple[Turn, ...]
    seconds_in: dict[str, float]
    estimate: Estimate
    regret: float | None = None


class WhatIf(Frozen):
    """The answer.

    Args:
        seconds: time covered by fresh samples.
        first_difference: the first observation at which the what-if runs another tier.
        differences: observations at which the two part.
        recorded_covered_tok_s: measured tokens per second over the time that the table covers,
            which is what the estimate compares with.
        oracle: the best covered tier at every moment, without holds and switches.
        cannot_know: what this answer rests on and what it leaves out, in sentences.
    """

    policy: PolicyConfig
    load: LoadModel
    samples: int
    gaps: int
    seconds: float
    recorded: Side
    what_if: Side
    recorded_covered_tok_s: float | None
    oracle: Estimate
    first_difference: int | None
    differences: tuple[int, ...]
    cannot_know: tuple[str, ...]
