"""Making an engine obey, and knowing whether it did.

Desired is what was asked, confirmed is what every observed rank reports, and the two are never
copied into each other.  A command that is not confirmed in time is sent again a bounded number of
times; then it counts as not applied, an alarm says so, and the next try waits longer each time.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from controlplane.orders import Obedience, Pending, Rules, delayed, forgiven, needs_order, sent
from controlplane.policy_state import NEVER
from controlplane.target import Target, obeyed, replicas_disagree, reported
from engine_patch.contract_words import Mode
from store.observations import Sample
from store.records import Command, Decision, Outcome

UNSETTLED = "the control plane stopped before this was settled"
"""What a decision is told whose outcome nobody waited for."""


def after_restart(obedience: Obedience, at_utc_ms: int) -> tuple[Obedience, tuple[Decision, ...]]:
    """A new start of the engine: orders begin again, nothing is confirmed, nothing is pending."""
    settled: tuple[Decision, ...] = ()
    if obedience.pending is not None:
        settled = (
            settle(
                obedience.pending, Outcome.SUPERSEDED, at_utc_ms, "the engine restarted meanwhile"
            ),
        )
    return Obedience(asked=obedience.asked, alarms=obedience.alarms), settled


def observe(obedience: Obedience, sample: Sample, now_ms: int) -> Obedience:
    """Take over what the ranks report."""
    tier = sample.engine_tier
    if tier is None:
        unclear = obedience.unclear_ms if obedience.unclear_ms >= 0 else now_ms
        differ = NEVER
        if replicas_disagree(sample):
            differ = obedience.differ_ms if obedience.differ_ms >= 0 else now_ms
        return replace(obedience, differ_ms=differ, unclear_ms=unclear)
    if tier != obedience.confirmed:
        return replace(
            obedience,
            confirmed=tier,
            confirmed_ms=now_ms,
            differ_ms=NEVER,
            unclear_ms=NEVER,
        )
    if obedience.unclear_ms >= 0:
        return replace(obedience, differ_ms=NEVER, unclear_ms=NEVER)
    return obedience


def settle(pending: Pending, outcome: Outcome, at_utc_ms: int, message: str = "") -> Decision:
    """The decision's record with what became of it."""
    return pending.decision.model_copy(
        update={"outcome": outcome, "settled_utc_ms": at_utc_ms, "message": message}
    )


def left_open(decision: Decision, at_utc_ms: int) -> Decision:
    """The record of a decision whose outcome nobody waits for any more."""
    lost = {"outcome": Outcome.TIMED_OUT, "settled_utc_ms": at_utc_ms, "message": UNSETTLED}
    return decision.model_copy(update=lost)


@dataclass(frozen=True, slots=True)
class Reconciled:
    """One step's outcome: the new state, what to send, and the decisions made or settled."""

    obedience: Obedience
    command: Command | None
    decisions: tuple[Decision, ...]


def reconcile(
    obedience: Obedience,
    target: Target | None,
    sample: Sample,
    now_ms: int,
    rules: Rules,
    *,
    why_none: str = "",
    keep: bool = False,
) -> Reconciled:
    """Compare what is wanted with what the engine does, and send what is missing.

    Args:
        target: what is wanted now; None if nothing may be sent.
        why_none: what a decision on its way is told when ``target`` is None.
        keep: ask for no new change (what is known of the engine is old); what is on its way and
            the renewal of leases go on.
    """
    decisions: list[Decision] = []
    pending = obedience.pending
    if pending is not None:
        if obeyed(pending.target, sample):
            decisions.append(_confirmed(pending, sample, now_ms))
            obedience = _forgiven(obedience, now_ms)
        elif target is None or not pending.target.asks(target):
            message = why_none if target is None else f"replaced: {target.text}"
            decisions.append(settle(pending, Outcome.SUPERSEDED, sample.at_utc_ms, message))
            obedience = replace(obedience, pending=None)
        elif pending.resend or now_ms - pending.sent_ms >= rules.timeout_ms:
            return _again_or_not(obedience, pending, sample, now_ms, rules)
        else:
            return Reconciled(obedience, None, ())
    if target is None:
        if obedience.obeyed_ms >= 0:
            obedience = replace(obedience, obeyed_ms=NEVER)
        return Reconciled(obedience, None, tuple(decisions))
    if obeyed(target, sample):
        obedience = _obeying(obedience, now_ms)
        if needs_order(obedience, target, sample, now_ms, rules):
            obedience, command = sent(obedience, target, sample, now_ms)
            return Reconciled(obedience, command, tuple(decisions))
        return Reconciled(obedience, None, tuple(decisions))
    if keep:
        return Reconciled(obedience, None, tuple(decisions))
    return _ask(obedience, target, sample, now_ms, rules, decisions)


