"""The verdict of one step in words: who steers, why, what each other tier still needs.  Pure."""

from __future__ import annotations

from controlplane.capabilities import observing_only
from controlplane.clauses import seconds
from controlplane.granted import Granted
from controlplane.orders import Obedience
from controlplane.plan import Plan
from controlplane.policy_state import Choice, Gate, PolicyState
from controlplane.steering import Decided, Situation, override_text
from controlplane.target import Target, obeyed
from controlplane.timeline import Timeline
from engine_patch.contract_words import Mode
from store.observations import EngineFacts, Gap
from store.policies import Stance
from store.records import Outlook, Reason, Verdict


def read_only_text(facts: EngineFacts, *, read_only: bool) -> str:
    """Why this engine is only watched; "" if it may be commanded."""
    barred = observing_only(facts)
    if barred is not None:
        return barred
    return "read-only by configuration: observing only" if read_only else ""


def gap_verdict(
    plan: Plan, time: Timeline, gap: Gap, obedience: Obedience, granted: Granted | None
) -> Verdict:
    """Nothing is decided without a sample: what was asked stays asked."""
    now = time.clock.now_ms
    since = max(time.sampled_ms, time.began_ms)
    parts = [f"no answer for {seconds(now - since)} ({gap.reason.value}): {gap.message}"]
    asked = obedience.asked
    if asked is not None:
        parts.append(f"{asked.said} kept")
    if granted is not None:
        parts.append(override_text(plan, granted.override))
    if time.lease_ms >= 0:
        left = time.lease_ms - now
        parts.append(
            f"the engine's lease ends in {seconds(left)}, then it goes on by itself"
            if left > 0
            else "the engine's lease has ended: it goes on by itself"
        )
    return Verdict(tier=None, reason=Reason.GAP, text=" · ".join(parts))


def sample_verdict(
    situation: Situation,
    policy: PolicyState,
    decided: Decided,
    target: Target | None,
    obedience: Obedience,
    *,
    full: bool,
) -> Verdict:
    """The verdict on a sample.

    Args:
        obedience: after this step's commands.
        full: with sentence, clauses and outlook.
    """
    reason, tier = _answer(situation, policy, decided, target, obedience)
    if not full:
        return Verdict(tier=tier, reason=reason, text="")
    told = decided.explanation
    outlook = told.outlook if told is not None else ()
    clauses = told.clauses if told is not None else ()
    pending = obedience.pending
    if reason in (Reason.READ_ONLY, Reason.RESTART, Reason.DISAGREE, Reason.STALE):
        outlook, clauses = (), ()
    elif situation.granted is not None:
        outlook = _under_override(situation, policy, situation.granted, outlook)
        clauses = target.clauses if target is not None else ()
    elif pending is not None and situation.automatic:
        clauses = pending.decision.clauses
    text = _text(situation, policy, decided, target, obedience, reason)
    return Verdict(tier=tier, reason=reason, text=text, clauses=clauses, outlook=outlook)


def _answer(
    situation: Situation,
    policy: PolicyState,
    decided: Decided,
    target: Target | None,
    obedience: Obedience,
) -> tuple[Reason, str | None]:
    """Reason code, and the tier asked for where the engine does not run it."""
    seen = situation.sample.engine_tier
    if situation.read_only or situation.foreign:
        return Reason.READ_ONLY, None
    if situation.advance.restart:
        return Reason.RESTART, None
    if situation.granted is not None:
        if target is None:
            return Reason.OVERRIDE, None
        done = target.mode is Mode.AUTO or obeyed(target, situation.sample)
        return target.reason, None if done else target.record_tier
    if situation.disagree:
        return Reason.DISAGREE, None
    if situation.stale:
        return Reason.STALE, None
    if situation.plan.not_ready:
        return Reason.NOT_READY, None
    if situation.stance is Stance.PAUSED:
        return Reason.PAUSED, None
    if policy.want < 0:
        return Reason.NOT_READY, None
    want = situation.plan.tiers[policy.want]
    tier = want if want != seen else None
    if situation.cause is not None and situation.cause[0] is Reason.OVERRIDE_ENDED:
        return Reason.OVERRIDE_ENDED, tier
    if situation.automatic and situation.grace_left_ms > 0:
        return Reason.GRACE, None
    if situation.automatic and obedience.pending is not None:
        return obedience.pending.decision.reason, tier
    choice = decided.choice
    if choice is None:
        return (Reason.HOLDING, None) if tier is None else (policy.reason, tier)
    if tier is not None and choice.gate in (None, Gate.PENDING):
        return policy.reason, tier
    return choice.reason, tier


