"""What holds for the controller whatever happens, in any order."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engine_patch.contract_words import Mode, RefusalCode, SwitchReason
from engine_patch.tier import OFF, Boundary
from store.observations import Gap, KvNumbers, RankTier
from store.policies import HysteresisPolicy, Stance
from store.records import Command, Decision, Outcome, Reason, Tick
from tests.controlplane_script import Script, config, facts, override

POLICY = HysteresisPolicy(
    tiers=("s3k1d4", "s1k1d2", OFF),
    boundaries=(Boundary(up_at=8, down_at=6), Boundary(up_at=24, down_at=16)),
    up_hold_s=1.0,
    down_hold_s=1.0,
    min_dwell_s=2.0,
    min_accept_length={"s3k1d4": 1.8, "s1k1d2": 1.3},
    accept_hold_s=2.0,
    probe_after_s=5.0,
    start_grace_s=1.0,
)
TIERS = ("s3k1d4", "s1k1d2", OFF)

EVENTS = st.one_of(
    st.tuples(st.just("load"), st.integers(0, 60)),
    st.tuples(st.just("hold"), st.integers(1, 12)),
    st.tuples(st.just("gap"), st.integers(1, 9)),
    st.tuples(st.just("repeat"), st.integers(1, 9)),
    st.tuples(st.just("kv"), st.integers(0, 100)),
    st.tuples(st.just("accept"), st.integers(100, 400)),
    st.tuples(st.just("retract"), st.just(0)),
    st.tuples(st.just("restart"), st.just(0)),
    st.tuples(st.just("deaf"), st.integers(1, 20)),
    st.tuples(st.just("split"), st.integers(1, 8)),
    st.tuples(st.just("move"), st.integers(0, 2)),
    st.tuples(st.just("foreign"), st.integers(1, 6)),
    st.tuples(st.just("stale_order"), st.integers(0, 500)),
    st.tuples(st.just("refuse"), st.just(0)),
    st.tuples(st.just("override"), st.integers(0, 3)),
    st.tuples(st.just("release"), st.just(0)),
    st.tuples(st.just("stance"), st.integers(0, 2)),
    st.tuples(st.just("wall"), st.sampled_from([-3_600_000, 3_600_000])),
)


@dataclass
class Seen:
    """One step with what was true when it was made."""

    tick: Tick
    command: Command | None
    stance: Stance
    boot_id: str
    released: bool


class Story(Script):
    """A script driven by events; same events, same story."""

    def __init__(self, *, explain: bool = True) -> None:
        super().__init__(
            config(POLICY, engine=facts(*TIERS), command_timeout_s=1.0, lease_s=10.0),
            explain=explain,
        )
        self.load, self.kv, self.retractions, self.boots = 1, 0.2, 0, 1
        self.accept: float | None = None
        self.deaf = self.overrides = 0
        self.released = False
        self.seen: list[Seen] = []

    def once(self, **changes: Any) -> None:
        self.obeys = self.deaf <= 0
        self.deaf -= 1
        sent = len(self.commands)
        kv = KvNumbers(capacity=100_000, committed=round(self.kv * 100_000), reserve=0)
        values: dict[str, Any] = {"kv": kv, "retractions": self.retractions}
        if self.accept is not None and self.tier != OFF:
            values |= {
                "accept_length": self.accept,
                "accept_tier": self.tier,
                "accept_requests": 100,
            }
        self.keep(self.see(self.load, **(values | changes)), sent)

    def keep(self, tick: Tick, sent: int) -> None:
        command = self.commands[sent] if len(self.commands) > sent else None
        assert len(self.commands) <= sent + 1
        stance = self.config.policy.stance
        self.seen.append(Seen(tick, command, stance, self.boot_id, self.released))
        if not isinstance(tick.observation, Gap):
            self.released = False

    def play(self, kind: str, number: int) -> None:
        match kind:
            case "load":
                self.load = number
                self.once()
            case "hold":
                for _ in range(number):
                    self.once()
            case "gap":
                for _ in range(number):
                    sent = len(self.commands)
                    self.keep(self.gap(), sent)
            case "repeat":
                for _ in range(number):
                    self.once(fresh=False)
            case "kv":
                self.kv = number / 100
                self.once()
            case "accept":
                self.accept = number / 100
                self.once()
            case "retract":
                self.retractions += 1
                self.once()
            case "restart":
                self.boots += 1
                self.retractions = 0
                self.restart(f"boot-{self.boots}")
                self.once()
            case "deaf":
                self.deaf = number
            case "split":
                ranks = (
                    RankTier(dp_rank=0, tp_rank=0, tier=self.tier),
                    RankTier(dp_rank=0, tp_rank=1, tier="s5k1d6"),
                )
                for _ in range(number):
                    self.once(engine_tier=None, applied=ranks)
            case "move":
                self.move(TIERS[number], SwitchReason.KV_SHORT)
                self.once()
            case "foreign":
                for _ in range(number):
                    self.once(claim_holder="cp-b", claim_remaining_s=5.0)
            case "stale_order" if self.commands:
                self.answer(RefusalCode.STALE_ORDER, engine_epoch=1, engine_generation=number)
            case "refuse" if self.commands:
                self.answer(RefusalCode.KV_SHORT, message="no slots")
            case "override":
                self.overrides += 1
                mode = (Mode.OFF, Mode.ON, Mode.ON, Mode.AUTO)[number]
                tier = "s1k1d2" if number == 2 else None
                self.person(
                    override(
                        mode, tier=tier, length_s=6.0, at_utc_ms=self.utc_ms, number=self.overrides
                    )
                )
                self.once()
            case "release":
                self.released = self.state.granted is not None or self.released
                self.person(None)
                self.once()
            case "stance":
                self.stance(list(Stance)[number])
                self.once()
            case "wall":
                self.utc_ms += number
                self.once()


def told(events: list[tuple[str, int]], *, explain: bool = True) -> Story:
    story = Story(explain=explain)
    for kind, number in events:
        story.play(kind, number)
    for _ in range(4):
        story.once()
    return story


@given(st.lists(EVENTS, max_size=40))
@settings(max_examples=120, deadline=None)
def test_whatever_happens_the_ground_rules_hold(events: list[tuple[str, int]]) -> None:
    story = told(events)
    order: tuple[str, int, int] | None = None
    for seen in story.seen:
        tick, command = seen.tick, seen.command
        observation = tick.observation
        # Confirmed is what this very sample says, never what was asked or seen before.
        assert tick.confirmed == (None if isinstance(observation, Gap) else observation.engine_tier)
        if command is None:
            continue
        assert not isinstance(observation, Gap)
        assert observation.claim_holder in (None, "cp-a")
        person = tick.override is not None and tick.override.ended_utc_ms is None
        assert person or seen.stance is Stance.ACTIVE or (seen.released and command.lease_s == 1.0)
        if order is not None and order[0] == seen.boot_id:
            assert (command.epoch, command.generation) > order[1:]
        order = (seen.boot_id, command.epoch, command.generation)


@given(st.lists(EVENTS, max_size=40))
@settings(max_examples=80, deadline=None)
def test_every_decision_is_made_once_and_settled_at_most_once(
    events: list[tuple[str, int]],
) -> None:
    story = told(events)
    settled: dict[int, Decision] = {}
    for seen in story.seen:
        made = [d for d in seen.tick.decisions if d.seq == seen.tick.observation.seq]
        assert len(made) <= 1
        for decision in seen.tick.decisions:
            assert decision.seq not in settled
            if decision.outcome is not Outcome.REQUESTED:
                settled[decision.seq] = decision
            if decision.outcome is Outcome.CONFIRMED:
                assert decision.latency_ms is not None
                assert decision.latency_ms > 0
        pending = seen.tick.pending
        assert pending is None or pending.outcome is Outcome.REQUESTED


@given(st.lists(EVENTS, max_size=40))
@settings(max_examples=80, deadline=None)
def test_the_same_events_give_the_same_ticks_with_and_without_explanations(
    events: list[tuple[str, int]],
) -> None:
    full, again, bare = told(events), told(events), told(events, explain=False)
    assert full.ticks == again.ticks
    assert full.state == again.state == bare.state
    assert full.commands == bare.commands
    for one, other in zip(full.ticks, bare.ticks, strict=True):
        assert one.decisions == other.decisions
        assert (one.verdict.tier, one.verdict.reason) == (other.verdict.tier, other.verdict.reason)


@given(st.lists(EVENTS, max_size=40))
@settings(max_examples=80, deadline=None)
def test_every_verdict_has_a_sentence_and_a_gap_wants_nothing(
    events: list[tuple[str, int]],
) -> None:
    for seen in told(events).seen:
        verdict = seen.tick.verdict
        assert verdict.text
        if isinstance(seen.tick.observation, Gap):
            assert (verdict.tier, verdict.reason) == (None, Reason.GAP)


QUIET_EVENTS = st.one_of(
    st.tuples(st.just("load"), st.integers(0, 60)),
    st.tuples(st.just("hold"), st.integers(1, 12)),
    st.tuples(st.just("gap"), st.integers(1, 3)),
    st.tuples(st.just("repeat"), st.integers(1, 3)),
    st.tuples(st.just("accept"), st.integers(100, 400)),
)


@given(st.lists(QUIET_EVENTS, max_size=60))
@settings(max_examples=80, deadline=None)
def test_two_confirmed_switches_of_automation_are_never_closer_than_the_dwell(
    events: list[tuple[str, int]],
) -> None:
    story = told(events)
    confirmed = [
        decision
        for _, decision in sorted(story.decisions.items())
        if decision.outcome is Outcome.CONFIRMED
    ]
    for earlier, later in itertools.pairwise(confirmed):
        assert earlier.settled_utc_ms is not None
        assert later.at_utc_ms - earlier.settled_utc_ms >= POLICY.min_dwell_s * 1000


@given(st.lists(EVENTS, max_size=30))
@settings(max_examples=80, deadline=None)
def test_left_alone_an_idle_engine_ends_at_its_quiet_tier(events: list[tuple[str, int]]) -> None:
    """Automation is never off for good, whatever came before."""
    story = told(events)
    story.person(None)
    story.stance(Stance.ACTIVE)
    story.load, story.kv, story.accept, story.deaf = 1, 0.2, 3.0, 0
    for _ in range(8_000):
        story.once()
        if story.tier == "s3k1d4" and story.state.obedience.pending is None:
            break
    assert story.tier == "s3k1d4"