def _ask(
    obedience: Obedience,
    target: Target,
    sample: Sample,
    now_ms: int,
    rules: Rules,
    decisions: list[Decision],
) -> Reconciled:
    """Ask for a change, unless it has to wait."""
    if target.settled:
        return Reconciled(obedience, None, tuple(decisions))
    text = target.text
    again = obedience.asked is not None and obedience.asked.asks(target)
    unclear = sample.engine_tier is None and now_ms - obedience.unclear_ms < rules.timeout_ms
    if unclear and (again or not target.exact):
        # Ranks that are on their way, or not seen for a moment, are no reason to ask.
        return Reconciled(obedience, None, tuple(decisions))
    if again and obedience.obeyed_ms >= 0:
        # It did what was asked and then stopped, without an order of ours.
        cause = _cause(sample)
        text = f"the engine left {target.said} by itself ({cause}); asked again: {text}"
        raised = obedience.alarms.up(
            "tier_changed",
            f"the engine left {target.said} by itself ({cause}); {reported(sample)}",
            sample.at_utc_ms,
        )
        obedience = replace(
            delayed(obedience, target, now_ms, rules, first_at_once=True), alarms=raised
        )
    if obedience.waiting_ms(target, now_ms) > 0:
        return Reconciled(replace(obedience, obeyed_ms=NEVER), None, tuple(decisions))
    obedience, command = sent(replace(obedience, obeyed_ms=NEVER), target, sample, now_ms)
    decision = Decision(
        engine_id=rules.engine_id,
        seq=sample.seq,
        at_utc_ms=sample.at_utc_ms,
        from_tier=sample.engine_tier,
        to_tier=target.record_tier,
        reason=target.reason,
        text=text,
        clauses=target.clauses,
        author=target.author,
        attempts=1,
        epoch=command.epoch,
        generation=command.generation,
    )
    pending = Pending(decision, target, asked_ms=now_ms, sent_ms=now_ms)
    obedience = replace(obedience, pending=pending)
    return Reconciled(obedience, command, (*decisions, decision))


def _again_or_not(
    obedience: Obedience, pending: Pending, sample: Sample, now_ms: int, rules: Rules
) -> Reconciled:
    """Send an unconfirmed decision once more, or give it up as not applied."""
    decision = pending.decision
    if decision.attempts <= rules.retries:
        obedience, command = sent(obedience, pending.target, sample, now_ms)
        decision = decision.model_copy(
            update={
                "attempts": decision.attempts + 1,
                "epoch": command.epoch,
                "generation": command.generation,
            }
        )
        pending = replace(pending, decision=decision, sent_ms=now_ms, resend=False)
        return Reconciled(replace(obedience, pending=pending), command, (decision,))
    message = (
        f"not applied: {reported(sample)} after {decision.attempts} "
        f"{'try' if decision.attempts == 1 else 'tries'} in "
        f"{(now_ms - pending.asked_ms) / 1000:.1f} s"
    )
    obedience = failed(
        obedience,
        "not_applied",
        f"{pending.target.said} was asked for and {message}",
        now_ms,
        sample.at_utc_ms,
        rules,
    )
    return Reconciled(
        obedience, None, (settle(pending, Outcome.TIMED_OUT, sample.at_utc_ms, message),)
    )


def failed(
    obedience: Obedience, code: str, text: str, now_ms: int, at_utc_ms: int, rules: Rules
) -> Obedience:
    """The pending decision was not applied: alarm, and a longer wait before the next try."""
    if obedience.pending is None:
        return obedience
    alarms = obedience.alarms.up(code, text, at_utc_ms)
    later = delayed(obedience, obedience.pending.target, now_ms, rules, first_at_once=False)
    return replace(later, pending=None, alarms=alarms)


def _obeying(obedience: Obedience, now_ms: int) -> Obedience:
    """The engine does what is wanted: what was wrong is over."""
    since = obedience.obeyed_ms
    if since < 0:
        over = obedience.alarms.down("not_applied", "command_refused", "tier_changed")
        return replace(obedience, obeyed_ms=now_ms, retry_ms=NEVER, alarms=over)
    if obedience.failures and forgiven(obedience, now_ms):
        return replace(obedience, failed=None, failures=0)
    return obedience


def _forgiven(obedience: Obedience, now_ms: int) -> Obedience:
    return replace(_obeying(obedience, now_ms), pending=None)


def _confirmed(pending: Pending, sample: Sample, now_ms: int) -> Decision:
    update = {
        "outcome": Outcome.CONFIRMED,
        "settled_utc_ms": sample.at_utc_ms,
        "latency_ms": float(now_ms - pending.asked_ms),
    }
    if pending.target.mode is Mode.ON and pending.target.tier is None:
        # "The last speculating tier" is known only now.
        update["to_tier"] = sample.engine_tier or pending.decision.to_tier
    return pending.decision.model_copy(update=update)


def _cause(sample: Sample) -> str:
    """Why the engine says it changed, from its journal."""
    if not sample.switches:
        return "no reason given"
    return sample.switches[-1].reason.value.replace("_", " ")
