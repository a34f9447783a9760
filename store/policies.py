"""Policy configuration: pure records with bounds; every field carries its unit and meaning."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from engine_patch.tier import OFF, Boundary, Frozen, TierName, TierShape


class Stance(StrEnum):
    """Whether a policy acts, only computes and records, or rests."""

    ACTIVE = "active"
    SHADOW = "shadow"
    PAUSED = "paused"


RULES = 2
"""The rules that new policy versions are made under; see ``PolicyConfig.rules``."""


DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class Window(Frozen):
    """A time of the week in which automation has another stance; UTC.

    Args:
        days: weekdays on which it begins, "mon" to "sun"; empty for every day.
        start, end: "HH:MM"; an end at or before the start lies on the next day.
    """

    days: tuple[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], ...] = ()
    start: str = Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")
    end: str = Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")
    stance: Stance

    def holds(self, at_utc_ms: int) -> bool:
        """Whether the moment lies in it."""
        # The first of January 1970 was a Thursday.
        day, minute = divmod(at_utc_ms // 60_000, 1440)
        start, end = _minutes(self.start), _minutes(self.end)
        if start < end:
            return start <= minute < end and self._begins(day)
        return (minute >= start and self._begins(day)) or (minute < end and self._begins(day - 1))

    def _begins(self, day: int) -> bool:
        return not self.days or DAYS[(day + 3) % 7] in self.days


def _minutes(text: str) -> int:
    return int(text[:2]) * 60 + int(text[3:])


class Careful(Frozen):
    """What every policy that changes tiers has: dwell, guards, trials, and a look at what a change
    brought.

    Args:
        tiers: from quiet to busy.
        min_dwell_s: seconds a confirmed tier is kept before the next change of the policy.
        accept_min_requests: request-steps a window needs before its accept length counts.
        kv_high: used share of KV slots at which speculation goes off at once, 0 to 1.
        kv_low: share it must fall below before speculation may return.
        retraction_hold_s: seconds without a retraction before speculation may return.
        probe_after_s: seconds after an accept-length retreat before a probe may go back; doubles
            with each failed probe up to ``probe_max_s``.
        probe_tokens_per_hour: tokens that trials may decode per hour on average; the next trial
            waits for it (from rules 2 on, as everything below).
        start_grace_s: seconds after the first sample of a boot in which nothing is switched.
        switches_per_hour: changes in any hour; the last ones are kept for going busier and for
            taking a change back.  A guard never waits for it.
        cooldown_s: seconds after a change before one in the other direction.
        judge_s: seconds of clean decode speed after a change that its judgement needs.
        judge_settle_s: seconds after the confirmation that are left out of it.
        cold_recovery_s: the same after ``off`` with flavour cold, whose gaps in the drafter's KV
            outlive it.
        judge_margin: share by which decode speed may fall short before a change counts as worse;
            noise may ask for more.
        hold_off_s: seconds a tier that made things worse is left alone at that load; doubles with
            each repetition up to ``hold_off_max_s``.
    """

    tiers: tuple[TierName, ...] = Field(min_length=1)
    min_dwell_s: float = Field(default=5.0, ge=0, le=3600)
    accept_min_requests: int = Field(default=64, ge=1)
    kv_high: float = Field(default=0.92, gt=0, le=1)
    kv_low: float = Field(default=0.80, gt=0, le=1)
    retraction_hold_s: float = Field(default=30.0, ge=0, le=3600)
    probe_after_s: float = Field(default=60.0, ge=1, le=86400)
    probe_max_s: float = Field(default=1800.0, ge=1, le=86400)
    probe_tokens_per_hour: int = Field(default=500_000, ge=1, le=10**12)
    start_grace_s: float = Field(default=2.0, ge=0, le=3600)
    switches_per_hour: int = Field(default=30, ge=2, le=3600)
    cooldown_s: float = Field(default=5.0, ge=0, le=3600)
    judge_s: float = Field(default=6.0, ge=1, le=600)
    judge_settle_s: float = Field(default=2.0, ge=0, le=600)
    cold_recovery_s: float = Field(default=30.0, ge=0, le=3600)
    judge_margin: float = Field(default=0.1, ge=0.01, le=0.9)
    hold_off_s: float = Field(default=300.0, ge=1, le=86400)
    hold_off_max_s: float = Field(default=7200.0, ge=1, le=86400)

    @model_validator(mode="after")
    def _careful(self) -> Self:
        if len(set(self.tiers)) != len(self.tiers):
            raise ValueError("each tier may appear once")
        if self.kv_low >= self.kv_high:
            raise ValueError("kv_low must lie below kv_high")
        return self


class HysteresisPolicy(Careful):
    """Two thresholds per boundary, held for a time, with dwell.

    Args:
        boundaries: running requests per DP replica, one between each pair of neighbours.
        up_hold_s: seconds the load must stay at or above ``up_at`` before going busier: the
            stabilisation window of that direction.
        down_hold_s: seconds it must stay at or below ``down_at`` before coming back.
        min_accept_length: floor per speculating tier in tokens per verify step; below it for
            ``accept_hold_s`` the policy goes one tier busier.
        adjust_every_s: seconds between two moves of a boundary by evidence, while the engine
            applies the thresholds (``PolicyConfig.delegate``).
        adjust_most: factor by which a boundary may be moved from this policy's at most.
    """

    kind: Literal["hysteresis"] = "hysteresis"
    boundaries: tuple[Boundary, ...] = ()
    up_hold_s: float = Field(default=2.0, ge=0, le=3600)
    down_hold_s: float = Field(default=4.0, ge=0, le=3600)
    min_accept_length: dict[TierName, float] = Field(default_factory=dict)
    accept_hold_s: float = Field(default=10.0, ge=0, le=3600)
    adjust_every_s: float = Field(default=600.0, ge=1, le=86400)
    adjust_most: float = Field(default=2.0, ge=1, le=16)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.boundaries) != len(self.tiers) - 1:
            raise ValueError(
                f"{len(self.tiers)} tiers need {len(self.tiers) - 1} boundaries, "
                f"not {len(self.boundaries)}"
            )
        for low, high in zip(self.boundaries, self.boundaries[1:], strict=False):
            if high.up_at <= low.up_at or high.down_at <= low.down_at:
                raise ValueError("boundaries must rise from quiet to busy")
        for tier, floor in self.min_accept_length.items():
            if tier not in self.tiers or tier == OFF:
                raise ValueError(f"min_accept_length names {tier}, which is no speculating tier")
            if not 1.0 <= floor <= TierShape.parse(tier).num_steps + 1:
                raise ValueError(f"min_accept_length of {tier} must lie between 1 and steps + 1")
        return self

    @property
    def longest_hold_s(self) -> float:
        """The longest time the policy can wait before it follows a load change, in seconds."""
        return max(self.up_hold_s, self.down_hold_s, self.min_dwell_s)


class GoodputPolicy(Careful):
    """The tier with the most tokens per second at the present load, by the step-cost table and the
    measured accept lengths.

    Args:
        gain: share by which another tier must be ahead before it is changed to.
        hold_s: seconds it must stay ahead.
        switch_cost_s: seconds of decoding that a change costs.
        horizon_s: seconds over which that cost is spread.
        tpot_ms: longest time per output token of a request in milliseconds; a tier above it is
            left for one below it without waiting for the gain.
    """

    kind: Literal["goodput"] = "goodput"
    gain: float = Field(default=0.05, gt=0, le=1)
    hold_s: float = Field(default=3.0, ge=0, le=3600)
    switch_cost_s: float = Field(default=0.5, ge=0, le=60)
    horizon_s: float = Field(default=60.0, gt=0, le=86400)
    tpot_ms: float | None = Field(default=None, gt=0, le=60_000)

    @model_validator(mode="after")
    def _worth_it(self) -> Self:
        if self.switch_cost_s >= self.horizon_s:
            raise ValueError("switch_cost_s must lie below horizon_s")
        return self

    @property
    def longest_hold_s(self) -> float:
        """The longest time the policy can wait before it follows a load change, in seconds."""
        return max(self.hold_s, self.min_dwell_s)


class FixedPolicy(Frozen):
    """Always the same tier."""

    kind: Literal["fixed"] = "fixed"
    tier: TierName


Policy = Annotated[HysteresisPolicy | GoodputPolicy | FixedPolicy, Field(discriminator="kind")]


class PolicyConfig(Frozen):
    """A version of an engine's policy with its author.

    Args:
        version: rises by one with each change of this engine's policy.
        command_timeout_s: seconds a command may take until every observed rank confirms it.
        retries: how often an unconfirmed command is sent again before it is timed out.
        lease_s: lease put on automation's commands, in seconds.
        stale_after_s: seconds without a fresh sample after which the metrics count as lost.
        rules: the controller's rules this version runs under, so that an older recording replays
            under its own.  1: holds, dwell, floors, guards.  2: also a switch budget, a cooldown, a
            probe budget, and a change that made things worse is taken back.
        delegate: the engine applies the thresholds itself, in mode ``auto``, where it can; the
            control plane supervises (from rules 2 on).
        windows: times of the week with another stance; the first that holds counts.
        paused_from: the stance before a stop of many engines; None if none paused this one.
    """

    engine_id: str
    version: int = Field(ge=1)
    stance: Stance
    policy: Policy
    author: str
    reason: str = ""
    created_utc_ms: int
    command_timeout_s: float = Field(default=2.0, gt=0, le=600)
    retries: int = Field(default=2, ge=0, le=20)
    lease_s: float = Field(default=30.0, gt=0, le=86400)
    stale_after_s: float = Field(default=2.0, gt=0, le=600)
    rules: int = Field(default=1, ge=1, le=RULES)
    paused_from: Stance | None = None
    delegate: bool = False
    windows: tuple[Window, ...] = Field(default=(), max_length=50)

    def stance_at(self, at_utc_ms: int) -> Stance:
        """The stance at a moment.  A stop of many engines and a pause stay, whatever the hour."""
        if self.windows and self.stance is not Stance.PAUSED:
            for window in self.windows:
                if window.holds(at_utc_ms):
                    return window.stance
        return self.stance
