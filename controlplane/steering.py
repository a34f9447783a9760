"""From one sample to what is wanted: who steers, what the policy says, what is to be asked.

Pure.  An override of a person outranks automation in every stance; a policy that does not act goes
on deciding, so that its answer can be shown and taken up again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from controlplane.clauses import guard_clauses, phrase
from controlplane.delegation import explain_delegated, supervise, thresholds_of
from controlplane.explanation import Explanation
from controlplane.granted import Granted
from controlplane.guards import guard_tier
from controlplane.orders import EXACT_SLACK_MS, Obedience
from controlplane.plan import Plan
from controlplane.policy import decide, explain
from controlplane.policy_state import Choice, PolicyState, View
from controlplane.target import Target, for_tier
from controlplane.timeline import Advance, Timeline
from controlplane.turns import Turn
from engine_patch.contract_words import Mode, OffFlavour
from engine_patch.tier import OFF
from store.observations import EngineFacts, Sample
from store.policies import Stance
from store.records import Decision, Guards, Outcome, Override, Reason

AUTO = "auto"
"""Author of decisions that no person asked for."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What holds at one sample, before anything is decided.

    Args:
        now_ms: the moment of the sample on the controller's time line.
        grace_left_ms: time left after the engine's start in which nothing is switched.
        cause: what the next automatic change is attributed to; None if to the policy itself.
        read_only, foreign: why nothing may be sent, "" if it may.
        stale: no fresh numbers for too long.
        disagree: TP ranks of a replica have differed for too long.
        unseen: no single tier has been reported for too long to wait for one.
        lease_ms: lease of automation's commands.
        holder: the name this control plane claims engines under.
    """

    plan: Plan
    facts: EngineFacts
    sample: Sample
    advance: Advance
    time: Timeline
    now_ms: int
    obedience: Obedience
    stance: Stance
    granted: Granted | None
    cause: tuple[Reason, str] | None
    read_only: str
    foreign: str
    stale: bool
    disagree: bool
    unseen: bool
    lease_ms: int
    holder: str
    grace_left_ms: int
    turn: Turn | None = None

    @property
    def automatic(self) -> bool:
        """Whether the policy steers: active, and no override in force."""
        return self.granted is None and self.stance is Stance.ACTIVE

    @property
    def acting(self) -> bool:
        """Whether the policy's changes reach the engine."""
        return self.automatic and not (self.read_only or self.foreign or self.disagree)

    def why_not_acting(self) -> str:
        """Why nothing may be sent now, in words."""
        if self.read_only or self.foreign:
            return self.read_only or self.foreign
        if self.granted is None and self.stance is not Stance.ACTIVE:
            return f"automation is {self.stance.value} now"
        if self.disagree:
            return "ranks disagree"
        return self.plan.not_ready or "the engine is starting"


@dataclass(frozen=True, slots=True)
class Decided:
    """What the policy made of the sample; all None if it was not asked."""

    choice: Choice | None = None
    view: View | None = None
    explanation: Explanation | None = None
    shadow: Decision | None = None


def load_of(sample: Sample, facts: EngineFacts) -> int | None:
    """Running requests of the busiest replica; None if the engine does not tell."""
    if sample.replica_concurrency is not None:
        return sample.replica_concurrency
    if facts.identity is None or facts.identity.dp_size == 1:
        return sample.concurrency
    return None


def decide_now(
    situation: Situation, policy: PolicyState, *, explain_all: bool
) -> tuple[PolicyState, Decided]:
    """Ask the policy, if there is something new to ask it about."""
    plan, sample = situation.plan, situation.sample
    load = load_of(sample, situation.facts)
    if plan.not_ready or situation.read_only or not sample.fresh or load is None:
        return policy, Decided()
    adopt = situation.granted is None and not situation.unseen
    if policy.want < 0 and adopt and sample.engine_tier is None:
        return policy, Decided()
    view = _view(situation, load, adopt=adopt)
    before = policy.want
    delegated = plan.delegation is not None and situation.automatic
    if delegated:
        policy, choice = supervise(plan, policy, view)
    else:
        policy, choice = decide(plan, policy, view)
    moved = choice.changed or choice.came_from < 0
    moved |= delegated and not policy.text
    if not (explain_all or moved):
        return policy, Decided(choice, view)
    told = (explain_delegated if delegated else explain)(plan, policy, view, choice)
    if moved:
        policy = replace(policy, text=told.text, clauses=told.clauses)
    shadow = None
    watching = situation.granted is None and situation.stance is Stance.SHADOW
    if choice.changed and watching and before >= 0:
        shadow = Decision(
            engine_id=sample.engine_id,
            seq=sample.seq,
            at_utc_ms=sample.at_utc_ms,
            from_tier=plan.tiers[before],
            to_tier=plan.tiers[choice.want],
            reason=choice.reason,
            text=told.text,
            clauses=told.clauses,
            outcome=Outcome.SHADOW,
            settled_utc_ms=sample.at_utc_ms,
        )
    return policy, Decided(choice, view, told, shadow)


