"""What the demo's traffic is: phases of fixed work that swing between quiet and busy.

Sizing runs the embedded engine itself on unpaced virtual time, so that a phase takes the same time
with speculation off whatever the table says, and the whole takes about the wall time asked for.

A busy phase is one request for each of its clients.  Lengths spread evenly over ``SPREAD``, so the
batch drains over a second or so instead of all answers meeting in one instant, where the HTTP
server and not the engine would be measured.  A quiet phase gives each client a few requests.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from engine_patch.embedded.acceptance import AcceptMode
from engine_patch.embedded.closed_loop import run_closed_loop
from engine_patch.embedded.core import Engine, EngineConfig
from engine_patch.embedded.table import Table
from engine_patch.tier import OFF

ON = "s3k1d4"
"""The speculating tier: what "always on" means here."""
TIERS = (OFF, ON)
ACCEPT_LENGTH = 2.0
"""As in the measurement behind the tables, every verify step yields this many tokens."""

QUIET_CLIENTS = 4
BUSY_CLIENTS = 256
KINDS = (QUIET_CLIENTS, BUSY_CLIENTS)
PROMPT_TOKENS = 128
QUIET_OUTPUT = 450
"""About how many tokens a request of a quiet phase asks for."""
SPREAD = 0.08
"""Output lengths lie evenly within this share around their mean."""

HOLDS_PER_PHASE = 5
"""A phase lasts at least this many times the policy's longest hold."""
PHASE_WALL_S = 7.5
"""About how long a phase of the dynamic run should be."""
FEWEST_PHASES, MOST_PHASES = 3, 40
MOST_SECONDS = 600.0

Requests = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Holds:
    """How fast the demo's policy follows the load, in seconds."""

    up_s: float = 0.2
    down_s: float = 0.2
    dwell_s: float = 0.5
    poll_s: float = 0.1

    @property
    def longest_s(self) -> float:
        """The policy's longest hold."""
        return max(self.up_s, self.down_s, self.dwell_s)


@dataclass(frozen=True)
class Phase:
    """Fixed work: ``concurrency`` clients take ``requests`` (prompt, output) in order."""

    concurrency: int
    requests: Requests

    @property
    def tokens(self) -> int:
        """Output tokens of the phase."""
        return sum(output for _, output in self.requests)


@dataclass(frozen=True)
class Plan:
    """A demo run.

    Args:
        off_s, on_s: seconds each phase takes in the two fixed modes.
    """

    phases: tuple[Phase, ...]
    off_s: tuple[float, ...]
    on_s: tuple[float, ...]

    @property
    def best_s(self) -> float:
        """Seconds of the whole with the better fixed mode in each phase."""
        return sum(min(pair) for pair in zip(self.off_s, self.on_s, strict=True))

    def document(self) -> dict[str, object]:
        """The phases as the file that load generator and embedded engine read."""
        return {
            "phases": [
                {"concurrency": phase.concurrency, "requests": [list(r) for r in phase.requests]}
                for phase in self.phases
            ]
        }


class TooShortError(ValueError):
    """The wall time asked for cannot hold the phases; the message says the least allowed."""


def size(
    table: Table, seconds: float, holds: Holds, seed: int = 1, *, count: int | None = None
) -> Plan:
    """The plan whose dynamic run takes about ``seconds`` of wall time.

    Args:
        count: phases; None for as many as make each about ``PHASE_WALL_S`` long.

    Raises:
        TooShortError: the phases would be shorter than ``HOLDS_PER_PHASE`` holds.
    """
    if count is None:
        count = min(MOST_PHASES, max(FEWEST_PHASES, round(seconds / PHASE_WALL_S)))
    each_s = seconds / count
    # A quiet phase is faster with speculation, by a ratio only the engine knows.
    for _ in range(2):
        quiet, busy = (_sized(table, clients, each_s, seed) for clients in KINDS)
        quiet_s, busy_s = (min(_taken(table, phase)) for phase in (quiet, busy))
        each_s *= seconds / (quiet_s * ((count + 1) // 2) + busy_s * (count // 2))
    phases = tuple(
        _sized(table, KINDS[index % len(KINDS)], each_s, seed + index) for index in range(count)
    )
    plan = Plan(phases, fixed_run(table, phases, OFF), fixed_run(table, phases, ON))
    shortest = min(*plan.off_s, *plan.on_s)
    needed = HOLDS_PER_PHASE * holds.longest_s
    if shortest < needed:
        least = math.ceil(seconds * needed / shortest) + 1
        raise TooShortError(
            f"{seconds:g} s are too short: each phase must last {needed:g} s, five times the "
            f"policy's longest hold; the least is {least} s"
        )
    return plan


def fixed_run(table: Table, phases: Sequence[Phase], tier: str) -> tuple[float, ...]:
    """Virtual seconds of each phase with one tier throughout."""
    engine = Engine(
        EngineConfig(
            table=table,
            tiers=TIERS,
            launch_tier=tier,
            accept_length=ACCEPT_LENGTH,
            accept_mode=AcceptMode.EXACT,
            max_running_requests=BUSY_CLIENTS,
        )
    )
    return tuple(
        run_closed_loop(engine, phase.requests, phase.concurrency).seconds for phase in phases
    )


def _taken(table: Table, phase: Phase) -> tuple[float, float]:
    """Seconds of a phase by itself, with speculation off and on."""
    return fixed_run(table, [phase], OFF)[0], fixed_run(table, [phase], ON)[0]


def _sized(table: Table, clients: int, off_s: float, seed: int) -> Phase:
    """The phase of this many clients that takes ``off_s`` seconds with speculation off."""

    def phase(rounds: int, output: float) -> Phase:
        return _phase(clients, rounds, output, seed)

    def taken(rounds: int, output: float) -> float:
        return fixed_run(table, [phase(rounds, output)], OFF)[0]

    rounds = 1
    if clients == QUIET_CLIENTS:
        rounds = max(1, round(off_s / taken(1, QUIET_OUTPUT)))
    # Prefill is a constant and decoding nearly linear in the length.
    low, high = 100.0, 400.0
    low_s, high_s = taken(rounds, low), taken(rounds, high)
    for _ in range(3):
        slope = (high_s - low_s) / (high - low)
        if slope <= 0:
            break
        low, low_s = high, high_s
        high = max(2.0, high + (off_s - high_s) / slope)
        high_s = taken(rounds, high)
        if abs(high - low) < 0.5:
            break
    return phase(rounds, high)


def _phase(clients: int, rounds: int, output: float, seed: int) -> Phase:
    """One phase; another seed only orders the same lengths differently."""
    count = clients * rounds
    lengths = [
        max(1, round(output * (1 + SPREAD * (2 * (place + 0.5) / count - 1))))
        for place in range(count)
    ]
    random.Random(seed).shuffle(lengths)
    return Phase(concurrency=clients, requests=tuple((PROMPT_TOKENS, length) for length in lengths))


def boundary(table: Table) -> tuple[int, int]:
    """(up_at, down_at) around the batch from which ``off`` yields more tokens per second."""
    config = EngineConfig(table=table, tiers=TIERS, launch_tier=ON)
    on = table.column(ON, config.off_kind).step_times()
    off = table.column(OFF, config.off_kind).step_times()
    largest = min(len(on), len(off)) - 1
    crossing = next(
        (b for b in range(1, largest + 1) if ACCEPT_LENGTH / on[b] < 1 / off[b]), largest
    )
    return round(crossing * 1.1), round(crossing * 0.9)
