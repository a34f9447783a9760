"""What a policy sees, remembers and answers, as plain values.

Times are integer milliseconds on the controller's own time line, which never runs backwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from controlplane.hold_off import HoldOff, Judgement
from controlplane.watch import Watch
from store.records import Clause, Reason

NEVER = -1
"""A time that has not happened, or a condition that is not met."""


class Gate(StrEnum):
    """What keeps the policy from a change that it would otherwise make."""

    GRACE = "grace"
    PENDING = "pending"
    DWELL = "dwell"
    KV_ROOM = "kv_room"
    BUDGET = "budget"
    COOLDOWN = "cooldown"
    HELD_OFF = "held_off"
    TURN = "turn"


@dataclass(frozen=True, slots=True)
class View:
    """One fresh observation in plain values.

    Args:
        since_ms: time since the previous fresh sample; 0 if there is none or the hole between the
            two was too long to say anything about it.
        hole: the evidence has such a hole: every hold starts again.
        load: running requests of the busiest replica.
        total: running requests over all replicas.
        retracted: requests retracted since the previous fresh sample.
        accept: accept length of a clean window of ``accept_tier`` with enough requests, else None.
        confirmed: tier that every observed rank reports.
        settled_ms: when the confirmed tier last changed while the policy acted, NEVER if not yet.
        acting: the policy's changes are sent to the engine.
        pending: a change is on its way and not settled.
        adopt: the policy starts at the confirmed tier (False: at the place the load suggests).
        grace_left_ms: time left in which nothing is switched after a start.
        return_reserve: KV slots per request of the tier a person's override would return to once
            a guard lets go; 0 without one.
        decode_tokens, prefill_tokens, graph_misses: the engine's counters; None unknown.
        cold: ``off`` runs with flavour cold, whose end is followed by a recovery.
        turn_left_ms: time until this engine of its group may begin a change.
    """

    now_ms: int
    since_ms: int
    hole: bool
    load: int
    total: int
    kv_used: float | None
    kv_committed: int | None
    kv_capacity: int | None
    retracted: int
    accept: float | None
    accept_tier: str | None
    confirmed: str | None
    settled_ms: int
    acting: bool
    pending: bool
    adopt: bool
    grace_left_ms: int
    return_reserve: int = 0
    decode_tokens: int | None = None
    prefill_tokens: int | None = None
    graph_misses: int | None = None
    cold: bool = False
    turn_left_ms: int = 0


@dataclass(frozen=True, slots=True)
class Learned:
    """A tier's measured accept length.

    Args:
        length: tokens per verify step, the newest counting most.
        until_ms: while the tier does not run, when it is forgotten, so that the tier is tried
            again; NEVER while it runs.
        gap_ms: how long that took the last time; doubles while trials fail.
    """

    tier: str
    length: float
    since_ms: int
    until_ms: int = NEVER
    gap_ms: int = 0


@dataclass(frozen=True, slots=True)
class Moved:
    """How far the boundaries have been moved from the policy's.

    Args:
        factors, votes: by boundary; a vote counts up for "too low", down for "too high".
        moved_ms: when one was last moved.
    """

    factors: tuple[float, ...] = ()
    votes: tuple[int, ...] = ()
    moved_ms: int = NEVER


@dataclass(frozen=True, slots=True)
class PolicyState:
    """What a policy remembers.  Indices count the plan's tiers from quiet to busy.

    Args:
        want: the tier it wants, NEVER before it has been placed.
        load: where load alone would put it; moves on while a guard or a floor holds it elsewhere.
        floor: accept length forbids tiers quieter than this one.
        guard: the guard in force, and since when.
        up_since, down_since: by boundary, since when the load has been at or above ``up_at``, or
            at or below ``down_at``; NEVER while it is not.
        changed_ms: when ``want`` last changed.
        low_ms, ok_ms: for how long clean windows have shown an accept length below the floor, or
            at least the floor.
        probing: a tier is on trial after a retreat.
        probe_at_ms, probe_gap_ms: when the next trial is due, and the present interval.
        probe_ok_ms: when a trial last succeeded.
        reason, text, clauses: why ``want`` is what it is, from the moment it changed.
        watch: decode speed and changes; None under older rules.
        learned: accept lengths that the goodput policy has measured.
        ahead_ms: since when another tier has been ahead, in the goodput policy.
        moved: how far evidence moved the thresholds that the engine applies; None if it applies
            none for us.
    """

    want: int = NEVER
    load: int = 0
    floor: int = 0
    guard: Reason | None = None
    guard_ms: int = NEVER
    retraction_ms: int = NEVER
    up_since: tuple[int, ...] = ()
    down_since: tuple[int, ...] = ()
    changed_ms: int = NEVER
    low_ms: int = 0
    ok_ms: int = 0
    probing: bool = False
    probe_at_ms: int = NEVER
    probe_gap_ms: int = 0
    probe_ok_ms: int = NEVER
    reason: Reason = Reason.STEADY
    text: str = ""
    clauses: tuple[Clause, ...] = ()
    watch: Watch | None = None
    learned: tuple[Learned, ...] = ()
    ahead_ms: int = NEVER
    moved: Moved | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The answer to one view.

    Args:
        want: index of the tier wanted now.
        came_from: index of the tier wanted before this view.
        changed: the two differ.
        candidate: the tier a closed gate keeps it from, NEVER if there is none.
        gate, gate_left_ms: what keeps it from there and for how long still, if that is known.
        held_ms: for how long the condition that caused a change had held.
        helpless: a guard has tripped and no allowed tier gives KV slots back.
        judged: what the last change brought, known since this view.
        held_off: what keeps a tier from being used that made things worse.
        rates: expected tok/s by tier, in the goodput policy.
    """

    want: int
    came_from: int
    changed: bool
    reason: Reason
    candidate: int = NEVER
    gate: Gate | None = None
    gate_left_ms: int = 0
    held_ms: int = 0
    helpless: bool = False
    judged: Judgement | None = None
    held_off: HoldOff | None = None
    rates: tuple[float | None, ...] = ()