def _view(situation: Situation, load: int, *, adopt: bool) -> View:
    plan, sample, obedience = situation.plan, situation.sample, situation.obedience
    advance, kv = situation.advance, sample.kv
    tier = sample.engine_tier
    # The first window after a change may still have steps of the tier before.
    clean = (
        sample.accept_length is not None
        and advance.verified
        and sample.accept_tier == tier
        and sample.accept_requests >= plan.accept_min_requests
        and obedience.confirmed_ms < situation.now_ms
    )
    granted = situation.granted
    return View(
        now_ms=situation.now_ms,
        since_ms=advance.since_ms,
        hole=advance.hole,
        load=load,
        total=load if sample.concurrency is None else sample.concurrency,
        kv_used=kv.used,
        kv_committed=kv.committed,
        kv_capacity=kv.capacity,
        retracted=advance.retracted,
        accept=sample.accept_length if clean else None,
        accept_tier=sample.accept_tier if clean else None,
        confirmed=tier,
        settled_ms=obedience.settled_ms,
        acting=situation.acting,
        pending=situation.acting and obedience.pending is not None,
        adopt=adopt,
        grace_left_ms=situation.grace_left_ms,
        return_reserve=0 if granted is None else _reserve_under(plan, granted.override),
        decode_tokens=sample.decode_tokens,
        prefill_tokens=sample.prefill_tokens,
        graph_misses=sample.graph_misses,
        cold=sample.off_flavour is OffFlavour.COLD,
        turn_left_ms=0
        if situation.turn is None or not situation.acting
        else situation.turn.wait_ms(sample.at_utc_ms),
    )


def _reserve_under(plan: Plan, override: Override) -> int:
    """KV slots per request that the override's tier may hold back."""
    if override.mode is Mode.OFF:
        return 0
    return plan.reserve_of(override.tier) if override.tier else max(plan.built.values(), default=0)


def target_of(situation: Situation, policy: PolicyState, decided: Decided) -> Target | None:
    """What is to be asked of the engine now; None if nothing may be."""
    if situation.read_only or situation.foreign:
        return None
    if situation.granted is not None:
        if situation.time.restarted and situation.grace_left_ms > 0:
            return None
        return _guarding(situation, situation.granted, policy, decided) or _overriding(
            situation, situation.granted
        )
    if (
        situation.stance is not Stance.ACTIVE
        or situation.disagree
        or situation.plan.not_ready
        or policy.want < 0
        or situation.grace_left_ms > 0
    ):
        return None
    plan = situation.plan
    tier = plan.tiers[policy.want]
    mode, name = for_tier(tier)
    thresholds = thresholds_of(plan, policy.moved)
    if plan.delegation is not None and policy.reason is Reason.DELEGATED:
        mode, name = Mode.AUTO, None
    reason, text, clauses = policy.reason, policy.text, policy.clauses
    if situation.cause is not None:
        reason, text = situation.cause[0], f"{situation.cause[1]}: {plan.say(tier)} again"
        clauses = ()
    return Target(
        mode=mode,
        tier=name,
        record_tier=tier,
        said=plan.say(tier),
        reason=reason,
        text=text or f"{plan.say(tier)} is wanted",
        author=AUTO,
        lease_ms=situation.lease_ms,
        clauses=clauses,
        thresholds=thresholds,
    )


def override_text(plan: Plan, override: Override) -> str:
    """An override in one phrase: what, why, who."""
    match override.mode:
        case Mode.AUTO:
            what = "the engine's own thresholds"
        case Mode.OFF:
            what = plan.say(OFF)
        case Mode.ON:
            what = override.tier or "the last speculating tier"
    return f'override "{override.reason}" by {override.author}: {what}'


def _overriding(situation: Situation, granted: Granted) -> Target:
    plan, override = situation.plan, granted.override
    left = granted.left_ms(situation.now_ms)
    # The way to the engine takes time too: the engine's lease must not outlast the grant.
    lease = max(left - round(situation.sample.latency_ms), 1)
    key = (override.id, override.created_utc_ms)
    asked = situation.obedience.asked
    record = _record_tier(situation, override)
    return Target(
        mode=override.mode,
        tier=override.tier if override.mode is Mode.ON else None,
        record_tier=record,
        said=plan.say(record),
        reason=Reason.OVERRIDE,
        text=override_text(plan, override),
        author=override.author,
        lease_ms=lease,
        exact=True,
        key=key,
        settled=left < EXACT_SLACK_MS and asked is not None and asked.key == key,
    )


def _record_tier(situation: Situation, override: Override) -> str:
    """The tier that the record of an override's decision names before the engine has said it."""
    if override.mode is Mode.OFF:
        return OFF
    if override.tier is not None:
        return override.tier
    facts, confirmed = situation.facts, situation.obedience.confirmed
    if override.mode is Mode.AUTO:
        return confirmed or facts.launch_tier or OFF
    candidates = [confirmed, facts.launch_tier, *(tier.name for tier in facts.tiers)]
    return next((tier for tier in candidates if tier not in (None, OFF)), None) or OFF


def _guarding(
    situation: Situation, granted: Granted, policy: PolicyState, decided: Decided
) -> Target | None:
    """What a guard asks during an override that keeps guards; None if it has nothing to ask."""
    plan, override = situation.plan, granted.override
    if policy.guard is None or override.guards is not Guards.KEEP or override.mode is Mode.OFF:
        return None
    present = override.tier or situation.sample.engine_tier or situation.obedience.confirmed
    refuge = guard_tier(plan, plan.reserve_of(present))
    if refuge is None:
        return None
    tier = plan.tiers[refuge]
    mode, name = for_tier(tier)
    kind = "KV slots are short" if policy.guard is Reason.KV_PRESSURE else "requests were retracted"
    clauses = () if decided.view is None else guard_clauses(plan, policy, decided.view)
    said = " · ".join(phrase(clause) for clause in clauses)
    text = f"{kind}: guard acts in {override_text(plan, override)}"
    return Target(
        mode=mode,
        tier=name,
        record_tier=tier,
        said=plan.say(tier),
        reason=policy.guard,
        text=f"{text} · {said}" if said else text,
        author=AUTO,
        lease_ms=max(min(situation.lease_ms, granted.left_ms(situation.now_ms)), 1),
        clauses=clauses,
    )
