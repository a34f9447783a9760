"""Why the goodput policy chose a tier, and what each other one still needs.  Pure."""

from __future__ import annotations

from controlplane.clauses import (
    EXPECTED,
    guard_clauses,
    guard_over_clauses,
    number,
    phrase,
    plain_clause,
    speed_clause,
)
from controlplane.explanation import Explanation, gate_text
from controlplane.plan import Goodput, Plan
from controlplane.policy_state import Choice, Gate, PolicyState, View
from store.records import Clause, Op, Outlook, Reason


def explain_goodput(
    plan: Plan, rules: Goodput, state: PolicyState, view: View, choice: Choice
) -> Explanation:
    """Sentence, clauses and outlook of a goodput choice."""
    clauses = _clauses(plan, rules, state, view, choice)
    said = " · ".join(phrase(clause) for clause in clauses)
    return Explanation(
        text=_text(plan, view, choice, said),
        clauses=clauses,
        outlook=_outlook(plan, rules, state, view, choice),
    )


def _clauses(
    plan: Plan, rules: Goodput, state: PolicyState, view: View, choice: Choice
) -> tuple[Clause, ...]:
    if choice.changed and choice.reason is Reason.REVERT and choice.held_off is not None:
        return (speed_clause(choice.held_off.judged),)
    if state.guard is not None:
        held = guard_over_clauses(plan, state, view, state.load)
        return guard_clauses(plan, state, view) if choice.changed else held
    if choice.changed and choice.came_from >= 0:
        return (_needs(rules, choice, choice.want, choice.came_from),)
    others = [rate for at, rate in enumerate(choice.rates) if rate and at != choice.want]
    here = choice.rates[choice.want] if choice.rates else None
    if not others:
        return ()
    return (plain_clause(EXPECTED, here, "tok/s", Op.GT, max(others) / rules.lead),)


def _needs(rules: Goodput, choice: Choice, tier: int, present: int) -> Clause:
    """Expected tok/s of ``tier``, and what it needs against the present one."""
    rate, here = choice.rates[tier], choice.rates[present]
    needed = (here or 0.0) * rules.lead
    return Clause(
        metric=EXPECTED,
        value=rate,
        unit="tok/s",
        op=Op.GE,
        threshold=needed,
        held_s=choice.held_ms / 1000 if rate is not None and rate >= needed else 0.0,
        needed_s=rules.hold_ms / 1000,
        met=rate is not None and rate >= needed and choice.held_ms >= rules.hold_ms,
    )


def _text(plan: Plan, view: View, choice: Choice, said: str) -> str:
    want = plan.say(plan.tiers[choice.want])
    if choice.gate is not None:
        wanted = plan.say(plan.tiers[choice.candidate])
        return f"{want} kept, {wanted} waits: {gate_text(plan, view, choice)}"
    if choice.helpless:
        return f"{want} kept: no tier gives KV slots back · {said}"
    if choice.reason is Reason.PROBE and choice.changed:
        return f"trial of {want} · {said}"
    if choice.reason is Reason.REVERT and choice.changed:
        return f"back to {want} · {said}"
    rates = ", ".join(
        f"{plan.say(tier)} {number(rate, 'tok/s')}"
        for tier, rate in zip(plan.tiers, choice.rates, strict=True)
    )
    return f"{said} · {rates}" if said else f"{want} · {rates}"


def _outlook(
    plan: Plan, rules: Goodput, state: PolicyState, view: View, choice: Choice
) -> tuple[Outlook, ...]:
    blocked = gate_text(plan, view, choice)
    if state.guard is not None:
        blocked = "KV guard"
    found: list[tuple[float, Outlook]] = []
    for index, tier in enumerate(plan.tiers):
        if index == choice.want:
            continue
        held = choice.held_off is not None and choice.held_off.tier == tier
        why = blocked if held or choice.gate is not Gate.HELD_OFF else ""
        clause = _needs(rules, choice, index, choice.want)
        rate = choice.rates[index]
        one = Outlook(tier=tier, reason=Reason.GOODPUT, clauses=(clause,), blocked=why)
        found.append((-(rate or 0.0), one))
    return tuple(one for _, one in sorted(found, key=lambda item: item[0]))
