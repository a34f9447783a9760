"""The honesty study of what-if: predict a policy from another one's recording, then really run it.

On the embedded engine in virtual time, with the real controller in the loop.  A trial is drawn from
its number alone: traffic, output lengths, acceptance, table and both policies.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from controlplane import controller, patched
from controlplane.basis import ControllerConfig
from controlplane.polled import Stamp
from controlplane.whatif_answer import answer, subject_from
from controlplane.whatif_estimate import LoadModel
from controlplane.whatif_moments import moments_of
from engine_patch.contract_commands import ReplicaAnswer, SpeculationCommand
from engine_patch.embedded.core import Engine, EngineConfig
from engine_patch.embedded.faults import Faults
from engine_patch.embedded.requests import Request
from engine_patch.embedded.state import Moment, Options, StateAnswer
from engine_patch.embedded.table import load
from engine_patch.front import Accepted, Front
from engine_patch.tier import OFF, Boundary
from store import session_track
from store.policies import FixedPolicy, HysteresisPolicy, Policy, PolicyConfig, Stance
from store.records import Tick
from store.session_track import Track

POLL_MS = 500
SECONDS = 150
HOLDER = "study"
ENGINE_ID = "sim"

Work = tuple[tuple[float, int, int], ...]
"""Requests as (arrival in ms, prompt tokens, output tokens)."""


@dataclass(frozen=True)
class Trial:
    """One trial, fixed by its number.

    Args:
        clients: closed loop with so many clients by phase; empty for open arrivals.
    """

    number: int
    table: str
    accept_length: float
    work: Work
    one: Policy
    other: Policy
    clients: tuple[int, ...] = ()


@dataclass(frozen=True)
class Ran:
    """What a run left."""

    track: Track
    config: ControllerConfig
    tok_s: float
    ticks: tuple[Tick, ...]


@dataclass(frozen=True)
class Result:
    """Predicted and measured tokens per second of the other policy."""

    number: int
    recorded: float
    predicted: float | None
    low: float | None
    high: float | None
    coverage: float
    measured: float

    @property
    def covered(self) -> bool:
        """Whether the interval holds the measured value."""
        if self.low is None or self.high is None:
            return False
        return self.low <= self.measured <= self.high


def trial(number: int) -> Trial:
    """The trial of this number."""
    chance = random.Random(number)
    table = chance.choice(("fa3", "triton"))
    tiers = chance.choice((("s3k1d4", OFF), ("s3k1d4", "s1k1d2", OFF), ("s2k4d16", "s3k1d4", OFF)))
    mean_output = chance.choice((64, 128, 256))
    longest = chance.choice(("fixed", "uniform", "exponential"))
    # Requests a second that the engine can serve at about 64 running without speculation.
    able = 64 / (load(table).column(OFF, EngineConfig(load(table)).off_kind).step_times()[64])
    able *= 1000 / mean_output
    work: list[tuple[float, int, int]] = []
    at, phase_end, rate = 0.0, 0.0, 0.0
    while at < SECONDS * 1000:
        if at >= phase_end:
            phase_end = at + chance.uniform(10_000, 40_000)
            rate = able * chance.choice((0.03, 0.1, 0.3, 0.6, 0.9, 1.3)) * chance.uniform(0.8, 1.2)
        at += chance.expovariate(rate) * 1000
        output = {
            "fixed": float(mean_output),
            "uniform": chance.uniform(0.2, 1.8) * mean_output,
            "exponential": chance.expovariate(1 / mean_output),
        }[longest]
        # At most 1,000 tokens of context: what the shipped tables cover.
        work.append((at, chance.randint(32, 400), min(max(round(output), 2), 600)))
    return Trial(
        number=number,
        table=table,
        accept_length=chance.uniform(1.5, 3.2),
        work=tuple(work),
        one=_policy(chance, tiers),
        other=_policy(chance, tiers),
    )


def _policy(chance: random.Random, tiers: Sequence[str]) -> Policy:
    if chance.random() < 0.2:
        return FixedPolicy(tier=chance.choice(list(tiers)))
    ups = sorted(chance.sample(range(6, 120), len(tiers) - 1))
    bounds = [
        Boundary(up_at=up, down_at=max(round(up * chance.uniform(0.4, 0.9)), 1)) for up in ups
    ]
    for low, high in itertools.pairwise(bounds):
        if high.down_at <= low.down_at:
            return _policy(chance, tiers)
    return HysteresisPolicy(
        tiers=tuple(tiers),
        boundaries=tuple(bounds),
        up_hold_s=chance.choice((0.0, 1.0, 3.0)),
        down_hold_s=chance.choice((1.0, 4.0)),
        min_dwell_s=chance.choice((1.0, 5.0)),
    )


def run(given: Trial, policy: Policy, seed: int) -> Ran:
    """Run one policy on the trial's arrivals."""
    options = Options(
        config=EngineConfig(
            table=load(given.table),
            tiers=(OFF, "s1k1d2", "s3k1d4", "s2k4d16"),
            accept_length=given.accept_length,
        ),
        seed=seed,
    )
    engine = Engine(options.config, seed)
    state = StateAnswer(options, [engine], Faults(), f"boot-{seed}", 0)
    front = Front.at_launch(f"boot-{seed}", options.config.tiers, options.config.launch_tier)
    for at, prompt, output in given.work:
        engine.submit(Request(prompt, output, arrival_ms=at))
    seen, rows = patched.Seen(), []
    ticks: list[Tick] = []
    config: ControllerConfig | None = None
    held: Any = None
    for seq in range(1, SECONDS * 1000 // POLL_MS + 1):
        now = float(seq * POLL_MS)
        engine.advance(now)
        told = state.answer(front, seen.since, Moment(now, 0.0, True))
        stamp = Stamp(ENGINE_ID, seq, int(now), int(now), "virtual", 1.0)
        seen, sample = patched.observe(seen, told, stamp)
        if config is None:
            config = ControllerConfig(
                policy=_version(policy),
                facts=patched.facts_of(told),
                holder=HOLDER,
                costs=told.costs,
            )
            held = controller.initial(config)
        held, tick, command = controller.step(config, held, sample, explain=False)
        rows.append(session_track.row(seq, int(now), False, tick.model_dump(mode="json")))
        ticks.append(tick)
        if command is not None:
            body = SpeculationCommand(
                mode=command.mode,
                tier=command.tier,
                lease_s=command.lease_s,
                holder=HOLDER,
                epoch=command.epoch,
                generation=command.generation,
            )
            accepted = front.accept(body, now)
            assert isinstance(accepted, Accepted)
            answered: ReplicaAnswer = engine.command(accepted.command)
            assert answered.applied
            front = accepted.front
    assert config is not None
    track = session_track.from_rows(rows)
    moments = moments_of(track).moments
    seconds = sum(one.dt_ms for one in moments) / 1000
    tokens = sum(one.tokens or 0 for one in moments)
    return Ran(track, config, tokens / seconds, tuple(ticks))


def _version(policy: Policy) -> PolicyConfig:
    return PolicyConfig(
        engine_id=ENGINE_ID,
        version=1,
        stance=Stance.ACTIVE,
        policy=policy,
        author="study",
        created_utc_ms=0,
        lease_s=86_400,
    )


def predict(given: Trial) -> Result:
    """Record one policy, predict the other, then run it."""
    recorded = run(given, given.one, seed=2 * given.number)
    subject = subject_from("study", recorded.config, recorded.track, recorded.config.costs)
    found = answer(subject, _version(given.other), LoadModel.ARRIVALS).what_if.estimate
    measured = run(given, given.other, seed=2 * given.number + 1).tok_s
    return Result(
        number=given.number,
        recorded=recorded.tok_s,
        predicted=found.tok_s,
        low=found.low,
        high=found.high,
        coverage=found.coverage,
        measured=measured,
    )


def width(result: Result) -> float:
    """Half width of the interval, relative to the measured value."""
    if result.low is None or result.high is None:
        return math.inf
    return (result.high - result.low) / 2 / result.measured
