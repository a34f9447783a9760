"""Hysteresis: two thresholds per boundary, held for a time, with dwell, floors and guards.

Three layers give a tier each, and the busiest one counts: where the load puts it, what the accept
length forbids, and what a KV or retraction guard demands.  Each layer keeps its own memory, so that
a guard that lets go returns to where the load is, not to where the guard found it.  Pure.
"""

from __future__ import annotations

from dataclasses import replace

from controlplane.accept_floor import (
    AcceptEvidence,
    FloorStep,
    accept_evidence,
    affordable,
    charged,
    floor_step,
    retreated_state,
)
from controlplane.guards import GUARDS
from controlplane.plan import Plan
from controlplane.policy_move import GATE_REASONS, Move, move, noted, watched
from controlplane.policy_state import NEVER, Choice, Gate, PolicyState, View
from controlplane.watch import Watch
from store.records import Reason


def decide_hysteresis(plan: Plan, state: PolicyState, view: View) -> tuple[PolicyState, Choice]:
    """One decision; the returned state holds everything the next one needs."""
    up_since, down_since = _load_clocks(plan, state, view)
    on_trial = state.probing and state.want == state.floor
    watch, judged, decoded = watched(plan, state, view, hold_off=not on_trial)
    if state.want < 0:
        return _placed(plan, view, watch, up_since, down_since)
    now = view.now_ms
    load = _load_tier(plan, state.load, up_since, down_since, now)
    floors = accept_evidence(plan, state, view)
    slower = on_trial and judged is not None and judged.worse
    if slower:
        # A trial has its own growing intervals; that it was slow ends it as a poor acceptance does.
        floors = floors._replace(failed=True, passed=False)
    may_try = True
    if watch is not None and plan.judging is not None:
        budget = plan.judging.probe_tokens
        watch = charged(watch, decoded, view.since_ms, budget, on_trial=on_trial)
        may_try = affordable(watch, budget)
    step = floor_step(state, load, floors, now, affordable=may_try)
    natural = max(load, step.floor)
    done = move(plan, state, view, watch, natural)
    want, guard = done.want, done.guard
    reason = _reason(state, natural=natural, load=load, step=step, done=done, slower=slower)
    choice = Choice(
        want=want,
        came_from=state.want,
        changed=done.changed,
        reason=reason
        if done.changed
        else _resting(plan, state, guard, done.gate, up_since, down_since),
        candidate=done.candidate,
        gate=done.gate,
        gate_left_ms=done.gate_left_ms,
        held_ms=_held(reason, state, now, up_since, down_since, load, floors),
        helpless=done.helpless,
        judged=judged,
        held_off=done.held_off,
    )
    # A change that is not made is not made half: layers that ask for it stay where they were.
    changed = done.changed
    retreated = step.retreat and changed
    probed = step.probe and changed and guard is None
    floor = step.floor if retreated or probed else state.floor
    load = state.load if done.blocked else load
    new = PolicyState(
        want=want,
        load=load,
        floor=floor,
        guard=guard,
        guard_ms=done.guard_ms,
        retraction_ms=done.retraction_ms,
        up_since=up_since,
        down_since=down_since,
        changed_ms=now if changed else state.changed_ms,
        low_ms=0 if changed else floors.low_ms,
        ok_ms=0 if changed else floors.ok_ms,
        probing=state.probing,
        probe_at_ms=state.probe_at_ms,
        probe_gap_ms=state.probe_gap_ms,
        probe_ok_ms=state.probe_ok_ms,
        reason=reason if changed else state.reason,
        text="" if changed else state.text,
        clauses=() if changed else state.clauses,
        watch=noted(plan, state, view, watch, done, reason),
    )
    if retreated:
        new = retreated_state(plan, new, now)
    elif probed:
        new = replace(new, probing=True)
    elif floors.passed:
        new = replace(
            new,
            probing=False,
            ok_ms=0,
            probe_ok_ms=now,
            probe_at_ms=now + plan.probe_after_ms if floor > 0 else NEVER,
        )
    return new, choice


def place(plan: Plan, load: int) -> int:
    """The tier for a load without history: the quieter one inside a band."""
    return sum(load >= level for level in plan.up_at)


