"""Goodput: the tier with the most tokens per second at the present load.

``running x accept length / step time``: step times come from the step-cost table, accept lengths
from clean windows of the running tier, else from the table.  An accept length that made a tier lose
is forgotten after a while, so that the tier is tried again; while trials fail that while grows, and
it always ends.  Guards, dwell, budget and judgement are those of every policy.  Pure.
"""

from __future__ import annotations

from dataclasses import replace

from controlplane.accept_floor import affordable, charged
from controlplane.plan import Goodput, Plan
from controlplane.policy_move import GATE_REASONS, Move, move, noted, watched
from controlplane.policy_state import NEVER, Choice, Learned, PolicyState, View
from store.records import Reason

LEARN_MS = 5_000
"""Time over which newer accept lengths replace older ones."""


def decide_goodput(
    plan: Plan, rules: Goodput, state: PolicyState, view: View
) -> tuple[PolicyState, Choice]:
    """One decision; the returned state holds everything the next one needs."""
    watch, judged, decoded = watched(plan, state, view)
    learned = _learned(plan, state, view)
    now = view.now_ms
    on_trial = state.probing and state.want >= 0
    may_try = True
    if watch is not None and plan.judging is not None:
        budget = plan.judging.probe_tokens
        watch = charged(watch, decoded, view.since_ms, budget, on_trial=on_trial)
        may_try = affordable(watch, budget)
    rates = expected(plan, rules, learned, view)
    if state.want < 0:
        adopt = view.adopt and view.confirmed in plan.tiers
        want = plan.tiers.index(view.confirmed or "") if adopt else _best(rates)
        placed = PolicyState(
            want=want, load=want, reason=Reason.GOODPUT, watch=watch, learned=learned
        )
        return placed, Choice(want, NEVER, changed=False, reason=Reason.GOODPUT, rates=rates)
    best = _ahead(rules, rates, state.load)
    trial = best != state.load and _tried_before(learned, plan.tiers[best])
    if trial and not may_try:
        best, trial = state.load, False
    ahead_ms = NEVER
    if best != state.load:
        ahead_ms = now if state.ahead_ms < 0 or view.hole else state.ahead_ms
    held = ahead_ms >= 0 and now - ahead_ms >= rules.hold_ms
    natural = best if held else state.load
    # What is ahead may be on trial; a move that was held up and comes now goes elsewhere.
    trial = trial and held
    done = move(plan, state, view, watch, natural)
    reason = _reason(state, done, natural, trial=trial)
    changed = done.changed
    resting = done.guard or (
        Reason.GOODPUT
        if done.gate is None and ahead_ms < 0
        else GATE_REASONS.get(done.gate, Reason.HOLDING)
        if done.gate is not None
        else Reason.HOLDING
    )
    choice = Choice(
        want=done.want,
        came_from=state.want,
        changed=changed,
        reason=reason if changed else resting,
        candidate=done.candidate,
        gate=done.gate,
        gate_left_ms=done.gate_left_ms,
        held_ms=now - ahead_ms if ahead_ms >= 0 else 0,
        helpless=done.helpless,
        judged=judged,
        held_off=done.held_off,
        rates=rates,
    )
    moved = changed and done.guard is None and not done.reverting
    new = PolicyState(
        want=done.want,
        load=state.load if done.blocked else natural,
        guard=done.guard,
        guard_ms=done.guard_ms,
        retraction_ms=done.retraction_ms,
        changed_ms=now if changed else state.changed_ms,
        # Whatever leaves a tier ends its trial.
        probing=trial and moved if changed else state.probing and not _passed(plan, learned, now),
        probe_gap_ms=state.probe_gap_ms,
        reason=reason if changed else state.reason,
        text="" if changed else state.text,
        clauses=() if changed else state.clauses,
        watch=noted(plan, state, view, watch, done, reason),
        learned=learned,
        ahead_ms=NEVER if moved else ahead_ms,
    )
    if changed:
        new = replace(new, learned=_left(plan, new.learned, plan.tiers[state.want], now))
    return new, choice


