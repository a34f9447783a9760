"""The controller of one engine between two ticks: its configuration, state and override.

No I/O and no waiting: whoever calls a method sees its whole effect before anything else runs.
Whatever reaches the controller beside observations is noted in ``intake``, in its order, so that a
replay can take it in too (``docs/sessions.md``).
"""

from __future__ import annotations

from collections.abc import Sequence

from controlplane import controller
from controlplane.capabilities import observing_only
from controlplane.controller import ControllerConfig, ControllerState
from controlplane.obedience import left_open
from controlplane.policy_choice import choose
from controlplane.sessions_inputs import Intake
from controlplane.settings import EngineSettings
from controlplane.setup_key import differences
from controlplane.turns import Turn
from engine_patch.contract_words import Mode
from engine_patch.costs import StepCost
from engine_patch.tier import OFF, Thresholds
from store.observations import EngineFacts, Gap, Observation, Sample
from store.policies import PolicyConfig, Stance
from store.records import Command, CommandOutcome, Decision, Override, Reason, Tick, Verdict

NO_POLICY = 0
"""Policy version of ticks before the first contact, when there is no policy yet."""


class Pilot:
    """Holds the controls of one engine.

    Args:
        settings: the engine's settings.
        holder: name under which the engine is claimed.
    """

    def __init__(self, settings: EngineSettings, holder: str) -> None:
        self.facts: EngineFacts | None = None
        self.policy: PolicyConfig | None = None
        self.history: Sequence[PolicyConfig] = ()
        self.override: Override | None = None
        self.thresholds: Thresholds | None = None
        """What the engine itself would apply in mode auto, by its last sample."""
        self.turn: Turn | None = None
        """When the engine may begin a change of its group's."""
        self.takeover_from = ""
        """The holder whose claim a person decided to take over."""
        self.intake = Intake(settings.id)
        """What the controller took in beside observations and is not stored yet."""
        self.holder = holder
        self._settings = settings
        self._costs: tuple[StepCost, ...] = ()
        self._config: ControllerConfig | None = None
        self._state: ControllerState | None = None
        self._ends_mono_ms = 0
        self._due: tuple[int, int, str] | None = None

    @property
    def costs(self) -> tuple[StepCost, ...]:
        """The step-cost table in use; empty if nothing is measured for this setup."""
        return self._costs

    def adopt(
        self, facts: EngineFacts, costs: tuple[StepCost, ...], now_utc_ms: int
    ) -> PolicyConfig | None:
        """Take over what is known of the engine.

        Costs that were measured on another setup are dropped, until this one has told its own.

        Returns:
            The policy version to store, if that made a new one.
        """
        if costs or (self.facts is not None and differences(self.facts, facts)):
            self._costs = costs
        self.facts = facts
        new = None
        if self.policy is None:
            chosen = choose(self._settings, self.history, facts, self._costs, now_utc_ms)
            if not self.history or chosen.version != self.history[-1].version:
                new = chosen
            self.policy = chosen
        self._configure()
        return new

    def set_policy(self, policy: PolicyConfig) -> None:
        """Run another version from the next tick on."""
        self.policy = policy
        self._configure()

    def take_turns(self, turn: Turn | None) -> None:
        """Begin changes only in these slots from the next tick on."""
        if turn != self.turn:
            self.turn = turn
            self._configure()

    def take_over(self, holder: str) -> None:
        """Take the claim from ``holder`` from the next tick on; "" stops trying."""
        if holder != self.takeover_from:
            self.takeover_from = holder
            self._configure()

    def _configure(self) -> None:
        if self.facts is None or self.policy is None:
            return
        self._config = ControllerConfig(
            policy=self.policy,
            facts=self.facts,
            holder=self.holder,
            costs=self._costs,
            read_only=observing_only(self.facts) is not None,
            turn=self.turn,
            takeover_from=self.takeover_from,
        )
        if self._state is None:
            self._state = controller.initial(self._config)
            self.intake.started()
            self.intake.configured(self._config)
            if self._due is not None:
                self._state = controller.with_override(self._state, self.override, *self._due)
                self.intake.overridden(self.override, *self._due)
        else:
            self.intake.configured(self._config)

    def put_in_force(
        self, override: Override | None, utc_ms: int, mono_ms: int, clock_id: str
    ) -> None:
        """Replace the override; it counts from the next step on.

        Its end is fixed on the monotonic clock here: later changes of wall time do not move it.
        """
        self.override = override
        self._due = (utc_ms, mono_ms, clock_id)
        if override is not None:
            self._ends_mono_ms = mono_ms + override.expires_utc_ms - utc_ms
        if self._state is not None:
            self._state = controller.with_override(self._state, override, *self._due)
            self.intake.overridden(override, *self._due)

    def left_s(self, mono_ms: int) -> float:
        """Seconds the override in force still has."""
        return (self._ends_mono_ms - mono_ms) / 1000

    def step(self, observation: Observation) -> tuple[Tick, Command | None, Override | None]:
        """One controller step.

        Returns:
            The tick, the command to send if there is one, and the override that this step ended.
        """
        if isinstance(observation, Sample) and observation.thresholds is not None:
            self.thresholds = observation.thresholds
        seq, utc_ms = observation.seq, observation.at_utc_ms
        if self._config is None or self._state is None:
            self.intake.stepped(seq, utc_ms, None)
            return self._before_contact(observation), None, None
        holds = isinstance(observation, Sample) and observation.claim_holder == self.holder
        if self.takeover_from and holds:
            # Once it is ours, another holder is foreign again, this one included.
            self.take_over("")
        self._state, tick, command = controller.step(self._config, self._state, observation)
        self.intake.stepped(seq, utc_ms, self._state)
        ended = None
        if tick.override is not None and tick.override.ended_utc_ms is not None:
            # The controller shows an override that ran out once more, with its end.
            ended, self.override = tick.override, None
        return tick, command, ended

    def answered(self, outcome: CommandOutcome) -> Decision | None:
        """Take in how the engine answered a command; returns a decision that this settled."""
        if self._config is None or self._state is None:
            return None
        self._state, decision = controller.answered(self._config, self._state, outcome)
        self.intake.answered(outcome)
        return decision

    def left(self, now_utc_ms: int) -> Decision | None:
        """Nobody will look at the engine from now on: the decision that this leaves unsettled."""
        pending = None if self._state is None else self._state.obedience.pending
        return None if pending is None else left_open(pending.decision, now_utc_ms)

    def _before_contact(self, observation: Observation) -> Tick:
        """A tick while nothing is known of the engine, so that a person sees why."""
        text = observation.message if isinstance(observation, Gap) else "first contact"
        reason = Reason.GAP if isinstance(observation, Gap) else Reason.NOT_READY
        return Tick(
            engine_id=observation.engine_id,
            observation=observation,
            verdict=Verdict(tier=None, reason=reason, text=text),
            stance=self._settings.stance or Stance.SHADOW,
            policy_version=NO_POLICY,
            desired=None,
            desired_mode=None,
            confirmed=None,
        )


def obeyed(tick: Tick | None, override: Override) -> bool:
    """Whether every observed rank runs what the override asks for."""
    if tick is None or tick.override is None or tick.override.id != override.id:
        return False
    if tick.override.ended_utc_ms is not None:
        return False
    if not isinstance(tick.observation, Sample) or tick.pending is not None:
        return False
    if override.mode is Mode.AUTO:
        return tick.observation.mode is Mode.AUTO
    if override.mode is Mode.OFF:
        return tick.confirmed == OFF
    if override.tier is not None:
        return tick.confirmed == override.tier
    return tick.confirmed is not None and tick.confirmed != OFF
