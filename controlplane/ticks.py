"""The state between two steps, and the tick that a step is published as.  Pure."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.basis import Basis
from controlplane.granted import Granted
from controlplane.orders import Obedience
from controlplane.policy_state import PolicyState
from controlplane.timeline import Timeline
from engine_patch.contract_words import Mode
from engine_patch.tier import OFF
from store.observations import Observation, Sample
from store.policies import Stance
from store.records import Decision, Override, Reason, Tick, Verdict

_NO_TIME = Timeline()
_NO_POLICY = PolicyState()
_NOTHING_ASKED = Obedience()


@dataclass(frozen=True, slots=True)
class ControllerState:
    """What the controller remembers between steps; immutable and comparable.

    Args:
        released: the override that a person just released; the engine may still run it.
        cause: what the next automatic change is attributed to (an override's end, a restart).
    """

    basis: Basis
    time: Timeline = _NO_TIME
    policy: PolicyState = _NO_POLICY
    obedience: Obedience = _NOTHING_ASKED
    granted: Granted | None = None
    released: Override | None = None
    cause: tuple[Reason, str] | None = None


def make_tick(
    state: ControllerState,
    observation: Observation,
    *,
    verdict: Verdict,
    decisions: tuple[Decision, ...],
    over: Override | None,
    warnings: tuple[str, ...],
) -> Tick:
    policy = state.basis.config.policy
    time, obedience, granted = state.time, state.obedience, state.granted
    now = time.clock.now_ms
    confirmed = observation.engine_tier if isinstance(observation, Sample) else None
    stance = policy.stance_at(observation.at_utc_ms)
    desired, mode = _desired(state, stance)
    override, left = over, None if over is None else 0.0
    if granted is not None:
        override, left = granted.override, granted.left_ms(now) / 1000
    return Tick(
        engine_id=policy.engine_id,
        observation=observation,
        verdict=verdict,
        stance=stance,
        policy_version=policy.version,
        desired=desired,
        desired_mode=mode,
        confirmed=confirmed,
        tier_age_s=None if confirmed is None else (now - obedience.confirmed_ms) / 1000,
        decode_tok_s=time.tok_s,
        stale_s=time.stale_ms() / 1000,
        override=override,
        override_left_s=left,
        pending=None if obedience.pending is None else obedience.pending.decision,
        decisions=decisions,
        alarms=obedience.alarms.raised,
        warnings=warnings,
    )


def _desired(state: ControllerState, stance: Stance) -> tuple[str | None, Mode | None]:
    """Tier and mode asked of the engine; None if nothing is asked of it now."""
    asked = state.obedience.asked
    steering = state.granted is not None or stance is Stance.ACTIVE
    if asked is None or not steering or state.basis.read_only:
        return None, None
    return (OFF if asked.mode is Mode.OFF else asked.tier), asked.mode
