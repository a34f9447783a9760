"""Where the time that is left goes: to the load at which the answer is least certain.  Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from controlplane.bench_records import PLAIN, BenchPoint
from controlplane.bench_refine import next_block
from controlplane.benchrun_plan import MOST_REPEATS, RAMP_S, SWITCH_S, Run
from controlplane.benchrun_window import Load
from engine_patch.tier import OFF


@dataclass(frozen=True, slots=True)
class Further:
    """One more block, and why.

    Args:
        runs: base, tier, tier, base at one load.
        reason: in a sentence.
    """

    runs: tuple[Run, ...]
    reason: str


Chooser = Callable[[Sequence[BenchPoint], Sequence[Run], float], Further | None]
"""From the points, the runs made so far and the seconds left; None if nothing more can be
learnt."""


def chooser(
    tiers: Sequence[str],
    loads: Sequence[Load],
    window_s: float,
    switch_s: float = SWITCH_S,
    most: Mapping[str, int] | None = None,
) -> Chooser:
    """A chooser over a plan; it may also pick loads between those of the plan.

    Without a base (``plain`` or ``off``), and with Poisson arrivals, whose concurrency is found and
    not set, there is nothing to refine.
    """
    base = next((tier for tier in (PLAIN, OFF) if tier in tiers), None)
    others = [tier for tier in tiers if tier != base]
    closed = all(load.rate_s is None for load in loads)
    grid = finer(sorted(load.clients for load in loads)) if closed else ()
    block_s = 4 * window_s + 3 * switch_s + RAMP_S

    def choose(points: Sequence[BenchPoint], done: Sequence[Run], left_s: float) -> Further | None:
        if base is None or not others or not grid:
            return None
        wish = next_block(
            points,
            base=base,
            tiers=others,
            grid=grid,
            left=left_s * 1000,
            price=lambda _: math.ceil(block_s * 1000),
        )
        if wish is None or wish.concurrency > (most or {}).get(wish.tier, wish.concurrency):
            return None
        load = Load(wish.concurrency)
        return Further(block(base, wish.tier, load, done), wish.reason)

    return choose


def finer(clients: Sequence[int]) -> tuple[int, ...]:
    """The concurrencies of a plan and the geometric middles between neighbours, rising."""
    middles = {round(math.sqrt(low * high)) for low, high in itertools.pairwise(clients)}
    return tuple(sorted({*clients, *middles}))


def block(base: str, tier: str, load: Load, done: Sequence[Run]) -> tuple[Run, ...]:
    """Base, tier, tier, base: runs of one repeat number are compared with each other."""
    first = max((run.repeat for run in done if run.load == load), default=0) + 1
    number = max((run.block for run in done), default=0) + MOST_REPEATS
    order = ((base, first), (tier, first), (tier, first + 1), (base, first + 1))
    return tuple(Run(one, load, repeat, number) for one, repeat in order)
