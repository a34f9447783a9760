"""What an engine's answer to a command means.  Pure."""

from __future__ import annotations

from dataclasses import replace

from controlplane.obedience import failed, settle
from controlplane.orders import Obedience, Rules, delayed
from controlplane.policy_state import NEVER
from engine_patch.contract_words import RefusalCode
from store.records import CommandOutcome, Decision, Outcome, OutcomeKind


def apply_answer(
    obedience: Obedience, outcome: CommandOutcome, now_ms: int, rules: Rules
) -> tuple[Obedience, Decision | None]:
    """Take the engine's answer to a command into account.

    An accepted command is not confirmed yet, an unanswered one may have arrived: both wait for the
    ranks.  A stale order is sent again with the engine's own order plus one; any other refusal
    settles the decision.
    """
    if outcome.kind is OutcomeKind.ACCEPTED:
        return replace(obedience, alarms=obedience.alarms.down("command_refused")), None
    if outcome.kind is OutcomeKind.UNREACHABLE:
        return obedience, None
    if outcome.engine_epoch is not None:
        seen = (outcome.engine_epoch, outcome.engine_generation or 0)
        if seen > (obedience.epoch, obedience.generation):
            obedience = replace(obedience, epoch=seen[0], generation=seen[1])
    pending = obedience.pending
    ours = pending is not None and (pending.decision.epoch, pending.decision.generation) == (
        outcome.epoch,
        outcome.generation,
    )
    if outcome.code == RefusalCode.STALE_ORDER:
        if pending is not None and ours:
            return replace(obedience, pending=replace(pending, resend=True)), None
        return replace(obedience, sent_ms=NEVER), None
    if outcome.code in (RefusalCode.TIMEOUT, RefusalCode.DISAGREE):
        # The engine could not tell whether every replica took it: the ranks will.
        return obedience, None
    if outcome.code == RefusalCode.FOREIGN_CLAIM:
        held = "" if outcome.held_for_s is None else f" for {outcome.held_for_s:.0f} s more"
        code, text = "foreign_claim", f"claimed by {outcome.held_by or 'another holder'}{held}"
    else:
        code, text = "command_refused", outcome.message or outcome.code or "no reason given"
    if pending is None or not ours:
        alarms = obedience.alarms.up(code, text, outcome.at_utc_ms)
        if obedience.asked is None:
            return replace(obedience, alarms=alarms), None
        later = delayed(obedience, obedience.asked, now_ms, rules, first_at_once=False)
        return replace(later, alarms=alarms), None
    decision = settle(pending, Outcome.REFUSED, outcome.at_utc_ms, text)
    what = f"{pending.target.said} was refused: {text}" if code == "command_refused" else text
    return failed(obedience, code, what, now_ms, outcome.at_utc_ms, rules), decision
