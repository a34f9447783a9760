"""What is written down and published: verdicts, ticks, decisions, overrides, commands, audit.

Frozen and pure.  Later work adds fields with defaults, never new shapes for old words.  Records of
benchmarks, fleet rules and idempotency keys: ``store.measurements``, ``store.rules``,
``store.idempotency``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from engine_patch.contract import JournalEntry
from engine_patch.contract_words import Mode, OnLeaseEnd
from engine_patch.tier import OFF, Frozen, Thresholds, TierName
from store.observations import EngineFacts, Observation
from store.policies import PolicyConfig, Stance
from store.verdicts import Clause as Clause
from store.verdicts import Op as Op
from store.verdicts import Outlook as Outlook
from store.verdicts import Reason as Reason
from store.verdicts import Verdict as Verdict


class Guards(StrEnum):
    """What KV and retraction guards may do during an override."""

    KEEP = "keep"
    SUSPEND = "suspend"


class Override(Frozen):
    """An operator's mode with author, reason and mandatory expiry.

    ``granted_s`` is the granted length, the sum of all grants; it is never exceeded.

    Args:
        ended_utc_ms: when it ended, None while in force.
        ended_by: "expired", "released by NAME", "replaced by N".
    """

    id: int = 0
    engine_id: str
    mode: Mode
    tier: TierName | None = None
    author: str = Field(min_length=1, max_length=200)
    reason: str = Field(min_length=1, max_length=500)
    guards: Guards = Guards.KEEP
    created_utc_ms: int
    expires_utc_ms: int
    granted_s: float = Field(gt=0)
    ended_utc_ms: int | None = None
    ended_by: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.mode is Mode.ON and self.tier == OFF:
            raise ValueError("an override 'on' cannot name tier 'off': use mode 'off'")
        if self.mode is not Mode.ON and self.tier not in (None, OFF):
            raise ValueError(f"an override {self.mode} takes no tier")
        if self.expires_utc_ms <= self.created_utc_ms:
            raise ValueError("an override must expire after it was created")
        return self


class Outcome(StrEnum):
    """What became of a decision."""

    REQUESTED = "requested"
    CONFIRMED = "confirmed"
    REFUSED = "refused"
    TIMED_OUT = "timed_out"
    SHADOW = "shadow"
    """Computed and recorded, not sent."""
    SUPERSEDED = "superseded"


class Decision(Frozen):
    """A verdict that asked for a change, and what became of it.

    Args:
        seq: observation it was taken on.
        author: "auto", or the name of the person whose override asked.
        latency_ms: from the request until every observed rank confirmed it.
        message: the engine's or controller's own words on a refusal or time-out.
    """

    id: int = 0
    engine_id: str
    seq: int
    at_utc_ms: int
    from_tier: TierName | None
    to_tier: TierName
    reason: Reason
    text: str
    clauses: tuple[Clause, ...] = ()
    author: str = "auto"
    outcome: Outcome = Outcome.REQUESTED
    latency_ms: float | None = None
    attempts: int = 0
    epoch: int = 0
    generation: int = 0
    message: str = ""
    settled_utc_ms: int | None = None


class EngineSwitch(Frozen):
    """A change the engine made, read from its numbered journal."""

    id: int = 0
    engine_id: str
    boot_id: str
    seen_utc_ms: int
    entry: JournalEntry


class Alarm(Frozen):
    """Something a person must know: raised, and cleared when it is over."""

    code: str
    text: str
    since_utc_ms: int


class Command(Frozen):
    """What the controller wants sent to the engine; order is (epoch, generation)."""

    mode: Mode
    tier: TierName | None
    thresholds: Thresholds | None = None
    lease_s: float
    on_lease_end: OnLeaseEnd = OnLeaseEnd.AUTO
    epoch: int
    generation: int
    takeover: bool = False


class OutcomeKind(StrEnum):
    """Whether the engine took a command."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"


