"""An embedded engine and the controller on one virtual clock: no network and no waiting."""

from __future__ import annotations

from controlplane.capabilities import default_policy, first_stance
from controlplane.controller import ControllerConfig, initial, step, with_override
from controlplane.patched import Seen, facts_of, observe
from controlplane.polled import Stamp
from engine_patch.contract import SpeculationState
from engine_patch.contract_commands import SpeculationCommand
from engine_patch.contract_words import OffKind
from engine_patch.embedded.config import EngineConfig
from engine_patch.embedded.core import Engine
from engine_patch.embedded.faults import Faults
from engine_patch.embedded.requests import Request
from engine_patch.embedded.state import Moment, Options, StateAnswer
from engine_patch.embedded.table import load
from engine_patch.front import Accepted, Front
from engine_patch.tier import OFF
from store.observations import Gap, GapReason
from store.policies import RULES, Policy, PolicyConfig
from store.records import Decision, Outcome, Override, Tick
from tests.controlplane_script import ENGINE, HOLDER, UTC

POLL_MS = 500


class Bench:
    """An embedded engine under a closed loop of clients, polled and commanded each half second."""

    def __init__(
        self,
        table: str = "fa3",
        *,
        policy: Policy | None = None,
        tiers: tuple[str, ...] = (OFF, "s1k1d2", "s3k1d4"),
        off: OffKind = OffKind.PLAIN_PATH,
        accept_length: float = 2.0,
        kv_slots: int = 861_668,
        delegate: bool = False,
    ) -> None:
        self.engine_config = EngineConfig(
            table=load(table),
            tiers=tiers,
            off_kind=off,
            accept_length=accept_length,
            kv_slots=kv_slots,
        )
        self.options = Options(self.engine_config, tp=2)
        self.offset_ms = 0.0
        self.utc_ms = UTC
        self.boots = 0
        self.boot()
        state = self.state(0)
        self.seen = Seen()
        facts = facts_of(state)
        version = PolicyConfig(
            engine_id=ENGINE,
            version=1,
            stance=first_stance(facts, state.costs),
            policy=policy or default_policy(facts, state.costs),
            author="test",
            created_utc_ms=UTC,
            rules=RULES,
            delegate=delegate,
        )
        self.config = ControllerConfig(
            policy=version, facts=facts, holder=HOLDER, costs=state.costs
        )
        self.control = initial(self.config)
        self.seq = 0
        self.clients = 0
        self.in_flight = 0
        self.ticks: list[Tick] = []
        self.decisions: dict[int, Decision] = {}

    def boot(self) -> None:
        """A new start of the engine; requests in flight are lost."""
        self.boots += 1
        self.in_flight = 0
        self.began_ms = self.utc_ms
        self.engine = Engine(self.engine_config, seed=7)
        boot = f"boot-{self.boots}"
        self.faults = Faults()
        self.unreachable = False
        self.answers = StateAnswer(self.options, [self.engine], self.faults, boot, self.utc_ms)
        self.front = Front.at_launch(
            boot,
            self.engine_config.tiers,
            self.engine_config.launch_tier,
            largest_batch=dict.fromkeys(self.engine_config.tiers, 256),
            flavours=self.answers.flavours,
        )

    def state(self, since: int) -> SpeculationState:
        now = self.engine.now_ms
        state = self.answers.answer(self.front, since, Moment(now, 0.0, valid=True))
        return state.model_copy(
            update={"claim": self.front.claim(now), "lease": self.front.lease(now)}
        )

    def run(self, seconds: float, clients: int) -> Tick:
        """Keep ``clients`` requests in flight for so long; returns the last tick."""
        self.clients = clients
        for _ in range(round(seconds * 1000 / POLL_MS)):
            end = self.engine.now_ms + POLL_MS
            while self.engine.now_ms < end:
                while self.in_flight < self.clients:
                    self.engine.submit(Request(128, 256, arrival_ms=self.engine.now_ms))
                    self.in_flight += 1
                due = self.engine.next_event_ms
                self.in_flight -= len(self.engine.advance(min(end, due if due else end)))
                self._lease()
            self.utc_ms += POLL_MS
            tick = self.poll()
        return tick

    def _lease(self) -> None:
        over = self.front.lease_ended(self.engine.now_ms)
        if over is not None:
            self.front, command = over
            if command is not None and not self.faults.lie:
                self.engine.command(command)

    def alone(self, seconds: float, clients: int) -> None:
        """The same without a control plane: nobody polls, nobody commands."""
        poll, self.poll = self.poll, lambda: self.ticks[-1]  # type: ignore[method-assign]
        try:
            self.run(seconds, clients)
        finally:
            self.poll = poll  # type: ignore[method-assign]

    def poll(self) -> Tick:
        self.seq += 1
        mono = self.utc_ms - UTC + 5
        if self.unreachable:
            return self._gap(mono)
        stamp = Stamp(ENGINE, self.seq, self.utc_ms, mono, "clock-1", 2.0)
        self.seen, sample = observe(self.seen, self.state(self.seen.since), stamp)
        self.control, tick, command = step(self.config, self.control, sample)
        self.ticks.append(tick)
        self.decisions.update({one.seq: one for one in tick.decisions})
        if command is not None:
            body = SpeculationCommand(
                mode=command.mode,
                tier=command.tier,
                thresholds=command.thresholds,
                lease_s=command.lease_s,
                on_lease_end=command.on_lease_end,
                holder=HOLDER,
                epoch=command.epoch,
                generation=command.generation,
            )
            taken = self.front.accept(body, self.engine.now_ms)
            assert isinstance(taken, Accepted), taken
            if self.faults.lie:
                self.front = taken.front
                return tick
            answer = self.engine.command(taken.command)
            self.front = taken.front.answered((answer,), self.engine.now_ms)
        return tick

    def _gap(self, mono_ms: int) -> Tick:
        gap = Gap(
            engine_id=ENGINE,
            seq=self.seq,
            at_utc_ms=self.utc_ms,
            at_mono_ms=mono_ms,
            clock_id="clock-1",
            reason=GapReason.TIMEOUT,
            message="no answer within 2.0 s",
        )
        self.control, tick, command = step(self.config, self.control, gap)
        assert command is None
        self.ticks.append(tick)
        return tick

    def person(self, asked: Override | None) -> None:
        mono = self.utc_ms - UTC + 5
        self.control = with_override(self.control, asked, self.utc_ms, mono, "clock-1")

    def share_of(self, tier: str) -> float:
        """Share of the samples in which every rank ran ``tier``."""
        seen = [tick.confirmed for tick in self.ticks if tick.confirmed is not None]
        return seen.count(tier) / len(seen)

    @property
    def switched(self) -> list[tuple[str | None, str]]:
        return [
            (one.from_tier, one.to_tier)
            for _, one in sorted(self.decisions.items())
            if one.outcome is Outcome.CONFIRMED
        ]
