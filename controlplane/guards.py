"""The guards: KV pressure and retractions send speculation off at once and hold it.  Pure."""

from __future__ import annotations

from controlplane.plan import Plan
from controlplane.policy_state import NEVER, PolicyState, View
from store.records import Reason

GUARDS = (Reason.KV_PRESSURE, Reason.RETRACTION)


def guard_tier(plan: Plan, reserve: int) -> int | None:
    """Where a guard goes: ``off`` where automation may pick it, else the tier with the smallest
    reserve if that gives slots back against ``reserve``; None if nothing helps."""
    if plan.off is not None:
        return plan.off
    smallest = min(plan.reserves)
    if smallest >= reserve:
        return None
    return max(index for index, value in enumerate(plan.reserves) if value == smallest)


def kv_after(view: View, reserve: int) -> float | None:
    """Used share of KV slots if each running request held back ``reserve`` slots; None unknown."""
    if not view.kv_capacity or view.kv_committed is None:
        return None
    return (view.kv_committed + view.total * reserve) / view.kv_capacity


def guard_in_force(
    plan: Plan, state: PolicyState, view: View, natural: int
) -> tuple[Reason | None, int, int]:
    """The guard in force after this view, since when, and when a request was last retracted."""
    now = view.now_ms
    retraction_ms = now if view.retracted > 0 else state.retraction_ms
    if view.retracted > 0:
        return Reason.RETRACTION, now if state.guard is None else state.guard_ms, retraction_ms
    if view.kv_used is not None and view.kv_used >= plan.kv_high:
        if state.guard is None:
            return Reason.KV_PRESSURE, now, retraction_ms
        return state.guard, state.guard_ms, retraction_ms
    if state.guard is None:
        return None, NEVER, retraction_ms
    calm = retraction_ms < 0 or now - retraction_ms >= plan.retraction_hold_ms
    served = now - state.guard_ms >= plan.dwell_ms
    # Without KV numbers the hold alone ends a retraction guard; else it would never end.
    low = state.guard is Reason.RETRACTION if view.kv_used is None else view.kv_used < plan.kv_low
    after = kv_after(view, max(plan.reserves[natural], view.return_reserve))
    room = after is None or after <= plan.kv_room
    if calm and served and low and room:
        return None, NEVER, retraction_ms
    return state.guard, state.guard_ms, retraction_ms


def with_room(plan: Plan, view: View, want: int, current: int) -> int:
    """The quietest tier from ``want`` on whose reserve fits; the current one if none does."""
    for index in range(want, current):
        if plan.reserves[index] <= plan.reserves[current]:
            return index
        after = kv_after(view, plan.reserves[index])
        if after is None or after <= plan.kv_room:
            return index
    return current
