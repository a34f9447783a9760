"""From the tier a policy would like to the one it may take: guards, room, gates, judgement.

Shared by every policy that changes tiers.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from controlplane import consequence
from controlplane.guards import guard_in_force, guard_tier, with_room
from controlplane.hold_off import HoldOff, Judgement
from controlplane.plan import Judging, Plan
from controlplane.policy_state import NEVER, Gate, PolicyState, View
from controlplane.watch import HOUR_MS, Seen, Trial, Watch
from store.records import Reason

UNJUDGED = frozenset({Reason.KV_PRESSURE, Reason.RETRACTION, Reason.REVERT})
"""Changes that are not made for speed, or that take one back: their speed is not judged."""

GATE_REASONS = {
    Gate.DWELL: Reason.DWELL,
    Gate.BUDGET: Reason.BUDGET,
    Gate.COOLDOWN: Reason.COOLDOWN,
    Gate.HELD_OFF: Reason.HELD_OFF,
}
"""The reason code of a view whose change waits at a gate; else it is ``holding``."""


@dataclass(frozen=True, slots=True)
class Move:
    """What becomes of the tier a policy would like.

    Args:
        liked: that tier, after what is held off.
        held_off: what turned the policy's tier into ``liked``; None if nothing did.
        reverting: the move takes back a change that made things worse.
    """

    liked: int
    want: int
    changed: bool
    candidate: int
    gate: Gate | None
    gate_left_ms: int
    helpless: bool
    guard: Reason | None
    guard_ms: int
    retraction_ms: int
    held_off: HoldOff | None = None

    @property
    def blocked(self) -> bool:
        """A gate keeps the whole change back; only part of it is missing for lack of room."""
        return not self.changed and self.gate not in (None, Gate.KV_ROOM)

    @property
    def reverting(self) -> bool:
        return self.held_off is not None and self.guard is None


def watched(
    plan: Plan, state: PolicyState, view: View, *, hold_off: bool = True
) -> tuple[Watch | None, Judgement | None, int]:
    """Decode speed and judgement after this view, and the tokens decoded since the last one.

    Args:
        hold_off: leave a tier alone that made things worse (False: the caller does it its way).
    """
    judging = plan.judging
    if judging is None:
        return None, None, 0
    watch = state.watch or Watch()
    if watch.held_off or watch.changes:
        watch = consequence.forgotten(watch, view.load, view.now_ms)
    clean = not view.hole and view.retracted == 0
    watch, decoded = consequence.measured(
        watch,
        Seen(
            view.now_ms,
            view.since_ms,
            view.confirmed,
            view.load,
            view.total,
            view.decode_tokens,
            view.prefill_tokens,
            view.graph_misses,
            clean,
            view.accept,
        ),
    )
    trial = watch.trial
    if trial is None:
        return watch, None, decoded
    if not view.acting:
        return replace(watch, trial=None), None, decoded
    watch, found = consequence.judged(
        watch, view.now_ms, judging.judge_ms, judging.margin, plan.table
    )
    if found is not None and (hold_off or not found.worse):
        watch = consequence.settled(
            watch, found, trial.busier, view.now_ms, judging.hold_off_ms, judging.hold_off_max_ms
        )
    return watch, found, decoded


def move(plan: Plan, state: PolicyState, view: View, watch: Watch | None, natural: int) -> Move:
    """What becomes of ``natural``, the tier the policy would like."""
    liked, held_off = _held_back(plan, watch, view, natural)
    guard, guard_ms, retraction_ms = guard_in_force(plan, state, view, liked)
    want, gate = liked, None
    helpless = False
    if guard is not None:
        refuge = guard_tier(plan, plan.reserves[liked])
        helpless = refuge is None
        want = liked if refuge is None else refuge
    candidate = want
    if want < state.want and guard is None:
        want = with_room(plan, view, want, state.want)
        gate = Gate.KV_ROOM if want != candidate else None
    urgent = guard is not None and not helpless
    left = 0
    if want != state.want:
        blocked, left = _gate(
            plan, state, view, watch, want, urgent=urgent, reverting=held_off is not None
        )
        if blocked is not None:
            candidate, want, gate = want, state.want, blocked
    if want == candidate and held_off is not None and guard is None and want == state.want:
        # Nothing changes: what would, is held off.
        candidate, gate = natural, Gate.HELD_OFF
        left = held_off.until_ms - view.now_ms
    return Move(
        liked=liked,
        want=want,
        changed=want != state.want,
        candidate=candidate if candidate != want else NEVER,
        gate=gate if candidate != want else None,
        gate_left_ms=left,
        helpless=helpless,
        guard=guard,
        guard_ms=guard_ms,
        retraction_ms=retraction_ms,
        held_off=held_off,
    )


def noted(
    plan: Plan, state: PolicyState, view: View, watch: Watch | None, move: Move, reason: Reason
) -> Watch | None:
    """The watch after a change: it counts against the budget, and its consequence is awaited."""
    judging = plan.judging
    if watch is None or judging is None or not move.changed:
        return watch
    was, now = plan.tiers[state.want], plan.tiers[move.want]
    busier = move.want > state.want
    trial = None
    if view.acting and reason not in UNJUDGED and view.confirmed == was:
        settle = judging.cold_ms if view.cold and busier is False else judging.settle_ms
        before = watch.before(was, view.now_ms)
        trial = Trial(was, now, busier, view.now_ms, settle, before)
    return replace(
        watch,
        trial=trial,
        changes=(*watch.changes[-2 * judging.switches_per_hour :], view.now_ms),
        went_busier=busier,
        probe_cost=0.0 if reason is Reason.PROBE else watch.probe_cost,
    )


def _held_back(
    plan: Plan, watch: Watch | None, view: View, natural: int
) -> tuple[int, HoldOff | None]:
    if watch is None or not watch.held_off:
        return natural, None
    hold = max(plan.up_hold_ms, plan.down_hold_ms)
    for one in watch.held_off:
        stands = one.tier == plan.tiers[natural] and one.back in plan.tiers
        if stands and one.counts(view.now_ms, hold):
            return plan.tiers.index(one.back), one
    return natural, None


def _gate(
    plan: Plan,
    state: PolicyState,
    view: View,
    watch: Watch | None,
    want: int,
    *,
    urgent: bool,
    reverting: bool,
) -> tuple[Gate | None, int]:
    """What stands in the way of a change; a guard waits for the start grace alone."""
    if view.grace_left_ms > 0:
        return Gate.GRACE, view.grace_left_ms
    if urgent:
        return None, 0
    if view.pending:
        return Gate.PENDING, 0
    since = view.settled_ms if view.acting else state.changed_ms
    left = plan.dwell_ms - (view.now_ms - since) if since >= 0 else 0
    if left > 0:
        return Gate.DWELL, left
    if view.turn_left_ms > 0 and not reverting:
        return Gate.TURN, view.turn_left_ms
    if watch is None or plan.judging is None:
        return None, 0
    return _rationed(
        plan.judging, watch, view.now_ms, busier=want > state.want, reverting=reverting
    )


def _rationed(
    judging: Judging, watch: Watch, now: int, *, busier: bool, reverting: bool
) -> tuple[Gate | None, int]:
    """Cooldown and budget.  The last change of an hour is kept for going busier or back."""
    changes = watch.changes
    if not changes:
        return None, 0
    left = judging.cooldown_ms - (now - changes[-1])
    if left > 0 and busier != watch.went_busier and not reverting:
        return Gate.COOLDOWN, left
    allowed = judging.switches_per_hour - (0 if busier or reverting else 1)
    if watch.used(now) < allowed:
        return None, 0
    # Room comes when as many changes have left the hour as are too many.
    oldest = changes[-allowed] if allowed <= len(changes) else changes[0]
    return Gate.BUDGET, max(HOUR_MS - (now - oldest), 1)