def _text(
    situation: Situation,
    policy: PolicyState,
    decided: Decided,
    target: Target | None,
    obedience: Obedience,
    reason: Reason,
) -> str:
    plan, stale = situation.plan, seconds(situation.time.stale_ms())
    if situation.read_only or situation.foreign:
        return situation.read_only or situation.foreign
    match reason:
        case Reason.RESTART if situation.advance.restart:
            return f"the engine restarted · start grace {seconds(situation.grace_left_ms)}"
        case Reason.DISAGREE:
            return "ranks of a replica report different tiers: automation stopped until they agree"
        case Reason.STALE:
            kept = "" if obedience.asked is None else f" · {obedience.asked.said} kept"
            return f"no new numbers for {stale}{kept}"
        case Reason.PAUSED:
            return "automation is paused"
        case Reason.NOT_READY:
            return plan.not_ready or _not_ready(situation)
    if situation.granted is not None:
        held = override_text(plan, situation.granted.override)
        return _waiting(situation, target, obedience, held if target is None else target.text)
    if reason is Reason.OVERRIDE_ENDED and situation.cause is not None:
        return _waiting(
            situation, target, obedience, f"{situation.cause[1]}: {plan.say(_want(plan, policy))}"
        )
    if obedience.pending is not None and situation.automatic:
        return f"{obedience.pending.decision.text} · waiting for the engine"
    told = decided.explanation
    if reason is Reason.GRACE:
        return f"start grace {seconds(situation.grace_left_ms)} left"
    if told is None:
        return f"waiting for new numbers, the last are {stale} old"
    differs = _want(plan, policy) != situation.sample.engine_tier
    if differs and _unasked(decided.choice) and policy.text:
        return _waiting(situation, target, obedience, policy.text)
    return told.text


def _want(plan: Plan, policy: PolicyState) -> str:
    return plan.tiers[policy.want]


def _unasked(choice: Choice | None) -> bool:
    """The view changed nothing, so the wanted tier's own reason is the one to tell."""
    return choice is not None and not choice.changed and choice.gate in (None, Gate.PENDING)


def _waiting(situation: Situation, target: Target | None, obedience: Obedience, text: str) -> str:
    """With what a command is waiting for."""
    if obedience.pending is not None:
        return f"{text} · waiting for the engine"
    wait = obedience.waiting_ms(target, situation.now_ms)
    if wait > 0 and obedience.obeyed_ms < 0:
        return f"{text} · not applied, next try in {seconds(wait)}"
    return text


def _not_ready(situation: Situation) -> str:
    if situation.sample.engine_tier is None:
        return "no single tier is reported by the ranks yet"
    return "the engine does not tell its running requests"


def _under_override(
    situation: Situation, policy: PolicyState, granted: Granted, outlook: tuple[Outlook, ...]
) -> tuple[Outlook, ...]:
    """What automation would do: its own tier first, held back by the override."""
    if policy.want < 0 or situation.plan.not_ready:
        return outlook
    want = situation.plan.tiers[policy.want]
    if want == situation.sample.engine_tier:
        return outlook
    left = seconds(granted.left_ms(situation.now_ms))
    first = Outlook(
        tier=want, reason=policy.reason, clauses=policy.clauses, blocked=f"override {left} left"
    )
    return (first, *(item for item in outlook if item.tier != want))
