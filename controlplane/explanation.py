"""Why a choice is what it is, and what each other tier still needs: printed, never recomputed.

Pure; all numbers come from the view and the state that the choice was made with.
"""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.clauses import (
    ACCEPT_LENGTH,
    CONCURRENCY,
    KV_USED,
    TRIAL,
    accept_clause,
    busier_clause,
    guard_clauses,
    guard_over_clauses,
    number,
    phrase,
    plain_clause,
    quieter_clause,
    seconds,
    speed_clause,
)
from controlplane.guards import GUARDS, guard_tier, kv_after
from controlplane.plan import Plan
from controlplane.policy_state import NEVER, Choice, Gate, PolicyState, View
from store.records import Clause, Op, Outlook, Reason


@dataclass(frozen=True, slots=True)
class Explanation:
    """A choice in words: one sentence, its clauses, and what each other tier still needs."""

    text: str
    clauses: tuple[Clause, ...] = ()
    outlook: tuple[Outlook, ...] = ()


def explain_fixed(plan: Plan) -> Explanation:
    """The fixed policy's one sentence."""
    return Explanation(f"fixed: {plan.say(plan.tiers[0])}")


def explain_hysteresis(plan: Plan, state: PolicyState, view: View, choice: Choice) -> Explanation:
    """Sentence, clauses and outlook of a hysteresis choice."""
    clauses = (
        _cause(plan, state, view, choice)
        if choice.changed
        else _standing(plan, state, view, choice)
    )
    return Explanation(
        text=_text(plan, state, view, choice, clauses),
        clauses=clauses,
        outlook=_outlook(plan, state, view, choice),
    )


def _cause(plan: Plan, state: PolicyState, view: View, choice: Choice) -> tuple[Clause, ...]:
    """What led to a change."""
    match choice.reason:
        case Reason.LOAD_UP if 0 < state.load <= len(plan.up_at):
            return (busier_clause(plan, state, view, state.load - 1),)
        case Reason.LOAD_DOWN if state.load < len(plan.down_at):
            return (quieter_clause(plan, state, view, state.load),)
        case Reason.ACCEPT_FLOOR:
            clause = accept_clause(plan, view, choice.came_from, low=True, held_ms=choice.held_ms)
            return () if clause is None else (clause,)
        case Reason.REVERT:
            found = choice.held_off.judged if choice.held_off is not None else choice.judged
            return () if found is None else (speed_clause(found),)
        case Reason.PROBE:
            gap = state.probe_gap_ms / 1000
            return (plain_clause(TRIAL, choice.held_ms / 1000, "s", Op.GE, gap),)
        case Reason.KV_PRESSURE | Reason.RETRACTION:
            return (
                guard_over_clauses(plan, state, view, choice.want)
                if state.guard is None
                else (guard_clauses(plan, state, view))
            )
    return ()


def _standing(plan: Plan, state: PolicyState, view: View, choice: Choice) -> tuple[Clause, ...]:
    """What keeps the wanted tier where it is."""
    if state.guard is not None:
        return guard_over_clauses(plan, state, view, max(state.load, state.floor))
    at, clauses = choice.want, []
    if at < len(plan.up_at):
        up = busier_clause(plan, state, view, at)
        steady = plain_clause(CONCURRENCY, view.load, "req", Op.LT, plan.up_at[at])
        clauses.append(steady if state.up_since[at] < 0 else up)
    if at > 0:
        down = quieter_clause(plan, state, view, at - 1)
        steady = plain_clause(CONCURRENCY, view.load, "req", Op.GT, plan.down_at[at - 1])
        clauses.append(steady if state.down_since[at - 1] < 0 else down)
    low = state.low_ms > 0
    evidence = accept_clause(
        plan, view, at, low=low, held_ms=max((state.low_ms if low else state.ok_ms) - 1, 0)
    )
    if evidence is not None and evidence.value is not None:
        if not low and not state.probing:
            evidence = plain_clause(ACCEPT_LENGTH, evidence.value, "tok", Op.GE, evidence.threshold)
        clauses.append(evidence)
    return tuple(clauses)


def _text(
    plan: Plan, state: PolicyState, view: View, choice: Choice, clauses: tuple[Clause, ...]
) -> str:
    said = " · ".join(phrase(clause) for clause in clauses)
    want = plan.say(plan.tiers[choice.want])
    if choice.came_from < 0:
        if choice.reason is Reason.STEADY:
            return f"starting from {want}, which the engine runs"
        return f"the policy starts at {want} for concurrency {view.load}"
    if choice.changed:
        if choice.reason is Reason.PROBE:
            return f"{want} is tried again · {said}"
        if choice.reason in GUARDS and state.guard is None:
            return f"{want} returns · {said}"
        if choice.reason is Reason.REVERT:
            return f"back to {want} · {said}"
        return said
    if choice.helpless:
        kind = "KV slots are short" if state.guard is Reason.KV_PRESSURE else "requests retracted"
        return f"{kind}, and no tier the policy may use gives slots back: {want} stays · {said}"
    if state.guard is not None:
        return f"{want} stays until KV slots are free · {said}"
    note = gate_text(plan, view, choice)
    if state.floor > state.load and choice.gate is None:
        left = seconds(max(state.probe_at_ms - view.now_ms, 0))
        floor = plan.floors[state.floor - 1]
        trial = plan.tiers[state.floor - 1]
        note = f"accept length of {trial} fell below {number(floor, 'tok')} · next trial in {left}"
    elif state.probing and choice.gate is None:
        note = f"{want} is on trial"
    return " · ".join(part for part in (said, note) if part) or f"{want} is the only tier"


