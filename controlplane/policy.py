"""Policies: which tier one engine should run, decided on plain values.

``decide(plan, state, view) -> (state, choice)`` is all that live, replay and what-if run.
``explain`` builds the clauses, the outlook and the sentence from the same numbers; it is asked for
live and for ticks that are shown.  Pure: time is in the view.
"""

from __future__ import annotations

from dataclasses import replace

from controlplane.explanation import Explanation, explain_fixed, explain_hysteresis
from controlplane.explanation_goodput import explain_goodput
from controlplane.plan import Plan
from controlplane.planning import make_plan
from controlplane.policy_goodput import decide_goodput
from controlplane.policy_hysteresis import decide_hysteresis
from controlplane.policy_state import Choice, Gate, PolicyState, View
from store.records import Reason

__all__ = [
    "Choice",
    "Explanation",
    "Gate",
    "Plan",
    "PolicyState",
    "View",
    "carried_over",
    "decide",
    "explain",
    "make_plan",
]


def decide(plan: Plan, state: PolicyState, view: View) -> tuple[PolicyState, Choice]:
    """One decision of the plan's policy; same inputs, same answer.

    ``plan`` must be usable (``not_ready`` empty).
    """
    if plan.fixed:
        changed = state.want != 0
        choice = Choice(want=0, came_from=state.want, changed=changed, reason=Reason.FIXED)
        return (PolicyState(want=0, reason=Reason.FIXED) if changed else state), choice
    if plan.goodput is not None:
        return decide_goodput(plan, plan.goodput, state, view)
    return decide_hysteresis(plan, state, view)


def explain(plan: Plan, state: PolicyState, view: View, choice: Choice) -> Explanation:
    """Why ``choice`` is what it is and what each other tier still needs.

    Args:
        state: the state that ``decide`` returned together with ``choice``.
    """
    if plan.fixed:
        return explain_fixed(plan)
    if plan.goodput is not None:
        return explain_goodput(plan, plan.goodput, state, view, choice)
    return explain_hysteresis(plan, state, view, choice)


def carried_over(old: Plan, new: Plan, state: PolicyState) -> PolicyState:
    """The policy's memory under another plan: its tier if that still exists, guards and retreats
    as far as they apply; all holds start again.  Budget and hold-offs stay: a new version of the
    policy is no way around them."""
    if state.want < 0 or not old.tiers or old.tiers[state.want] not in new.tiers:
        return PolicyState()
    want = new.tiers.index(old.tiers[state.want])
    load_tier = old.tiers[state.load]
    watch = state.watch if new.judging is not None else None
    return PolicyState(
        want=want,
        load=new.tiers.index(load_tier) if load_tier in new.tiers else want,
        guard=None if new.fixed else state.guard,
        guard_ms=state.guard_ms,
        retraction_ms=state.retraction_ms,
        changed_ms=state.changed_ms,
        reason=state.reason,
        text=state.text,
        watch=None if watch is None else replace(watch, trial=None),
        learned=state.learned if new.goodput is not None else (),
        moved=state.moved if new.up_at == old.up_at and new.tiers == old.tiers else None,
    )
