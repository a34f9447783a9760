"""What a policy answers: the tier it wants, why, and what each other tier still needs.

Frozen and pure.  Imported from ``store.records`` like every record.
"""

from __future__ import annotations

from enum import StrEnum

from engine_patch.tier import Frozen, TierName


class Reason(StrEnum):
    """Why a verdict is what it is."""

    STEADY = "steady"
    LOAD_UP = "load_up"
    LOAD_DOWN = "load_down"
    ACCEPT_FLOOR = "accept_floor"
    PROBE = "probe"
    KV_PRESSURE = "kv_pressure"
    RETRACTION = "retraction"
    OVERRIDE = "override"
    OVERRIDE_ENDED = "override_ended"
    FIXED = "fixed"
    HOLDING = "holding"
    DWELL = "dwell"
    GRACE = "grace"
    STALE = "stale"
    GAP = "gap"
    PAUSED = "paused"
    READ_ONLY = "read_only"
    DISAGREE = "disagree"
    RESTART = "restart"
    NOT_READY = "not_ready"
    REVERT = "revert"
    HELD_OFF = "held_off"
    BUDGET = "budget"
    COOLDOWN = "cooldown"
    GOODPUT = "goodput"
    DELEGATED = "delegated"


class Op(StrEnum):
    """How a clause compares."""

    GE = ">="
    GT = ">"
    LE = "<="
    LT = "<"
    EQ = "="


class Clause(Frozen):
    """One condition a verdict rests on.

    Args:
        metric: what was compared, in the vocabulary's words, for example "concurrency".
        value: the compared value; None if it was missing.
        unit: "req", "tok", "share", "s", ... ; "" for a pure number.
        held_s, needed_s: how long the condition has held and must hold, in seconds.
        met: whether it is fulfilled, hold included.
    """

    metric: str
    value: float | None
    unit: str
    op: Op
    threshold: float
    held_s: float = 0.0
    needed_s: float = 0.0
    met: bool


class Outlook(Frozen):
    """What another tier still needs; ``blocked`` names what stands in the way ("dwell 3.1 s")."""

    tier: TierName
    reason: Reason
    clauses: tuple[Clause, ...]
    blocked: str = ""


class Verdict(Frozen):
    """The policy's answer to one observation; ``tier`` None means that it wants no change."""

    tier: TierName | None
    reason: Reason
    text: str
    clauses: tuple[Clause, ...] = ()
    outlook: tuple[Outlook, ...] = ()
