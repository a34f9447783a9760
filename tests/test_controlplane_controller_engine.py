"""The controller on the embedded engine in virtual time: its scheduler and front, no network."""

from __future__ import annotations

import pytest

from controlplane.capabilities import default_policy, first_stance
from controlplane.controller import ControllerConfig, initial, step, with_override
from controlplane.patched import Seen, facts_of, observe
from controlplane.polled import Stamp
from engine_patch.contract import Mode, OffKind, SpeculationCommand, SpeculationState
from engine_patch.embedded.config import EngineConfig
from engine_patch.embedded.core import Engine
from engine_patch.embedded.faults import Faults
from engine_patch.embedded.requests import Request
from engine_patch.embedded.state import Moment, Options, StateAnswer
from engine_patch.embedded.table import load
from engine_patch.front import Accepted, Front
from engine_patch.tier import OFF, Boundary
from store.policies import HysteresisPolicy, PolicyConfig, Stance
from store.records import Decision, Outcome, Override, Reason, Tick
from tests.controlplane_script import ENGINE, HOLDER, UTC, override

POLL_MS = 500


class Bench:
    """An embedded engine under a closed loop of clients, polled and commanded each half second."""

    def __init__(
        self,
        table: str = "fa3",
        *,
        policy: HysteresisPolicy | None = None,
        tiers: tuple[str, ...] = (OFF, "s1k1d2", "s3k1d4"),
        off: OffKind = OffKind.PLAIN_PATH,
        accept_length: float = 2.0,
        kv_slots: int = 861_668,
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
        self.answers = StateAnswer(self.options, [self.engine], Faults(), boot, self.utc_ms)
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
            if command is not None:
                self.engine.command(command)

    def poll(self) -> Tick:
        self.seq += 1
        mono = self.utc_ms - UTC + 5
        stamp = Stamp(ENGINE, self.seq, self.utc_ms, mono, "clock-1", 2.0)
        self.seen, sample = observe(self.seen, self.state(self.seen.since), stamp)
        self.control, tick, command = step(self.config, self.control, sample)
        self.ticks.append(tick)
        self.decisions.update({one.seq: one for one in tick.decisions})
        if command is not None:
            body = SpeculationCommand(
                mode=command.mode,
                tier=command.tier,
                lease_s=command.lease_s,
                on_lease_end=command.on_lease_end,
                holder=HOLDER,
                epoch=command.epoch,
                generation=command.generation,
            )
            taken = self.front.accept(body, self.engine.now_ms)
            assert isinstance(taken, Accepted), taken
            answer = self.engine.command(taken.command)
            self.front = taken.front.answered((answer,), self.engine.now_ms)
        return tick

    def person(self, asked: Override | None) -> None:
        mono = self.utc_ms - UTC + 5
        self.control = with_override(self.control, asked, self.utc_ms, mono, "clock-1")

    @property
    def switched(self) -> list[tuple[str | None, str]]:
        return [
            (one.from_tier, one.to_tier)
            for _, one in sorted(self.decisions.items())
            if one.outcome is Outcome.CONFIRMED
        ]


TWO = HysteresisPolicy(tiers=("s3k1d4", OFF), boundaries=(Boundary(up_at=12, down_at=6),))


def test_concurrency_up_and_down_switches_once_each_way_and_the_engine_confirms() -> None:
    bench = Bench(policy=TWO)
    bench.run(10, 1)
    assert bench.run(15, 16).confirmed == OFF
    assert bench.run(15, 1).confirmed == "s3k1d4"
    assert bench.switched == [("s3k1d4", OFF), (OFF, "s3k1d4")]
    assert {one.outcome for one in bench.decisions.values()} == {Outcome.CONFIRMED}
    assert all(not tick.alarms for tick in bench.ticks)


def test_a_measured_engine_starts_active_on_thresholds_from_its_own_table() -> None:
    bench = Bench(tiers=(OFF, "s3k1d4"))
    assert bench.config.policy.stance is Stance.ACTIVE
    policy = bench.config.policy.policy
    assert isinstance(policy, HysteresisPolicy)
    assert policy.tiers[-1] == OFF
    assert 64 < policy.boundaries[-1].up_at <= 128


@pytest.mark.parametrize("clients", [4, 200])
def test_the_default_policy_ends_in_the_better_of_the_fixed_modes(clients: int) -> None:
    rates: dict[str | None, float] = {}
    for tier in ("s3k1d4", OFF):
        bench = Bench(tiers=(OFF, "s3k1d4"))
        mode, name = (Mode.OFF, None) if tier == OFF else (Mode.ON, tier)
        bench.person(override(mode, tier=name, length_s=600.0))
        bench.run(20, clients)
        done = bench.engine.books.decode_tokens
        bench.run(20, clients)
        rates[tier] = bench.engine.books.decode_tokens - done
    bench = Bench(tiers=(OFF, "s3k1d4"))
    bench.run(20, clients)
    assert bench.ticks[-1].confirmed == max(rates, key=lambda tier: rates[tier])


def test_a_slow_off_is_never_picked_however_busy_it_gets() -> None:
    bench = Bench("triton", off=OffKind.ONE_TOKEN_VERIFY)
    bench.run(60, 200)
    assert all(tick.confirmed != OFF for tick in bench.ticks)
    assert all(any("0.25 to 0.31" in text for text in tick.warnings) for tick in bench.ticks)


@pytest.mark.parametrize("clients", [1, 16])
def test_an_override_is_obeyed_at_the_next_poll_and_ends_on_time(clients: int) -> None:
    bench = Bench(policy=TWO)
    bench.run(10, clients)
    wanted = bench.ticks[-1].confirmed
    other = "s3k1d4" if wanted == OFF else OFF
    mode, tier = (Mode.OFF, None) if other == OFF else (Mode.ON, other)
    asked = override(mode, tier=tier, length_s=20.0, at_utc_ms=bench.utc_ms)
    bench.person(asked)
    bench.run(1, clients)
    assert bench.ticks[-1].confirmed == other
    bench.run(18.5, clients)
    assert bench.ticks[-1].confirmed == other
    bench.run(2.5, clients)
    assert bench.ticks[-1].confirmed == wanted
    ended = [t.override for t in bench.ticks if t.override and t.override.ended_utc_ms is not None]
    assert len(ended) == 1
    assert ended[0].ended_utc_ms == asked.expires_utc_ms


def test_a_restarted_engine_is_brought_back_under_load() -> None:
    bench = Bench(policy=TWO)
    bench.run(15, 16)
    assert bench.ticks[-1].confirmed == OFF
    bench.boot()
    assert bench.run(0.5, 16).verdict.reason is Reason.RESTART
    bench.run(5, 16)
    assert bench.ticks[-1].confirmed == OFF
    assert bench.decisions[max(bench.decisions)].reason is Reason.RESTART
    rates = [tick.decode_tok_s for tick in bench.ticks if tick.decode_tok_s is not None]
    assert min(rates) >= 0


def test_poor_acceptance_ends_speculation_and_is_tried_again() -> None:
    policy = TWO.model_copy(
        update={"min_accept_length": {"s3k1d4": 1.5}, "accept_hold_s": 5.0, "probe_after_s": 20.0}
    )
    bench = Bench(policy=policy, accept_length=1.1)
    bench.run(20, 4)
    assert bench.ticks[-1].confirmed == OFF
    bench.engine.set_accept_length(2.5)
    bench.run(60, 4)
    assert bench.ticks[-1].confirmed == "s3k1d4"
    reasons = [one.reason for _, one in sorted(bench.decisions.items())]
    assert reasons == [Reason.ACCEPT_FLOOR, Reason.PROBE]


def test_full_kv_slots_send_speculation_off_at_once() -> None:
    bench = Bench(policy=TWO, kv_slots=20_000)
    bench.run(10, 4)
    bench.engine.hold(18_000)
    bench.run(1.5, 4)
    assert bench.ticks[-1].confirmed == OFF
    assert bench.decisions[max(bench.decisions)].reason in (
        Reason.KV_PRESSURE,
        Reason.RETRACTION,
    )
