"""The accept-length layer: leave a tier whose drafts are not accepted, and try it again later.

Trials come at growing intervals and never stop, so that automation is never off for good.  Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from controlplane.plan import Plan
from controlplane.policy_state import PolicyState, View
from controlplane.watch import HOUR_MS, Watch


class AcceptEvidence(NamedTuple):
    """Evidence about the wanted tier's accept length, and whether a trial has passed."""

    low_ms: int
    ok_ms: int
    failed: bool
    passed: bool


def accept_evidence(plan: Plan, state: PolicyState, view: View) -> AcceptEvidence:
    """Count how long clean windows have been below the floor, or at it.

    Time counts only between two samples with evidence of the same kind; a sample without evidence
    neither counts nor clears.
    """
    floor = plan.floors[state.want]
    on_trial = state.probing and state.want == state.floor
    if floor is None:
        # A tier without a floor has passed as soon as it runs.
        return AcceptEvidence(0, 0, failed=False, passed=on_trial)
    if view.accept is None or view.accept_tier != plan.tiers[state.want]:
        return AcceptEvidence(state.low_ms, state.ok_ms, failed=False, passed=False)
    # One unit more than nothing marks that evidence of this kind has begun.
    if view.accept < floor:
        low = state.low_ms + view.since_ms if state.low_ms else 1
        busier = state.want + 1 < len(plan.tiers)
        return AcceptEvidence(low, 0, failed=busier and low > plan.accept_hold_ms, passed=False)
    ok = state.ok_ms + view.since_ms if state.ok_ms else 1
    return AcceptEvidence(0, ok, failed=False, passed=on_trial and ok > plan.accept_hold_ms)


class FloorStep(NamedTuple):
    floor: int
    retreat: bool
    probe: bool


def floor_step(
    state: PolicyState, load: int, accept: AcceptEvidence, now: int, *, affordable: bool = True
) -> FloorStep:
    """One tier busier after a failed floor, one tier quieter for a trial that is due.

    Args:
        affordable: the hourly budget of tokens has room for a trial.
    """
    if accept.failed:
        return FloorStep(state.want + 1, retreat=True, probe=False)
    due = state.floor > load and not state.probing
    if due and affordable and now >= state.probe_at_ms:
        return FloorStep(state.floor - 1, retreat=False, probe=True)
    return FloorStep(state.floor, retreat=False, probe=False)


def retreated_state(plan: Plan, state: PolicyState, now: int) -> PolicyState:
    """Plan the next trial: twice as late if this one failed, or soon after one that passed."""
    recent = state.probe_ok_ms >= 0 and now - state.probe_ok_ms < state.probe_gap_ms
    if state.probe_gap_ms and (state.probing or recent):
        gap = min(state.probe_gap_ms * 2, plan.probe_max_ms)
    else:
        gap = plan.probe_after_ms
    return replace(state, probing=False, probe_gap_ms=gap, probe_at_ms=now + gap)


def affordable(watch: Watch | None, budget: int) -> bool:
    """Whether the hourly budget has room for a trial as dear as the last one.

    A debt that is paid off always allows one, so that trials never stop.
    """
    return watch is None or watch.probe_debt <= 0 or watch.probe_debt + watch.probe_cost <= budget


def charged(watch: Watch, decoded: int, since_ms: int, budget: int, *, on_trial: bool) -> Watch:
    """The debt after a sample: what a trial decoded, less what the hour brings."""
    if not on_trial and watch.probe_debt <= 0:
        return watch
    debt = watch.probe_debt - budget * since_ms / HOUR_MS
    cost = watch.probe_cost
    if on_trial:
        debt, cost = debt + decoded, cost + decoded
    return replace(watch, probe_debt=max(debt, 0.0), probe_cost=cost)
