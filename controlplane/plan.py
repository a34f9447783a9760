"""The plan: a policy narrowed to what one engine can really do, as plain numbers.

Built by ``controlplane.planning`` once per policy version and handshake; every step then decides on
integers (milliseconds, running requests) and tuples.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.step_table import StepTable
from engine_patch.tier import OFF, Thresholds, TierShape


@dataclass(frozen=True, slots=True)
class Judging:
    """How changes are rationed and judged; a plan under older rules has none of it."""

    switches_per_hour: int
    cooldown_ms: int
    judge_ms: int
    settle_ms: int
    cold_ms: int
    margin: float
    hold_off_ms: int
    hold_off_max_ms: int
    probe_tokens: int


@dataclass(frozen=True, slots=True)
class Goodput:
    """What the goodput policy adds.

    Args:
        lead: factor by which another tier's tok/s must exceed the present one's, the cost of the
            change included.
        accept: tokens per verify step by the table, by tier; None if it does not tell.
    """

    lead: float
    hold_ms: int
    tpot_ms: float | None
    accept: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Delegation:
    """What letting the engine apply the thresholds adds.

    Args:
        every_ms: least time between two moves of a boundary by evidence.
        most: largest factor of such moves together.
        up_most: by boundary, the largest ``up_at`` the engine takes; None for no limit.
    """

    every_ms: int
    most: float
    up_most: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What the policy may do on this engine.

    Tiers are indexed from quiet to busy; boundary ``i`` lies between tiers ``i`` and ``i + 1``.

    Args:
        fixed: the policy is one tier, always.
        reserves: KV slots held back per running request, by tier.
        built: the same for every tier the engine has built.
        floors: least accept length by tier in tokens per verify step, None for no floor.
        off: index of ``off``, None if automation may not pick it.
        kv_room: used share of KV slots that a change to a larger reserve may lead to at most.
        off_word: how texts call the tier ``off`` on this engine.
        not_ready: why nothing can be decided, "" if something can.
        warnings: sentences for the operator, the same in every tick.
        judging: None under older rules.
        goodput: None unless that is the policy.
        table: step times of this setup.
        thresholds: what the engine applies when it is left alone; None if it cannot be told any.
        delegation: None unless the engine applies them all the time.
    """

    fixed: bool
    tiers: tuple[str, ...]
    up_at: tuple[int, ...]
    down_at: tuple[int, ...]
    reserves: tuple[int, ...]
    built: dict[str, int]
    floors: tuple[float | None, ...]
    off: int | None
    up_hold_ms: int
    down_hold_ms: int
    dwell_ms: int
    accept_hold_ms: int
    accept_min_requests: int
    kv_high: float
    kv_low: float
    kv_room: float
    retraction_hold_ms: int
    probe_after_ms: int
    probe_max_ms: int
    grace_ms: int
    off_word: str
    not_ready: str
    warnings: tuple[str, ...]
    judging: Judging | None = None
    goodput: Goodput | None = None
    table: StepTable | None = None
    thresholds: Thresholds | None = None
    delegation: Delegation | None = None

    def say(self, tier: str | None) -> str:
        """A tier's name for people: where ``off`` is slower than plain it is not called off."""
        if tier is None:
            return "no tier"
        return self.off_word if tier == OFF else tier

    def reserve_of(self, tier: str | None) -> int:
        """KV slots per running request that ``tier`` holds back; 0 if nothing is known of it."""
        if tier is None:
            return 0
        reserve = self.built.get(tier)
        return TierShape.parse(tier).reserve() if reserve is None else reserve
