"""Another policy over the recorded moments, through the live ``decide``.  Pure.

The engine of a what-if does at once what it is told: a change is confirmed at the next sample.  A
person's override is left as it was.  What the tier would have changed about the load is not known
here; see ``whatif_arrivals``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from controlplane.basis import Basis
from controlplane.policy import decide
from controlplane.policy_state import NEVER, PolicyState, View
from controlplane.whatif_moments import Moment

REDUCED = "reserve_follows_tier"


@dataclass(frozen=True, slots=True)
class Switch:
    """One change of tier."""

    seq: int
    at_utc_ms: int
    from_tier: str
    to_tier: str
    reason: str


@dataclass
class Course:
    """What a policy did: the tier at each moment, and its switches.

    Args:
        tiers: tier by moment; None where nothing could be said.
    """

    tiers: list[str | None] = field(default_factory=list)
    switches: list[Switch] = field(default_factory=list)

    def seconds_in(self, moments: Sequence[Moment]) -> dict[str, float]:
        """Seconds by tier."""
        spent: dict[str, float] = {}
        for moment, tier in zip(moments, self.tiers, strict=True):
            if tier is not None and moment.dt_ms:
                spent[tier] = spent.get(tier, 0.0) + moment.dt_ms / 1000
        return spent


def recorded_course(moments: Sequence[Moment]) -> Course:
    """What the engine really did, as its ranks reported it."""
    course = Course()
    last: str | None = None
    for moment in moments:
        tier = moment.tier
        course.tiers.append(tier)
        if tier is not None and last not in (None, tier):
            course.switches.append(
                Switch(moment.seq, moment.at_utc_ms, str(last), tier, "recorded")
            )
        last = last if tier is None else tier
    return course


class Decider:
    """Asks one policy about one moment after the other.

    Args:
        basis: the policy and what follows from it (``controlplane.basis.make_basis``).
        follows: the engine's KV reserve follows the tier.
    """

    def __init__(self, basis: Basis, *, follows: bool) -> None:
        self._plan = basis.plan
        self._stale_ms = basis.stale_after_ms
        self._follows = follows
        self._state = PolicyState()
        self._settled_ms = NEVER
        self._tier: str | None = None
        self._grace = basis.plan.grace_ms
        self.switches: list[Switch] = []

    def at(self, moment: Moment, load: int, total: int) -> str | None:
        """The tier that runs from this moment on; None if the policy cannot be asked.

        Args:
            load, total: running requests of the busiest replica, and of all.
        """
        plan = self._plan
        if plan.not_ready:
            return None
        now = moment.now_ms
        tier = self._tier
        if moment.override or tier is None:
            tier = moment.tier
        want = self._state.want
        asked = plan.tiers[want] if want >= 0 and not moment.override else tier
        if asked != tier:
            # What was asked for at the last moment is confirmed at this one.
            tier = asked
            self._settled_ms = now
        self._tier = tier
        hole = moment.first or moment.since_ms > self._stale_ms
        accept = None
        if (
            moment.accept_tier == tier == moment.tier
            and moment.accept_requests >= plan.accept_min_requests
        ):
            accept = moment.accept
        grace = self._grace - (now - moment.boot_ms)
        state, choice = decide(
            plan,
            self._state,
            View(
                now_ms=now,
                since_ms=0 if hole else moment.since_ms,
                hole=hole,
                load=load,
                total=total,
                kv_used=self._kv_used(moment, tier, total),
                kv_committed=moment.committed,
                kv_capacity=moment.capacity,
                retracted=moment.retracted,
                accept=accept,
                accept_tier=None if accept is None else tier,
                confirmed=tier,
                settled_ms=self._settled_ms,
                acting=not moment.override,
                pending=False,
                adopt=not moment.override,
                grace_left_ms=grace if grace > 0 else 0,
            ),
        )
        self._state = state
        if choice.changed and not moment.override:
            self.switches.append(
                Switch(
                    moment.seq,
                    moment.at_utc_ms,
                    tier or plan.tiers[choice.came_from],
                    plan.tiers[choice.want],
                    choice.reason.value,
                )
            )
        return tier if moment.override else plan.tiers[state.want]

    def _kv_used(self, moment: Moment, tier: str | None, total: int) -> float | None:
        if not moment.capacity or moment.committed is None:
            return None
        reserve = moment.reserve or 0
        if self._follows and moment.reserve is not None:
            reserve = total * self._plan.reserve_of(tier)
        return (moment.committed + reserve) / moment.capacity


def run(basis: Basis, moments: Sequence[Moment], *, follows: bool) -> Course:
    """The policy over all moments, with the load as it was recorded."""
    decider = Decider(basis, follows=follows)
    tiers = [decider.at(moment, moment.load, moment.total) for moment in moments]
    return Course(tiers, decider.switches)


def differing(
    moments: Sequence[Moment], one: Sequence[str | None], other: Sequence[str | None]
) -> Iterator[int]:
    """Sequence numbers at which two courses part: they were the same, or unknown, before."""
    apart = False
    for moment, mine, theirs in zip(moments, one, other, strict=True):
        differs = mine is not None and theirs is not None and mine != theirs
        if differs and not apart:
            yield moment.seq
        apart = differs
