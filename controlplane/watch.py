"""What is remembered of decode speed and of changes of tier, from sample to sample.  Pure."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.hold_off import NEVER, HoldOff
from controlplane.meter import Meter

HOUR_MS = 3_600_000
BEFORE_MS = 1_500
"""Clean time that the tier before a change needs to be a yardstick."""
EARLIER_MS = 120_000
"""How long what an earlier run of a tier measured stays a yardstick."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A change whose consequence is not known yet.

    Args:
        changed_ms: when it was wanted; ran_ms: since when the engine runs it.
        settle_ms: time after that which is left out.
        before: what the tier before it did, by bucket.
    """

    from_tier: str
    to_tier: str
    busier: bool
    changed_ms: int
    settle_ms: int
    before: tuple[Meter, ...]
    ran_ms: int = NEVER


@dataclass(frozen=True, slots=True)
class Watch:
    """What is remembered of decode speed and of changes.

    Args:
        tier: the tier that ``meters`` measure; "" if none is reported.
        tokens, prefill, misses, load, total: last counters and loads.
        held_off: tiers left alone, and those that were until lately.
        changes: when the policy changed its tier within the last hour.
        went_busier: the direction of the last change.
        probe_debt: tokens that trials decoded and the hourly budget has not covered yet.
        probe_cost: tokens of the present or last trial.
        accept: the accept length that ``meters`` were measured at; None if none was told.
        earlier: tier, meters and time of tiers that ran before this one.
    """

    tier: str = ""
    tokens: int | None = None
    prefill: int | None = None
    misses: int | None = None
    load: int = 0
    total: int = 0
    meters: tuple[Meter, ...] = ()
    trial: Trial | None = None
    held_off: tuple[HoldOff, ...] = ()
    changes: tuple[int, ...] = ()
    went_busier: bool = False
    probe_debt: float = 0.0
    probe_cost: float = 0.0
    accept: float | None = None
    earlier: tuple[tuple[str, tuple[Meter, ...], int], ...] = ()

    def before(self, tier: str, now_ms: int) -> tuple[Meter, ...]:
        """What ``tier`` did until now: its present run, or the one before if that has just begun.

        An engine that flips back and forth within seconds measures nothing in between.
        """
        if self.tier == tier and any(one.usable(BEFORE_MS) for one in self.meters):
            return self.meters
        for name, meters, at in self.earlier:
            if name == tier and now_ms - at <= EARLIER_MS:
                return meters
        return self.meters if self.tier == tier else ()

    def used(self, now_ms: int) -> int:
        """Changes within the last hour."""
        return sum(now_ms - at < HOUR_MS for at in self.changes)


@dataclass(frozen=True, slots=True)
class Seen:
    """One fresh sample's part in this: counters and what makes it no evidence.

    Args:
        tier: what every observed rank reports.
        clean: the time since the last sample can be told, without hole or retraction.
        accept: accept length of a clean window of ``tier``, else None.
    """

    now_ms: int
    since_ms: int
    tier: str | None
    load: int
    total: int
    tokens: int | None
    prefill: int | None
    misses: int | None
    clean: bool
    accept: float | None = None
