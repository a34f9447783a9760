"""One step of the control plane for one engine: observation in, tick and command out.

``step`` is pure.  It has no clock: time is in the observation, and a failed poll is an observation.
Live, replay and what-if call the same function; ``explain=False`` leaves out the sentences, the
standing clauses and the outlook, and changes nothing else.
"""

from __future__ import annotations

from dataclasses import replace

from controlplane.answers import apply_answer
from controlplane.basis import ControllerConfig, make_basis
from controlplane.granted import bounded_by_lease, ended, grant
from controlplane.notices import alarms_of, warnings_of
from controlplane.obedience import after_restart, observe, reconcile
from controlplane.orders import Obedience, let_go
from controlplane.policy import carried_over
from controlplane.policy_state import NEVER
from controlplane.steering import Situation, decide_now, target_of
from controlplane.target import in_force
from controlplane.ticks import ControllerState, make_tick
from controlplane.timeline import Clock, passed_gap, passed_sample
from controlplane.verdicts import gap_verdict, sample_verdict
from store.observations import Gap, Observation, Sample
from store.policies import Stance
from store.records import Command, CommandOutcome, Decision, Override, Reason, Tick

__all__ = ["ControllerConfig", "ControllerState", "answered", "initial", "step", "with_override"]

RELEASE_LEASE_MS = 1_000
"""Lease of the command that hands an engine back when a person releases an override and no
automation takes over."""


def initial(config: ControllerConfig) -> ControllerState:
    """The state before the first observation."""
    return ControllerState(basis=make_basis(config))


def step(
    config: ControllerConfig,
    state: ControllerState,
    observation: Observation,
    *,
    explain: bool = True,
) -> tuple[ControllerState, Tick, Command | None]:
    """One step.

    The returned tick holds the decisions made or settled in this step.  An override that ran out is
    in the tick once more, with its end; afterwards the tick has none.  A gap never yields a
    command.

    Args:
        explain: build sentences, clauses and outlook for a step that changes nothing.
    """
    if state.basis.config is not config:
        state = _rebased(config, state)
    if isinstance(observation, Gap):
        return _gap_step(state, observation)
    return _sample_step(state, observation, explain=explain)


def with_override(
    state: ControllerState,
    override: Override | None,
    at_utc_ms: int,
    at_mono_ms: int,
    clock_id: str,
) -> ControllerState:
    """A person set, extended, replaced or released (None) an override, or one is read back.

    Remaining time comes from UTC for an override that is new to this state, at most what was
    granted; a version with more granted time moves the end by the difference.  Afterwards only
    monotonic time counts.
    """
    clock = state.time.clock.at(at_utc_ms, at_mono_ms, clock_id)
    state = replace(state, time=replace(state.time, clock=clock))
    before = state.granted
    if override is not None:
        granted = grant(before, override, clock.now_ms, at_utc_ms)
        # A person acts: an earlier failure to apply something does not delay it.
        obedience = replace(state.obedience, failed=None, retry_ms=NEVER)
        return replace(state, granted=granted, released=None, cause=None, obedience=obedience)
    if before is None:
        return state
    text = f'override "{before.override.reason}" by {before.override.author} released'
    return replace(
        state,
        granted=None,
        released=before.override,
        cause=(Reason.OVERRIDE_ENDED, text),
    )


def answered(
    config: ControllerConfig, state: ControllerState, outcome: CommandOutcome
) -> tuple[ControllerState, Decision | None]:
    """The engine's answer to a command; returns the decision if the answer settles it."""
    if state.basis.config is not config:
        state = _rebased(config, state)
    obedience, decision = apply_answer(
        state.obedience, outcome, state.time.clock.now_ms, state.basis.rules
    )
    return replace(state, obedience=obedience), decision


def _rebased(config: ControllerConfig, state: ControllerState) -> ControllerState:
    """The state under another configuration; the policy keeps its tier if that still exists."""
    old = state.basis
    if old.config == config:
        return replace(state, basis=replace(old, config=config))
    basis = make_basis(config)
    if basis.plan == old.plan:
        return replace(state, basis=basis)
    return replace(state, basis=basis, policy=carried_over(old.plan, basis.plan, state.policy))


def _expired(
    state: ControllerState, clock: Clock, observation: Observation
) -> tuple[ControllerState, Override | None]:
    """End an override whose time is up; returns its record with the end."""
    granted = state.granted
    if granted is None or granted.left_ms(clock.now_ms) > 0:
        return state, None
    record = ended(granted, observation.at_utc_ms, "expired")
    text = f'override "{record.reason}" by {record.author} expired'
    return replace(state, granted=None, cause=(Reason.OVERRIDE_ENDED, text)), record


def _moved_clock(state: ControllerState, clock: Clock) -> ControllerState:
    """Doubt an override's time left when the clock changed and UTC went back meanwhile."""
    old = state.time.clock
    if state.granted is None or old.clock_id in (None, clock.clock_id):
        return state
    if clock.utc_ms < old.utc_ms:
        return replace(state, granted=replace(state.granted, doubtful=True))
    return state


def _bounded(state: ControllerState, sample: Sample, now_ms: int) -> ControllerState:
    """Settle a doubtful end of an override by the engine's own lease."""
    if state.granted is None or not state.granted.doubtful:
        return state
    holder = state.basis.config.holder
    return replace(state, granted=bounded_by_lease(state.granted, sample, holder, now_ms))


