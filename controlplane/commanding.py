"""Commands on the wire: the body of ``PUT /speculation`` and what its answer means.  Pure."""

from __future__ import annotations

from pydantic import ValidationError

from controlplane.handshake import COMMAND_KEY, said
from controlplane.polled import EngineError, Stamp
from engine_patch.contract_commands import CommandAnswer, Refusal, SpeculationCommand
from engine_patch.contract_words import RefusalCode
from store.observations import GapReason
from store.records import Command, CommandOutcome, OutcomeKind


def command_body(command: Command, holder: str) -> bytes:
    """The JSON body of a command.

    Raises:
        ValueError: the command contradicts itself, for example mode ``on`` with tier ``off``.
    """
    body = SpeculationCommand(
        mode=command.mode,
        tier=command.tier,
        thresholds=command.thresholds,
        lease_s=command.lease_s,
        on_lease_end=command.on_lease_end,
        holder=holder,
        epoch=command.epoch,
        generation=command.generation,
        takeover=command.takeover,
    )
    return body.model_dump_json(exclude_none=True).encode()


def read_outcome(command: Command, stamp: Stamp, status: int, body: bytes) -> CommandOutcome:
    """Read an answer to ``PUT /speculation``.

    403, 409, 422 and 503 are refusals: nothing moved, except that a 503 ``timeout`` leaves open
    whether the ranks took the command.  Anything else that is no 200 counts as not answered.
    """
    if status == 200:
        try:
            answer = CommandAnswer.model_validate_json(body)
        except ValidationError:
            return _outcome(
                command,
                stamp,
                OutcomeKind.UNREACHABLE,
                message="the engine took the command with an answer that cannot be read",
            )
        return _outcome(
            command, stamp, OutcomeKind.ACCEPTED, order=(answer.epoch, answer.generation)
        )
    if status in (403, 409, 422, 503):
        try:
            refusal = Refusal.model_validate_json(body)
        except ValidationError:
            pass
        else:
            return _refused(command, stamp, refusal)
    if status in (401, 403):
        return _outcome(
            command,
            stamp,
            OutcomeKind.REFUSED,
            code=RefusalCode.FORBIDDEN,
            message=f"the engine answers {status} to the command: it wants its admin key (SGLang's "
            f"--admin-api-key); set {COMMAND_KEY} for this engine",
        )
    if status in (404, 405):
        return _outcome(
            command,
            stamp,
            OutcomeKind.REFUSED,
            code=RefusalCode.UNSUPPORTED,
            message="this server has no /speculation: the specdeck plugin is not in it",
        )
    if status in (409, 422, 503):
        return _outcome(
            command,
            stamp,
            OutcomeKind.REFUSED,
            code=RefusalCode.UNSUPPORTED if status == 503 else RefusalCode.INVALID,
            message=f"the engine answers {status}: {said(body)}",
        )
    return _outcome(
        command,
        stamp,
        OutcomeKind.UNREACHABLE,
        message=f"PUT /speculation was answered with {status}: {said(body)}",
    )


def unanswered(command: Command, stamp: Stamp, error: EngineError) -> CommandOutcome:
    """A command that brought no answer; whether the engine took it is seen in the next sample."""
    message = error.message
    if error.reason is GapReason.TIMEOUT:
        message += "; whether the engine took the command shows in the next sample"
    return _outcome(command, stamp, OutcomeKind.UNREACHABLE, message=message)


def invalid(command: Command, stamp: Stamp, error: ValueError) -> CommandOutcome:
    """A command that contradicts itself and was not sent."""
    return _outcome(
        command,
        stamp,
        OutcomeKind.REFUSED,
        code=RefusalCode.INVALID,
        message=f"not sent: {error}",
    )


def _refused(command: Command, stamp: Stamp, refusal: Refusal) -> CommandOutcome:
    order = None
    if refusal.epoch is not None and refusal.generation is not None:
        order = (refusal.epoch, refusal.generation)
    message = refusal.message
    if refusal.code is RefusalCode.FORBIDDEN:
        message += f" (setting: {COMMAND_KEY})"
    if refusal.allowed:
        message += f"; allowed: {', '.join(refusal.allowed)}"
    return _outcome(
        command,
        stamp,
        OutcomeKind.REFUSED,
        code=refusal.code,
        message=message,
        held_by=refusal.claim.holder if refusal.claim is not None else None,
        held_for_s=refusal.claim.remaining_s if refusal.claim is not None else None,
        order=order,
    )


def _outcome(
    command: Command,
    stamp: Stamp,
    kind: OutcomeKind,
    *,
    code: str = "",
    message: str = "",
    held_by: str | None = None,
    held_for_s: float | None = None,
    order: tuple[int, int] | None = None,
) -> CommandOutcome:
    return CommandOutcome(
        kind=kind,
        epoch=command.epoch,
        generation=command.generation,
        at_utc_ms=stamp.at_utc_ms,
        at_mono_ms=stamp.at_mono_ms,
        latency_ms=stamp.latency_ms,
        code=str(code),
        message=message,
        held_by=held_by,
        held_for_s=held_for_s,
        engine_epoch=order[0] if order is not None else None,
        engine_generation=order[1] if order is not None else None,
    )