def _load_clocks(
    plan: Plan, state: PolicyState, view: View
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Since when each threshold has been passed; a hole in the evidence starts all of them anew."""
    count, now, load = len(plan.up_at), view.now_ms, view.load
    fresh = view.hole or len(state.up_since) != count
    before_up = (NEVER,) * count if fresh else state.up_since
    before_down = (NEVER,) * count if fresh else state.down_since
    up = [
        NEVER if load < level else (now if since < 0 else since)
        for level, since in zip(plan.up_at, before_up, strict=True)
    ]
    down = [
        NEVER if load > level else (now if since < 0 else since)
        for level, since in zip(plan.down_at, before_down, strict=True)
    ]
    return tuple(up), tuple(down)


def _placed(
    plan: Plan,
    view: View,
    watch: Watch | None,
    up_since: tuple[int, ...],
    down_since: tuple[int, ...],
) -> tuple[PolicyState, Choice]:
    """The first placement: the engine's own tier, or by load if that is none of the policy's."""
    by_load = place(plan, view.load)
    if view.adopt and view.confirmed in plan.tiers:
        want = plan.tiers.index(view.confirmed)
        reason = Reason.STEADY
    else:
        want = by_load
        reason = Reason.LOAD_DOWN if want == 0 else Reason.LOAD_UP
    state = PolicyState(
        want=want,
        load=want,
        up_since=up_since,
        down_since=down_since,
        reason=reason,
        watch=watch,
    )
    return state, Choice(want=want, came_from=NEVER, changed=False, reason=reason)


def _load_tier(
    plan: Plan, at: int, up_since: tuple[int, ...], down_since: tuple[int, ...], now: int
) -> int:
    """Where the load puts it: over as many boundaries at once as have been held long enough."""
    for index in range(len(up_since) - 1, at - 1, -1):
        if up_since[index] >= 0 and now - up_since[index] >= plan.up_hold_ms:
            return index + 1
    for index in range(at):
        if down_since[index] >= 0 and now - down_since[index] >= plan.down_hold_ms:
            return index
    return at


def _reason(
    state: PolicyState,
    *,
    natural: int,
    load: int,
    step: FloorStep,
    done: Move,
    slower: bool,
) -> Reason:
    """Why the wanted tier changes, if it does."""
    if done.guard is not None and not done.helpless:
        return done.guard
    if done.reverting or (slower and step.retreat and step.floor > load):
        return Reason.REVERT
    if state.reason in GUARDS and natural < state.want and state.load < state.want:
        return state.reason
    if step.retreat and step.floor > load:
        return Reason.ACCEPT_FLOOR
    if step.probe or (state.probing and state.floor == natural < state.want):
        return Reason.PROBE
    if natural > state.want:
        return Reason.LOAD_UP
    return Reason.LOAD_DOWN


def _resting(
    plan: Plan,
    state: PolicyState,
    guard: Reason | None,
    gate: Gate | None,
    up_since: tuple[int, ...],
    down_since: tuple[int, ...],
) -> Reason:
    """The reason code of a view that changes nothing."""
    if gate is Gate.GRACE:
        return Reason.GRACE
    if guard is not None:
        return guard
    if gate is not None:
        return GATE_REASONS.get(gate, Reason.HOLDING)
    at = state.want
    building = at < len(up_since) and up_since[at] >= 0 and plan.up_hold_ms > 0
    building |= at > 0 and down_since[at - 1] >= 0 and state.load == at
    if building:
        return Reason.HOLDING
    if state.probing:
        return Reason.PROBE
    if state.floor > state.load:
        return Reason.ACCEPT_FLOOR
    return Reason.STEADY


def _held(
    reason: Reason,
    state: PolicyState,
    now: int,
    up_since: tuple[int, ...],
    down_since: tuple[int, ...],
    load: int,
    accept: AcceptEvidence,
) -> int:
    """For how long the condition behind ``reason`` has held."""
    if reason is Reason.LOAD_UP and load > 0 and up_since[load - 1] >= 0:
        return now - up_since[load - 1]
    if reason is Reason.LOAD_DOWN and load < len(down_since) and down_since[load] >= 0:
        return now - down_since[load]
    if reason is Reason.ACCEPT_FLOOR:
        return max(accept.low_ms - 1, 0)
    if reason is Reason.PROBE and state.probe_at_ms >= 0:
        return state.probe_gap_ms + now - state.probe_at_ms
    return 0
