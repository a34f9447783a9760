"""What a headless demo run says: one JSON object, or a table for people.  Pure.

``docs/demo.md`` describes every field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine_patch.demo_plan import Plan

SCHEMA = "specdeck.demo/1"

Json = dict[str, Any]


class ReportError(ValueError):
    """The run did not do what was planned, so that nothing can be compared."""


@dataclass(frozen=True)
class Measured:
    """What was seen of the dynamic run.

    Args:
        load: result of the load generator.
        decisions: the control plane's decisions, in any order.
        gap_times: wall times (UTC ms) of the control plane's failed polls.
        simulation: the engine's own account: ``table``, ``lag``, ``valid``.
        startup_s: from the command until the first request was sent.
    """

    load: Json
    decisions: Sequence[Json]
    gap_times: Sequence[int]
    simulation: Json
    startup_s: float
    seed: int


def report(plan: Plan, measured: Measured) -> Json:
    """The JSON object of a run.

    Raises:
        ReportError: the traffic did not finish the planned phases.
    """
    load = measured.load
    done = [phase for phase in load["phases"] if phase["complete"]]
    if len(done) != len(plan.phases):
        raise ReportError(
            f"the traffic finished {len(done)} of {len(plan.phases)} phases"
            + (f", stopped by {load['stopped_by']}" if load["stopped_by"] else "")
        )
    start_s = done[0]["start_s"]
    seconds = done[-1]["end_s"] - start_s
    began_ms = load["started_utc_ms"] + round(start_s * 1000)
    ended_ms = began_ms + round(seconds * 1000)
    phases, regret = [], []
    for phase, seen, off_s, on_s in zip(plan.phases, done, plan.off_s, plan.on_s, strict=True):
        rates = _rates(phase.tokens, seen["end_s"] - seen["start_s"], on_s, off_s)
        phases.append({"concurrency": phase.concurrency, **rates})
        regret.append(1 - rates["dynamic_tok_s"] / max(rates["on_tok_s"], rates["off_tok_s"]))
    tokens = sum(phase.tokens for phase in plan.phases)
    gaps = sum(began_ms <= at <= ended_ms for at in measured.gap_times)
    reasons = _why_invalid(plan, done, load, measured.simulation)
    return {
        "schema": SCHEMA,
        "simulated": True,
        "table": measured.simulation["table"],
        "seconds": round(seconds, 3),
        "valid": not reasons,
        "invalid_because": reasons,
        "gaps": gaps,
        "phases": phases,
        "overall": _rates(tokens, seconds, sum(plan.on_s), sum(plan.off_s)),
        "switches": _switches(measured.decisions, began_ms, ended_ms),
        "regret": [round(value, 4) for value in regret],
        "lag": measured.simulation["lag"],
        "startup_s": round(measured.startup_s, 3),
        "seed": measured.seed,
    }


def _rates(tokens: int, dynamic_s: float, on_s: float, off_s: float) -> Json:
    return {
        "tokens": tokens,
        "dynamic_tok_s": round(tokens / dynamic_s, 1),
        "on_tok_s": round(tokens / on_s, 1),
        "off_tok_s": round(tokens / off_s, 1),
    }


def _switches(decisions: Sequence[Json], began_ms: int, ended_ms: int) -> list[Json]:
    return [
        {
            "at_s": round((decision["at_utc_ms"] - began_ms) / 1000, 3),
            "from": decision["from_tier"],
            "to": decision["to_tier"],
            "reason": decision["reason"],
            "text": decision["text"],
            "confirmed": decision["outcome"] == "confirmed",
            "latency_ms": decision["latency_ms"],
        }
        for decision in sorted(decisions, key=lambda entry: (entry["at_utc_ms"], entry["id"]))
        if began_ms <= decision["at_utc_ms"] <= ended_ms
    ]


def _why_invalid(
    plan: Plan, done: Sequence[Json], load: Json, simulation: Mapping[str, Any]
) -> list[str]:
    reasons = []
    if not simulation["valid"]:
        reasons.append(
            f"the simulation fell behind the wall clock by {simulation['lag'] * 100:.1f} % "
            "(2 % are allowed): this machine is too busy"
        )
    failed = sum(phase["failed"] for phase in done)
    if failed:
        reasons.append(f"{failed} requests failed: {', '.join(load['errors'])}")
    wrong = [
        str(index)
        for index, (phase, seen) in enumerate(zip(plan.phases, done, strict=True))
        if seen["output_tokens"] != phase.tokens
    ]
    if wrong and not failed:
        reasons.append(f"phases {', '.join(wrong)} did not yield the tokens asked for")
    if load["own"]["bottleneck"]:
        reasons.append("the load generator was the bottleneck: this machine is too busy")
    return reasons


def text(document: Json) -> str:
    """The object for people."""
    lines = [
        f"simulated times: table {document['table']}",
        f"{document['seconds']:.1f} s, {len(document['phases'])} phases, "
        f"{document['gaps']} gaps, simulation lag {document['lag'] * 100:.2f} %, "
        f"started in {document['startup_s']:.1f} s",
        "",
        f"{'phase':>7} {'clients':>7} {'tokens':>9} {'dynamic':>10} {'always on':>10} "
        f"{'always off':>10} {'regret':>7}",
        f"{'':>7} {'':>7} {'':>9} {'tok/s':>10} {'tok/s':>10} {'tok/s':>10} {'%':>7}",
    ]
    rows = zip(document["phases"], document["regret"], strict=True)
    for index, (phase, regret) in enumerate(rows):
        lines.append(_row(str(index), str(phase["concurrency"]), phase, f"{regret * 100:.1f}"))
    lines.append(_row("overall", "-", document["overall"], "-"))
    lines.append("")
    for switch in document["switches"]:
        settled = (
            f"confirmed in {switch['latency_ms']:.0f} ms"
            if switch["confirmed"] and switch["latency_ms"] is not None
            else "confirmed"
            if switch["confirmed"]
            else "NOT CONFIRMED"
        )
        lines.append(
            f"  {switch['at_s']:>7.2f} s  {switch['from'] or '-'} -> {switch['to']}  {settled}  "
            f"{switch['text']}"
        )
    lines += [f"! not valid: {reason}" for reason in document["invalid_because"]]
    return "\n".join(lines) + "\n"


def _row(name: str, clients: str, rates: Json, regret: str) -> str:
    return (
        f"{name:>7} {clients:>7} {rates['tokens']:>9} {rates['dynamic_tok_s']:>10.0f} "
        f"{rates['on_tok_s']:>10.0f} {rates['off_tok_s']:>10.0f} {regret:>7}"
    )