def _gap_step(state: ControllerState, gap: Gap) -> tuple[ControllerState, Tick, Command | None]:
    basis = state.basis
    time = passed_gap(state.time, gap, basis.stale_after_ms)
    state = _moved_clock(state, time.clock)
    state, over = _expired(replace(state, time=time), time.clock, gap)
    now = time.clock.now_ms
    obedience = state.obedience
    silent = now - max(time.sampled_ms, time.began_ms)
    if silent > basis.stale_after_ms:
        text = f"no answer for {silent / 1000:.1f} s: {gap.message}"
        alarms = obedience.alarms.up("engine_unreachable", text, gap.at_utc_ms)
        obedience = replace(obedience, alarms=alarms)
        state = replace(state, obedience=obedience)
    verdict = gap_verdict(basis.plan, time, gap, obedience, state.granted)
    tick = make_tick(state, gap, verdict=verdict, decisions=(), over=over, warnings=basis.warnings)
    return state, tick, None


def _sample_step(
    state: ControllerState, sample: Sample, *, explain: bool
) -> tuple[ControllerState, Tick, Command | None]:
    basis = state.basis
    config, rules = basis.config, basis.rules
    stance = config.policy.stance_at(sample.at_utc_ms)
    time, advance = passed_sample(state.time, sample, basis.stale_after_ms)
    now = time.clock.now_ms
    settled: tuple[Decision, ...] = ()
    if advance.restart:
        state, settled = _restarted(state, sample)
    over = None
    if state.granted is not None:
        state = _moved_clock(state, time.clock)
        state = _bounded(state, sample, now)
        state, over = _expired(state, time.clock, sample)
    obedience = observe(state.obedience, sample, now)
    takeover = bool(config.takeover_from) and sample.claim_holder == config.takeover_from
    if takeover and now - obedience.sent_ms >= rules.timeout_ms:
        # Whatever was asked before, the claim must be asked for.
        obedience = replace(obedience, asked=None)
    situation = Situation(
        plan=basis.plan,
        facts=config.facts,
        sample=sample,
        advance=advance,
        time=time,
        now_ms=now,
        obedience=obedience,
        stance=stance,
        granted=state.granted,
        cause=state.cause,
        read_only=basis.read_only,
        foreign=_foreign(sample, config.holder, config.takeover_from),
        stale=time.stale_ms() > basis.stale_after_ms,
        # A decision on its way first has its bounded retries.
        disagree=obedience.pending is None and _longer(now, obedience.differ_ms, rules.timeout_ms),
        unseen=_longer(now, obedience.unclear_ms, rules.timeout_ms),
        lease_ms=basis.lease_ms,
        holder=config.holder,
        grace_left_ms=max(basis.plan.grace_ms - (now - time.boot_ms), 0),
        turn=config.turn,
    )
    if obedience.confirmed_ms == now and situation.acting and state.obedience.confirmed is not None:
        obedience = replace(obedience, settled_ms=now)
    policy, decided = decide_now(situation, state.policy, explain_all=explain)
    target = target_of(situation, policy, decided)
    result = reconcile(
        obedience,
        target,
        sample,
        now,
        rules,
        why_none="" if target is not None else situation.why_not_acting(),
        keep=situation.stale and state.granted is None,
    )
    obedience, command = result.obedience, result.command
    if takeover and command is not None:
        command = command.model_copy(update={"takeover": True})
    if state.released is not None and command is None and target is None:
        obedience, command = _handed_back(obedience, situation)
    alarms = alarms_of(situation, obedience, policy)
    if alarms is not obedience.alarms:
        obedience = replace(obedience, alarms=alarms)
    made = (*settled, *result.decisions)
    if decided.shadow is not None:
        made = (*made, decided.shadow)
    verdict = sample_verdict(situation, policy, decided, target, obedience, full=explain)
    told = target is not None or (state.granted is None and stance is not Stance.ACTIVE)
    state = ControllerState(
        basis=basis,
        time=time,
        policy=policy,
        obedience=obedience,
        granted=state.granted,
        cause=None if told else state.cause,
    )
    warnings = (*basis.warnings, *warnings_of(situation, decided))
    tick = make_tick(state, sample, verdict=verdict, decisions=made, over=over, warnings=warnings)
    return state, tick, command


def _restarted(
    state: ControllerState, sample: Sample
) -> tuple[ControllerState, tuple[Decision, ...]]:
    """Everything measured on the old start of the engine is void; what was wanted is not."""
    obedience, settled = after_restart(state.obedience, sample.at_utc_ms)
    policy = replace(state.policy, low_ms=0, ok_ms=0)
    cause = (Reason.RESTART, "the engine restarted")
    return replace(state, obedience=obedience, policy=policy, cause=cause), settled


def _longer(now_ms: int, since_ms: int, limit_ms: int) -> bool:
    return since_ms >= 0 and now_ms - since_ms > limit_ms


def other_holder(sample: Sample, holder: str, takeover_from: str) -> str:
    """Who else holds the claim and how long; "" if nobody does, or it is to be taken over."""
    if sample.claim_holder in (None, holder, takeover_from or None):
        return ""
    left = sample.claim_remaining_s
    until = "" if left is None else f" for {left:.0f} s more"
    return f"{sample.claim_holder}{until}"


def _foreign(sample: Sample, holder: str, takeover_from: str) -> str:
    """The same as a reason to command nothing."""
    other = other_holder(sample, holder, takeover_from)
    return other and f"claimed by {other}: observing only"


def _handed_back(obedience: Obedience, situation: Situation) -> tuple[Obedience, Command | None]:
    """Let the engine go at once when a person released an override and nobody takes over.

    The engine then does what it does at the end of any lease.
    """
    sample = situation.sample
    left, asked = sample.lease_remaining_s, obedience.asked
    if situation.read_only or sample.claim_holder != situation.holder or asked is None:
        return obedience, None
    if left is None or left * 1000 <= RELEASE_LEASE_MS or not in_force(asked, sample):
        return obedience, None
    return let_go(obedience, sample, situation.now_ms, RELEASE_LEASE_MS)
