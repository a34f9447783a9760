"""Supervised delegation: the engine applies thresholds within a batch, the control plane watches.

The engine's own switches are judged like ours.  Where they made things worse twice in the same
direction, the boundary between the two tiers is moved a step, seldom, and never far from the
policy's own.  Guards still act directly: the engine knows nothing of KV pressure.  Pure.
"""

from __future__ import annotations

from dataclasses import replace

from controlplane import consequence
from controlplane.clauses import CONCURRENCY, guard_clauses, phrase, plain_clause
from controlplane.explanation import Explanation
from controlplane.guards import guard_in_force, guard_tier
from controlplane.hold_off import Judgement
from controlplane.plan import Delegation, Plan
from controlplane.policy_state import Choice, Moved, PolicyState, View
from controlplane.watch import Seen, Trial, Watch
from engine_patch.tier import Boundary, Thresholds
from store.records import Clause, Op, Outlook, Reason

STEP = 1.25
"""Factor by which a boundary is moved at once."""
VOTES = 2
"""Switches over one boundary that must have made things worse in one direction."""


def supervise(plan: Plan, state: PolicyState, view: View) -> tuple[PolicyState, Choice]:
    """One view of an engine that applies its thresholds by itself."""
    rules = plan.delegation
    assert rules is not None, "only a plan that delegates is supervised"
    watch, found = _followed(plan, state.watch or Watch(), view)
    moved = state.moved or _unmoved(rules)
    if found is not None:
        moved = _voted(plan, rules, moved, found, view.now_ms)
    at = max(state.want, 0)
    if view.confirmed in plan.tiers:
        at = plan.tiers.index(view.confirmed)
    natural = sum(view.load >= level for level in plan.up_at)
    guard, guard_ms, retraction_ms = guard_in_force(plan, state, view, natural)
    refuge = None if guard is None else guard_tier(plan, plan.reserves[natural])
    want = at if refuge is None else refuge
    reason = guard if refuge is not None and guard is not None else Reason.DELEGATED
    acts = (state.guard is None) != (guard is None) and (refuge is not None or guard is None)
    choice = Choice(
        want=want,
        came_from=state.want,
        changed=acts and state.want >= 0,
        reason=reason,
        helpless=guard is not None and refuge is None,
        judged=found,
    )
    told = choice.changed or moved != state.moved
    new = PolicyState(
        want=want,
        load=natural if guard is not None else at,
        guard=guard,
        guard_ms=guard_ms,
        retraction_ms=retraction_ms,
        changed_ms=view.now_ms if choice.changed else state.changed_ms,
        reason=reason if told else state.reason,
        text="" if told else state.text,
        clauses=() if told else state.clauses,
        watch=watch,
        moved=moved,
    )
    return new, choice


def thresholds_of(plan: Plan, moved: Moved | None) -> Thresholds | None:
    """What the engine shall apply: the policy's boundaries, moved as far as evidence moved them."""
    rules = plan.delegation
    if rules is None or moved is None or all(one == 1.0 for one in moved.factors):
        return plan.thresholds
    base = plan.thresholds
    if base is None:
        return None
    made: list[Boundary] = []
    for bound, factor in zip(base.boundaries, moved.factors, strict=True):
        up_at, down_at = round(bound.up_at * factor), round(bound.down_at * factor)
        if made:
            up_at = max(up_at, made[-1].up_at + 1)
            down_at = max(down_at, made[-1].down_at + 1)
        up_at = max(up_at, 1)
        made.append(Boundary(up_at=up_at, down_at=max(min(down_at, up_at - 1), 0)))
    limited = [
        bound if most is None or bound.up_at <= most else base.boundaries[index]
        for index, (bound, most) in enumerate(zip(made, rules.up_most, strict=True))
    ]
    try:
        return Thresholds(
            tiers=base.tiers,
            boundaries=tuple(limited),
            min_dwell_steps=base.min_dwell_steps,
            min_accept_length=base.min_accept_length,
        )
    except ValueError:
        return base


