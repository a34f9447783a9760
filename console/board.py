"""The view model: what the console knows of one engine, built from ticks alone.  Pure.

``apply`` takes one tick after another, live and from a recording alike; nothing here asks a clock.
What is printed is computed from a ``Scene`` (a board, a moment, a way of drawing) in the sibling
modules ``card``, ``gauges``, ``journal``, ``notices`` and ``panel``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from console.events import Log, logged, with_decision, with_switch
from console.trend import nice_top
from controlplane.messages import EngineStatus
from engine_patch.tier import OFF, TierName, TierShape
from store.observations import EngineFacts, Gap, Sample, Source
from store.policies import FixedPolicy, PolicyConfig
from store.records import Decision, EngineSwitch, Tick

WINDOW_MS = 120_000
"""What the trends cover."""
UNCONFIRMED = "?"
"""Stands for the tier of a sample whose ranks agree on none."""
LEAST_TOPS = {"concurrency": 8.0, "decode": 100.0, "queue": 8.0}
"""Where the ranges that only grow begin."""


@dataclass(frozen=True, slots=True)
class Point:
    """One tick on the trends' time axis; None where the tick brought no value.

    Args:
        tier: the confirmed tier, ``UNCONFIRMED`` if a sample shows none.
    """

    at_ms: int
    concurrency: float | None = None
    accept_length: float | None = None
    kv_share: float | None = None
    decode_tok_s: float | None = None
    queued: float | None = None
    tier: str | None = None


@dataclass(frozen=True, slots=True)
class Board:
    """One engine as the console knows it.

    Args:
        tick: the newest tick; ``sampled`` the newest one that brought a sample.
        axis_ms: place of the newest tick on the time axis, which never runs backwards.
        history: the points inside the window, oldest first.
        tops: ends of the ranges that only grow, by name.
    """

    engine_id: str
    url: str = ""
    name: str = ""
    facts: EngineFacts | None = None
    policy: PolicyConfig | None = None
    poll_s: float = 0.5
    tick: Tick | None = None
    sampled: Tick | None = None
    axis_ms: int = 0
    history: tuple[Point, ...] = ()
    log: Log = ()
    tops: dict[str, float] = field(default_factory=lambda: dict(LEAST_TOPS))

    @property
    def sample(self) -> Sample | None:
        """The newest sample, however old."""
        if self.sampled is None or not isinstance(self.sampled.observation, Sample):
            return None
        return self.sampled.observation

    @property
    def gap(self) -> Gap | None:
        """The gap the engine is in now, None while polls succeed."""
        if self.tick is None or not isinstance(self.tick.observation, Gap):
            return None
        return self.tick.observation

    @property
    def commandable(self) -> bool:
        """Whether the engine takes commands at all: the plugin answers."""
        if self.facts is not None:
            return self.facts.writable
        return self.sample is not None and self.sample.source is Source.SPECULATION

    @property
    def tiers(self) -> tuple[TierName, ...]:
        """The tiers from quiet to busy: the policy's order first, then what else was built."""
        policy = None if self.policy is None else self.policy.policy
        order: list[TierName] = list(getattr(policy, "tiers", ()))
        found = [] if self.facts is None else [tier.name for tier in self.facts.tiers]
        if isinstance(policy, FixedPolicy):
            found.append(policy.tier)
        # The deeper a tier, the quieter the load it is for.
        order += sorted(found, key=lambda name: -TierShape.parse(name).num_draft_tokens)
        return tuple(dict.fromkeys(order))

    @property
    def speculating(self) -> tuple[TierName, ...]:
        """The tiers that speculate, in the same order."""
        return tuple(tier for tier in self.tiers if tier != OFF)


def with_status(board: Board, status: EngineStatus) -> Board:
    """The board with the engine's identity, policy and poll period."""
    return replace(
        board,
        url=status.engine.url,
        name=status.engine.name,
        facts=status.engine.facts or board.facts,
        policy=status.policy or board.policy,
        poll_s=status.poll_s,
    )


def apply(board: Board, tick: Tick) -> Board:
    """The board after ``tick``; another engine's, or one already seen, changes nothing."""
    if tick.engine_id != board.engine_id:
        return board
    if board.tick is not None and tick.observation.seq <= board.tick.observation.seq:
        return board
    step_ms = _step_ms(board, tick)
    axis_ms = tick.observation.at_utc_ms if board.tick is None else board.axis_ms + step_ms
    point = _point(tick, axis_ms)
    # A little more than the window, so that its oldest column is whole.
    oldest = axis_ms - WINDOW_MS - 10_000
    return replace(
        board,
        tick=tick,
        sampled=tick if isinstance(tick.observation, Sample) else board.sampled,
        axis_ms=axis_ms,
        history=(*(old for old in board.history if old.at_ms >= oldest), point),
        log=logged(board.log, tick, step_ms),
        tops=_grown(board.tops, point),
    )


def seeded(
    board: Board,
    ticks: Iterable[Tick],
    decisions: Iterable[Decision],
    switches: Iterable[EngineSwitch] = (),
) -> Board:
    """The board with what the control plane had stored before the console came."""
    for tick in sorted(ticks, key=lambda tick: tick.observation.seq):
        board = apply(board, tick)
    log = board.log
    for decision in decisions:
        log = with_decision(log, decision)
    for switch in switches:
        log = with_switch(log, switch.boot_id, switch.entry, switch.seen_utc_ms)
    return replace(board, log=log)


def load(sample: Sample) -> int | None:
    """What thresholds are compared with: the busiest replica's running requests."""
    if sample.replica_concurrency is not None:
        return sample.replica_concurrency
    return sample.concurrency


def _step_ms(board: Board, tick: Tick) -> int:
    """Time since the tick before: monotonic within one clock, wall time only across clocks."""
    if board.tick is None:
        return 0
    now, before = tick.observation, board.tick.observation
    if now.clock_id == before.clock_id:
        return max(now.at_mono_ms - before.at_mono_ms, 0)
    return max(now.at_utc_ms - before.at_utc_ms, 0)


def _point(tick: Tick, axis_ms: int) -> Point:
    seen = tick.observation
    if not isinstance(seen, Sample):
        return Point(axis_ms)
    tier = tick.confirmed or UNCONFIRMED
    if not seen.fresh:
        # A repeated set of numbers is no new measurement.
        return Point(axis_ms, tier=tier)
    return Point(
        at_ms=axis_ms,
        concurrency=load(seen),
        accept_length=seen.accept_length,
        kv_share=seen.kv.used,
        decode_tok_s=tick.decode_tok_s,
        queued=seen.queued,
        tier=tier,
    )


def _grown(tops: dict[str, float], point: Point) -> dict[str, float]:
    """The range ends that hold the new values; they never shrink, so that heights compare."""
    values = {
        "concurrency": point.concurrency,
        "decode": point.decode_tok_s,
        "queue": point.queued,
    }
    if all(value is None or value <= tops[name] for name, value in values.items()):
        return tops
    return {name: max(tops[name], nice_top(value or 0.0)) for name, value in values.items()}
