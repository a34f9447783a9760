"""What a benchmark measures in which order, and how long each part gets.  Pure.

Tiers are interleaved A B C C B A at each load, so that drift of a clock or a temperature meets all
of them alike; each pass over all tiers is a **block**, whose runs are compared with each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from controlplane.benchrun_window import Load

SWITCH_S = 1.0
"""Seconds that a change of tier takes out of the time, until every rank confirms it and the first
steps have passed."""
RAMP_S = 2.0
"""The same for a change of load."""
WINDOW_LEAST_S, WINDOW_MOST_S = 0.5, 20.0
FIRST_PASS = 0.75
"""Share of the budget for the plan itself; the rest goes where the answer is least certain."""
MOST_REPEATS = 64


@dataclass(frozen=True, slots=True)
class Run:
    """One window to measure."""

    tier: str
    load: Load
    repeat: int
    block: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The runs in order.

    Args:
        window_s: length of each steady window, at least.
        switch_s: what a change of tier takes.
    """

    runs: tuple[Run, ...]
    window_s: float
    switch_s: float = SWITCH_S

    @property
    def seconds(self) -> float:
        """About how long all of it takes."""
        return cost_s(self.runs, self.window_s, None, self.switch_s)


def cost_s(
    runs: Sequence[Run], window_s: float, load: Load | None = None, switch_s: float = SWITCH_S
) -> float:
    """About how long ``runs`` take from ``load`` on."""
    total = 0.0
    tier: str | None = None
    for run in runs:
        total += window_s
        total += switch_s if run.tier != tier else 0.0
        total += RAMP_S if run.load != load else 0.0
        tier, load = run.tier, run.load
    return total


def make_plan(
    tiers: Sequence[str],
    loads: Sequence[Load],
    repeats: int,
    budget_s: float,
    window_s: float | None = None,
    switch_s: float = SWITCH_S,
    most: Mapping[str, int] | None = None,
) -> Plan:
    """The interleaved plan that fits the budget.

    With too little time the windows become shorter first, then repeats are left out; one pass over
    everything is always made.

    Args:
        repeats: passes over all tiers at each load.
        window_s: length of each window; None lets the budget choose.
        switch_s: what a change of tier takes: more where each tier is a server of its own, whose
            load begins anew.
        most: the most clients a tier serves; it is not measured above.
    """
    for passes in range(max(repeats, 1), 0, -1):
        runs = tuple(interleaved(tiers, loads, passes, most or {}))
        if window_s is not None:
            return Plan(runs, window_s, switch_s)
        room = (FIRST_PASS * budget_s - cost_s(runs, 0.0, None, switch_s)) / len(runs)
        if room >= WINDOW_LEAST_S or passes == 1:
            return Plan(runs, min(max(room, WINDOW_LEAST_S), WINDOW_MOST_S), switch_s)
    raise AssertionError("the last pass returns")


def interleaved(
    tiers: Sequence[str], loads: Sequence[Load], passes: int, most: Mapping[str, int]
) -> Iterator[Run]:
    """The runs: loads from light to heavy, tiers forth and back at each."""
    for place, load in enumerate(loads):
        # What no tier serves is measured all the same: its points then say why they do not count.
        served = [one for one in tiers if load.clients <= most.get(one, load.clients)] or tiers
        for one in range(passes):
            order = served if one % 2 == 0 else tuple(reversed(served))
            for tier in order:
                yield Run(tier, load, one + 1, place * MOST_REPEATS + one)