def explain_delegated(plan: Plan, state: PolicyState, view: View, choice: Choice) -> Explanation:
    """Which thresholds the engine follows, and what it waits for."""
    order = thresholds_of(plan, state.moved)
    if state.guard is not None:
        clauses = guard_clauses(plan, state, view)
        said = " · ".join(phrase(one) for one in clauses)
        if choice.helpless:
            return Explanation(f"KV slots are short and no tier gives any back · {said}", clauses)
        return Explanation(
            f"guard acts, the engine's thresholds rest · {said}".rstrip(" ·"), clauses
        )
    if order is None:
        return Explanation("the engine follows its thresholds")
    outlook: list[Outlook] = []
    at = choice.want
    for index, bound in enumerate(order.boundaries):
        if index >= at:
            clause = plain_clause(CONCURRENCY, view.load, "req", Op.GE, bound.up_at)
            tier, reason = order.tiers[index + 1], Reason.LOAD_UP
        else:
            clause = plain_clause(CONCURRENCY, view.load, "req", Op.LE, bound.down_at)
            tier, reason = order.tiers[index], Reason.LOAD_DOWN
        outlook.append(Outlook(tier=tier, reason=reason, clauses=(clause,)))
    text = f"the engine follows its thresholds: {words(order)}"
    return Explanation(text, _standing(order, at, view), tuple(outlook))


def words(order: Thresholds) -> str:
    """``s3k1d4, off from 24 requests, back at 16``."""
    parts = [order.tiers[0]]
    parts += [
        f"{tier} from {bound.up_at} requests, back at {bound.down_at}"
        for tier, bound in zip(order.tiers[1:], order.boundaries, strict=True)
    ]
    return ", ".join(parts)


def _standing(order: Thresholds, at: int, view: View) -> tuple[Clause, ...]:
    found: list[Clause] = []
    if at < len(order.boundaries):
        up_at = order.boundaries[at].up_at
        found.append(plain_clause(CONCURRENCY, view.load, "req", Op.LT, up_at))
    if 0 < at <= len(order.boundaries):
        down_at = order.boundaries[at - 1].down_at
        found.append(plain_clause(CONCURRENCY, view.load, "req", Op.GT, down_at))
    return tuple(found)


def _followed(plan: Plan, watch: Watch, view: View) -> tuple[Watch, Judgement | None]:
    """Decode speed, and the judgement on the engine's own last switch."""
    judging = plan.judging
    assert judging is not None, "a plan that delegates judges"
    was, now = watch.tier, view.confirmed
    trial = watch.trial
    if now is not None and was and now != was:
        trial = None
        if was in plan.tiers and now in plan.tiers:
            busier = plan.tiers.index(now) > plan.tiers.index(was)
            settle = judging.cold_ms if view.cold and not busier else judging.settle_ms
            before = watch.before(was, view.now_ms)
            trial = Trial(was, now, busier, view.now_ms, settle, before)
    watch, _ = consequence.measured(
        replace(watch, trial=trial),
        Seen(
            view.now_ms,
            view.since_ms,
            view.confirmed,
            view.load,
            view.total,
            view.decode_tokens,
            view.prefill_tokens,
            view.graph_misses,
            not view.hole and view.retracted == 0,
            view.accept,
        ),
    )
    return consequence.judged(watch, view.now_ms, judging.judge_ms, judging.margin, plan.table)


def _unmoved(rules: Delegation) -> Moved:
    count = len(rules.up_most)
    return Moved((1.0,) * count, (0,) * count)


def _voted(plan: Plan, rules: Delegation, moved: Moved, found: Judgement, now_ms: int) -> Moved:
    """What a judgement says of the boundary that was crossed, and the move it may lead to."""
    was, now = plan.tiers.index(found.from_tier), plan.tiers.index(found.to_tier)
    busier = now > was
    place = was if busier else was - 1
    if not 0 <= place < len(moved.votes):
        return moved
    vote = moved.votes[place]
    # Going busier was worse: too early, the boundary lies too low; coming back: it lies too high.
    # A switch in the same direction that did well speaks against that, the other one says nothing.
    if found.worse:
        vote = max(vote, 0) + 1 if busier else min(vote, 0) - 1
    elif busier:
        vote = vote - 1 if vote > 0 else vote
    else:
        vote = vote + 1 if vote < 0 else vote
    factors, moved_ms = moved.factors, moved.moved_ms
    rested = moved_ms < 0 or now_ms - moved_ms >= rules.every_ms
    if abs(vote) >= VOTES and rested:
        factor = factors[place] * (STEP if vote > 0 else 1 / STEP)
        factor = min(max(factor, 1 / rules.most), rules.most)
        factors = (*factors[:place], factor, *factors[place + 1 :])
        vote, moved_ms = 0, now_ms
    return Moved(factors, (*moved.votes[:place], vote, *moved.votes[place + 1 :]), moved_ms)