class CommandOutcome(Frozen):
    """How the engine answered a command: taken, refused, or not answered at all.

    Args:
        code: the engine's refusal code, "" unless refused.
        held_by, held_for_s: on a foreign claim, who holds it and for how long still.
        epoch, generation: the order the command was sent with; ``engine_epoch`` and
            ``engine_generation`` are what the engine says is in force, if it said so.
    """

    kind: OutcomeKind
    epoch: int
    generation: int
    at_utc_ms: int
    at_mono_ms: int
    latency_ms: float
    code: str = ""
    message: str = ""
    held_by: str | None = None
    held_for_s: float | None = None
    engine_epoch: int | None = None
    engine_generation: int | None = None


class Tick(Frozen):
    """One controller step.

    Args:
        id: row id once stored; an SSE event id.
        desired, desired_mode: what the control plane asks for.
        confirmed: the tier every observed rank reports; None if they differ or nothing is seen.
        decode_tok_s: output tokens per second since the last fresh sample, from counters.
        tier_age_s: seconds since the confirmed tier was confirmed.
        stale_s: seconds since the last fresh sample.
        pending: the decision that is not settled yet.
        decisions: decisions made or settled in this very step, for the store.
        warnings: sentences for the operator, for example about an off slower than plain.
    """

    id: int = 0
    engine_id: str
    observation: Observation
    verdict: Verdict
    stance: Stance
    policy_version: int
    desired: TierName | None
    desired_mode: Mode | None
    confirmed: TierName | None
    tier_age_s: float | None = None
    decode_tok_s: float | None = None
    stale_s: float = 0.0
    override: Override | None = None
    override_left_s: float | None = None
    pending: Decision | None = None
    decisions: tuple[Decision, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    warnings: tuple[str, ...] = ()


class EngineRecord(Frozen):
    """An engine the control plane looks after, with what is known of it.

    Args:
        options: its settings as JSON if it was added while the control plane ran, else "".
        source: where it was found ("file PATH", "router URL"); "" if it stands in the settings or
            was added by request.
        removed_utc_ms: when it was removed again; None while it is looked after.
    """

    engine_id: str
    url: str
    name: str = ""
    group: str = ""
    facts: EngineFacts | None = None
    added_utc_ms: int
    options: str = ""
    source: str = ""
    removed_utc_ms: int | None = None


class AuditEntry(Frozen):
    """One act of a person or of the service.  Never deleted.

    Args:
        hash: covers this row and the one before (``store.audit_chain``); filled in by the store.
    """

    id: int = 0
    at_utc_ms: int
    actor: str
    action: str
    target: str
    detail: str = ""
    hash: str = ""


class RawScrape(Frozen):
    """The text an endpoint answered, kept so that a parser fix applies to old sessions."""

    engine_id: str
    seq: int
    at_utc_ms: int
    path: str
    text: str


class Marker(Frozen):
    """A note on the time line: a deploy, an incident, an engine restart.

    Args:
        last_seq: the last observation it speaks of, if it speaks of several.
    """

    id: int = 0
    engine_id: str
    at_utc_ms: int
    seq: int
    kind: str
    author: str
    text: str
    last_seq: int | None = None


class SessionRecord(Frozen):
    """One recording of an engine."""

    id: int = 0
    engine_id: str
    name: str
    started_utc_ms: int
    ended_utc_ms: int | None = None
    first_seq: int = 0
    last_seq: int | None = None
    policy: PolicyConfig | None = None
    facts: EngineFacts | None = None


class InputKind(StrEnum):
    """What a controller takes in beside observations."""

    START = "start"
    """The process started: the controller's state begins anew."""
    CONFIG = "config"
    """Policy, facts, costs, holder: what every step from here on rests on."""
    OVERRIDE = "override"
    """A person set, extended, replaced or released an override, or one was read back."""
    OUTCOME = "outcome"
    """The engine's answer to a command."""
    CHECKPOINT = "checkpoint"
    """The controller's whole state, so that a replay can begin here."""


class ControlInput(Frozen):
    """One of them, in the order the controller took it in: by ``after_seq``, then by ``id``.

    With the observations these are everything a replay needs to come to the same verdicts.

    Args:
        after_seq: it was taken in after the step on this observation and before the next.
        body: the input itself as JSON; ``docs/sessions.md`` gives the shape by kind.
    """

    id: int = 0
    engine_id: str
    after_seq: int = Field(ge=0)
    kind: InputKind
    at_utc_ms: int
    body: str = "{}"
