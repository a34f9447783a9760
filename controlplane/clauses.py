"""Clauses: the conditions a choice rests on, as records and as text.

Pure; all numbers come from the view and the state that the choice was made with.
"""

from __future__ import annotations

from controlplane.guards import kv_after
from controlplane.hold_off import Judgement
from controlplane.plan import Plan
from controlplane.policy_state import PolicyState, View
from store.records import Clause, Op, Reason

CONCURRENCY = "concurrency"
ACCEPT_LENGTH = "accept length"
KV_USED = "KV used"
KV_AFTER = "KV used after return"
RETRACTED = "retracted"
CALM = "time without retraction"
TRIAL = "time since retreat"
SPEED = "tok/s after the change"
EXPECTED = "expected tok/s"


def seconds(ms: float) -> str:
    """Milliseconds as text in seconds."""
    return f"{ms / 1000:.1f} s"


def number(value: float | None, unit: str) -> str:
    """A value with as many digits as its unit deserves; "-" if it is missing."""
    if value is None:
        return "-"
    match unit:
        case "share":
            return f"{value * 100:.1f} %"
        case "req":
            return f"{value:.0f}"
        case "s":
            return f"{value:.1f} s"
        case "tok/s":
            return f"{value:.0f}"
    return f"{value:.2f}"


def phrase(clause: Clause) -> str:
    """A clause as text: ``concurrency 25 >= 24 held 2.0 s of 2.0 s``."""
    text = (
        f"{clause.metric} {number(clause.value, clause.unit)} {clause.op} "
        f"{number(clause.threshold, clause.unit)}"
    )
    if clause.needed_s > 0:
        text += f" held {clause.held_s:.1f} s of {clause.needed_s:.1f} s"
    return text


def busier_clause(plan: Plan, state: PolicyState, view: View, index: int) -> Clause:
    since = state.up_since[index]
    held = view.now_ms - since if since >= 0 else 0
    return Clause(
        metric=CONCURRENCY,
        value=view.load,
        unit="req",
        op=Op.GE,
        threshold=plan.up_at[index],
        held_s=held / 1000,
        needed_s=plan.up_hold_ms / 1000,
        met=since >= 0 and held >= plan.up_hold_ms,
    )


def quieter_clause(plan: Plan, state: PolicyState, view: View, index: int) -> Clause:
    since = state.down_since[index]
    held = view.now_ms - since if since >= 0 else 0
    return Clause(
        metric=CONCURRENCY,
        value=view.load,
        unit="req",
        op=Op.LE,
        threshold=plan.down_at[index],
        held_s=held / 1000,
        needed_s=plan.down_hold_ms / 1000,
        met=since >= 0 and held >= plan.down_hold_ms,
    )


def plain_clause(metric: str, value: float | None, unit: str, op: Op, threshold: float) -> Clause:
    met = (
        value is not None
        and {
            Op.GE: value >= threshold,
            Op.GT: value > threshold,
            Op.LE: value <= threshold,
            Op.LT: value < threshold,
            Op.EQ: value == threshold,
        }[op]
    )
    return Clause(metric=metric, value=value, unit=unit, op=op, threshold=threshold, met=met)


def accept_clause(plan: Plan, view: View, tier: int, *, low: bool, held_ms: int) -> Clause | None:
    floor = plan.floors[tier]
    if floor is None:
        return None
    value = view.accept if view.accept_tier == plan.tiers[tier] else None
    right = value is not None and (value < floor if low else value >= floor)
    return Clause(
        metric=ACCEPT_LENGTH,
        value=value,
        unit="tok",
        op=Op.LT if low else Op.GE,
        threshold=floor,
        held_s=held_ms / 1000,
        needed_s=plan.accept_hold_ms / 1000,
        met=right and held_ms >= plan.accept_hold_ms,
    )


def speed_clause(found: Judgement) -> Clause:
    """What a change brought, against the least that would have been good enough."""
    return plain_clause(SPEED, found.measured, "tok/s", Op.LT, found.least)


def guard_clauses(plan: Plan, state: PolicyState, view: View) -> tuple[Clause, ...]:
    found = []
    if state.guard is Reason.RETRACTION:
        found.append(plain_clause(RETRACTED, view.retracted, "req", Op.GE, 1))
    if state.guard is Reason.KV_PRESSURE or (
        view.kv_used is not None and view.kv_used >= plan.kv_high
    ):
        found.append(plain_clause(KV_USED, view.kv_used, "share", Op.GE, plan.kv_high))
    return tuple(found)


def guard_over_clauses(plan: Plan, state: PolicyState, view: View, back: int) -> tuple[Clause, ...]:
    """What must hold before a guard lets go, and how far it does."""
    clauses = [plain_clause(KV_USED, view.kv_used, "share", Op.LT, plan.kv_low)]
    after = kv_after(view, max(plan.reserves[back], view.return_reserve))
    if after is not None:
        clauses.append(plain_clause(KV_AFTER, after, "share", Op.LE, plan.kv_room))
    if state.retraction_ms >= 0:
        calm = (view.now_ms - state.retraction_ms) / 1000
        clauses.append(plain_clause(CALM, calm, "s", Op.GE, plan.retraction_hold_ms / 1000))
    return tuple(clauses)