def gate_text(plan: Plan, view: View, choice: Choice) -> str:
    """What stands in the way of the change that is wanted, "" if nothing does."""
    match choice.gate:
        case None:
            return ""
        case Gate.GRACE:
            return f"start grace {seconds(choice.gate_left_ms)} left"
        case Gate.DWELL:
            return f"dwell {seconds(choice.gate_left_ms)} left"
        case Gate.PENDING:
            return "waiting for the engine"
        case Gate.COOLDOWN:
            return f"cooldown {seconds(choice.gate_left_ms)} left"
        case Gate.TURN:
            return f"others of the group may change first, {seconds(choice.gate_left_ms)} left"
        case Gate.BUDGET:
            return f"switch budget of the hour is used, {seconds(choice.gate_left_ms)} left"
        case Gate.HELD_OFF:
            tier = plan.say(plan.tiers[choice.candidate])
            return f"{tier} made things worse, held off {seconds(choice.gate_left_ms)} more"
        case Gate.KV_ROOM:
            after = kv_after(view, plan.reserves[choice.candidate])
            return (
                f"{plan.say(plan.tiers[choice.candidate])} would take KV used to "
                f"{number(after, 'share')}, above {number(plan.kv_room, 'share')}"
            )


def _outlook(plan: Plan, state: PolicyState, view: View, choice: Choice) -> tuple[Outlook, ...]:
    """What each other tier still needs: nearest first, guards last."""
    at, found = choice.want, []
    blocked = _blocked(plan, state, view, choice)
    guarded = "" if state.guard is None else "KV guard"
    for distance in range(1, len(plan.tiers)):
        busier, quieter = at + distance, at - distance
        if busier < len(plan.tiers):
            found.append(
                Outlook(
                    tier=plan.tiers[busier],
                    reason=Reason.LOAD_UP,
                    clauses=(busier_clause(plan, state, view, busier - 1),),
                    blocked=blocked,
                )
            )
        if quieter >= 0:
            found.append(_quieter(plan, state, view, quieter, guarded or blocked))
    if at + 1 < len(plan.tiers) and state.guard is None:
        low = accept_clause(plan, view, at, low=True, held_ms=max(state.low_ms - 1, 0))
        if low is not None:
            found.append(
                Outlook(
                    tier=plan.tiers[at + 1],
                    reason=Reason.ACCEPT_FLOOR,
                    clauses=(low,),
                    blocked=blocked,
                )
            )
    refuge = guard_tier(plan, plan.reserves[at])
    if refuge is not None and refuge != at:
        found.append(
            Outlook(
                tier=plan.tiers[refuge],
                reason=Reason.KV_PRESSURE,
                clauses=(plain_clause(KV_USED, view.kv_used, "share", Op.GE, plan.kv_high),),
                blocked=gate_text(plan, view, choice) if choice.gate is Gate.GRACE else "",
            )
        )
    return tuple(found)


def _quieter(plan: Plan, state: PolicyState, view: View, tier: int, blocked: str) -> Outlook:
    """What a quieter tier needs: its load, and a trial or a free guard if that is in the way."""
    if state.guard is not None:
        return Outlook(
            tier=plan.tiers[tier],
            reason=state.guard,
            clauses=guard_over_clauses(plan, state, view, tier),
            blocked=blocked,
        )
    if tier < state.floor and state.load <= tier:
        gap = state.probe_gap_ms
        waited = gap + view.now_ms - state.probe_at_ms if state.probe_at_ms != NEVER else 0
        return Outlook(
            tier=plan.tiers[tier],
            reason=Reason.PROBE,
            clauses=(plain_clause(TRIAL, max(waited, 0) / 1000, "s", Op.GE, gap / 1000),),
            blocked=blocked,
        )
    return Outlook(
        tier=plan.tiers[tier],
        reason=Reason.LOAD_DOWN,
        clauses=(quieter_clause(plan, state, view, tier),),
        blocked=blocked,
    )


def _blocked(plan: Plan, state: PolicyState, view: View, choice: Choice) -> str:
    """What stands in the way of any change right now, whether or not one is wanted."""
    if choice.gate is not None:
        return gate_text(plan, view, choice)
    if view.grace_left_ms > 0:
        return f"start grace {seconds(view.grace_left_ms)} left"
    if view.pending:
        return "waiting for the engine"
    since = view.settled_ms if view.acting else state.changed_ms
    left = plan.dwell_ms - (view.now_ms - since) if since >= 0 else 0
    return f"dwell {seconds(left)} left" if left > 0 else ""