def expected(
    plan: Plan, rules: Goodput, learned: tuple[Learned, ...], view: View
) -> tuple[float | None, ...]:
    """Tokens per second by tier at the busiest replica's load; None where nothing is known.

    A tier above the limit on the time per token counts only if none stays below it; then the one
    nearest to the limit does.
    """
    table, load = plan.table, max(view.load, 1)
    assert table is not None, "a goodput plan without a table is not usable"
    context = 0.0
    if view.kv_committed is not None and view.total > 0:
        context = view.kv_committed / view.total
    found: list[float | None] = []
    per_token: list[float] = []
    for index, tier in enumerate(plan.tiers):
        accept = _accept_of(learned, tier, rules.accept[index])
        step = table.step_ms(tier, load, context)
        if accept is None or step is None:
            found.append(None)
            per_token.append(float("inf"))
            continue
        found.append(load * accept * 1000 / step)
        per_token.append(step / accept)
    limit = rules.tpot_ms
    if limit is None or all(one > limit for one in per_token):
        if limit is None:
            return tuple(found)
        least = min(per_token)
        return tuple(
            rate if time == least else None for rate, time in zip(found, per_token, strict=True)
        )
    return tuple(
        rate if time <= limit else None for rate, time in zip(found, per_token, strict=True)
    )


def _accept_of(learned: tuple[Learned, ...], tier: str, by_table: float | None) -> float | None:
    for one in learned:
        if one.tier == tier and one.length > 0:
            return one.length
    return by_table


def _learned(plan: Plan, state: PolicyState, view: View) -> tuple[Learned, ...]:
    """What is known of accept lengths after this view."""
    learned, now = state.learned, view.now_ms
    if any(0 <= one.until_ms <= now and one.length > 0 for one in learned):
        # Forgotten: 0 leaves the table's word, and the gap for the next time.
        learned = tuple(
            replace(one, length=0.0) if 0 <= one.until_ms <= now else one for one in learned
        )
    if view.accept is None or view.accept_tier not in plan.tiers or state.want < 0:
        return learned
    if view.accept_tier != plan.tiers[state.want]:
        return learned
    for index, one in enumerate(learned):
        if one.tier == view.accept_tier:
            length = view.accept
            if one.length > 0 and one.until_ms < 0:
                share = min(max(view.since_ms, 1) / LEARN_MS, 1.0)
                length = one.length + share * (view.accept - one.length)
            since = one.since_ms if one.until_ms < 0 else now
            kept = Learned(one.tier, length, since, NEVER, one.gap_ms)
            return (*learned[:index], kept, *learned[index + 1 :])
    return (*learned, Learned(view.accept_tier, view.accept, now))


def _left(plan: Plan, learned: tuple[Learned, ...], tier: str, now: int) -> tuple[Learned, ...]:
    """``tier`` does not run any more: when what is known of it is forgotten.

    A tier that was left again sooner than its last wait was a failed trial: the next one waits
    twice as long.
    """
    found: list[Learned] = []
    for one in learned:
        if one.tier != tier or one.until_ms >= 0:
            found.append(one)
            continue
        failed = one.gap_ms > 0 and now - one.since_ms < one.gap_ms
        gap = min(one.gap_ms * 2, plan.probe_max_ms) if failed else plan.probe_after_ms
        found.append(replace(one, until_ms=now + gap, gap_ms=gap))
    return tuple(found)


def _tried_before(learned: tuple[Learned, ...], tier: str) -> bool:
    """The tier lost once, and what made it lose has been forgotten."""
    return any(one.tier == tier and one.length == 0 for one in learned)


def _passed(plan: Plan, learned: tuple[Learned, ...], now: int) -> bool:
    """A tier that has been measured for as long as a trial takes is not on trial any more."""
    return any(
        one.until_ms < 0 and one.length > 0 and now - one.since_ms >= plan.accept_hold_ms
        for one in learned
    )


def _best(rates: tuple[float | None, ...]) -> int:
    return max(range(len(rates)), key=lambda index: rates[index] or 0.0)


def _ahead(rules: Goodput, rates: tuple[float | None, ...], at: int) -> int:
    """The tier that is ahead by enough to change to it; ``at`` if none is."""
    best = _best(rates)
    top, here = rates[best], rates[at]
    if best == at or top is None:
        return at
    return best if here is None or top >= here * rules.lead else at


def _reason(state: PolicyState, done: Move, natural: int, *, trial: bool) -> Reason:
    if done.guard is not None and not done.helpless:
        return done.guard
    if done.reverting:
        return Reason.REVERT
    if state.reason in (Reason.KV_PRESSURE, Reason.RETRACTION) and natural == state.load:
        return state.reason
    return Reason.PROBE if trial else Reason.GOODPUT
