"""Runs under Poisson arrivals: what a request waits for, by rate.  Pure.

An open loop sends what it is asked to send: its tokens per second are the demand, on every tier
that keeps up, and the concurrency is a result.  So no speed-up and no crossover is read from it.
What differs is the time to the first token and per token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from controlplane.bench_cells import AT_A_RATE, obstacles
from controlplane.bench_findings import AtRate, NotComparable
from controlplane.bench_records import PLAIN, POISSON, BenchPoint
from engine_patch.tier import OFF


def at_rates(points: Iterable[BenchPoint]) -> tuple[AtRate, ...]:
    """Each tier at each rate, from slow to fast, of the runs that nothing spoiled."""
    grouped: dict[tuple[float, str, str], list[BenchPoint]] = {}
    for run in points:
        if run.arrivals == POISSON and run.rate_s is not None and not _spoiled(run):
            grouped.setdefault((run.rate_s, run.tier, run.label), []).append(run)
    return tuple(
        AtRate(
            rate_s=rate,
            tier=tier,
            label=label,
            runs=len(runs),
            running=_mean(run.running for run in runs),
            tok_s=fmean(run.tok_s for run in runs),
            ttft_s=_mean(run.ttft_s for run in runs),
            tpot_s=_mean(run.tpot_s for run in runs),
        )
        for (rate, tier, label), runs in sorted(grouped.items(), key=lambda one: one[0][0])
    )


def spoiled(points: Iterable[BenchPoint]) -> tuple[NotComparable, ...]:
    """The runs under arrivals that say nothing, with the reasons."""
    return tuple(
        NotComparable(
            series=f"Poisson arrivals, {run.rate_s or 0:g} requests/s",
            tier=run.tier,
            concurrency=run.concurrency,
            repeats=(run.repeat,),
            reasons=_spoiled(run),
        )
        for run in points
        if run.arrivals == POISSON and _spoiled(run)
    )


def arrivals_verdict(found: Sequence[AtRate]) -> str:
    """A sentence on the busiest rate at which a speculating tier and a base were measured."""
    end = "a crossover needs a closed loop: tokens per second follow the arrivals"
    for rate in sorted({one.rate_s for one in found}, reverse=True):
        here = [one for one in found if one.rate_s == rate and one.tpot_s is not None]
        base = next((o for tier in (PLAIN, OFF) for o in here if o.tier == tier), None)
        others = [one for one in here if one.tier not in (PLAIN, OFF)]
        if base is None or not others:
            continue
        parts = [f"{_ms(one.tpot_s)} on {one.tier}" for one in others]
        return (
            f"At {rate:g} requests/s a token takes {', '.join(parts)} and {_ms(base.tpot_s)} on "
            f"{base.tier}; {end}."
        )
    return f"Requests came at a rate: {end}."


def arrivals_table(found: Sequence[AtRate]) -> list[str]:
    """Lines for a person; a missing value is "-"."""
    if not found:
        return []
    lines = [
        "arrivals (Poisson)",
        "  req/s  tier       runs  running     tok/s       TTFT      TPOT",
    ]
    lines += [
        f"  {one.rate_s:>5g}  {f'{one.tier} {one.label}'.strip():<9}  {one.runs:>4}  "
        f"{'-' if one.running is None else f'{one.running:.1f}':>7}  {one.tok_s:>8,.0f}  "
        f"{_ms(one.ttft_s):>9} {_ms(one.tpot_s):>9}"
        for one in found
    ]
    return lines


def _spoiled(run: BenchPoint) -> tuple[str, ...]:
    return tuple(reason for reason in obstacles(run) if reason != AT_A_RATE)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.1f} ms"
