"""Medians and lower bounds of speed ratios over several runs of ``rounds.py``.

Each file is one run; a ratio is taken within a run (round times of A B ... B A blocks averaged
first), so that a slow machine slows both sides.  The lower bound is one-sided, 95 %, of the mean
(Student's t).  Pass: median at least 0.98 and lower bound at least 0.95.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

MEDIAN, LOWER = 0.98, 0.95
T95 = {2: 6.314, 3: 2.920, 4: 2.353, 5: 2.132, 6: 2.015, 7: 1.943, 8: 1.895, 9: 1.860, 10: 1.833}
"""One-sided 95 % quantiles of Student's t, by the number of runs."""
AT_CONTEXT = 200
"""Tokens of context at which the lines of round times over context are read."""
LEAST_CONTEXT = 20
"""Tokens of context that windows must have in common to be compared there."""
BESIDE_PREFILL = 2
"""Numbers told first that may still stand beside a prefill.

On an H200 a plain server's first 13 or 14 rounds at 128 requests read 93 to 258 ms, the next 15
took 97 to 107.
"""
STATED = {"off": 1.0, "s1k1d2": 1.544, "s2k1d3": 1.840, "s3k1d4": 2.001, "s2k4d16": 2.0}
"""Tokens per step that the servers of these runs simulate (docs/gpu-results.md).

SGLang draws one number for the whole batch, so a window of 150 rounds of ``s1k1d2`` reads 1.41 to
1.74; automation and its fixed tiers are compared without that noise as well.
"""


def lower(values: list[float]) -> float | None:
    """The bound; None for a single run."""
    n = len(values)
    if n < 2:
        return None
    return statistics.mean(values) - T95[min(n, 10)] * statistics.stdev(values) / n**0.5


def decode_ratios(run: dict[str, Any]) -> dict[tuple[str, int], float]:
    """Ratios in clean windows, by clients.

    Off against plain: plain's round time over off's, also of a flavour.  A tier against a server
    of that tier without the plugin, plain against a second plain server: the same.  Automation
    against the best fixed tier: by tokens per second.
    """
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    rates: dict[tuple[str, int], list[float]] = defaultdict(list)
    for row in run["rounds"]:
        if row["round_ms"]:
            times[row["tier"], row["clients"]].append(row["round_ms"])
        if row.get("tok_s"):
            rates[row["tier"], row["clients"]].append(row["tok_s"])
    mean = {key: statistics.mean(values) for key, values in times.items()}
    found = {
        (f"{tier} / plain", clients): mean["plain", clients] / mean[tier, clients]
        for tier, clients in mean
        if tier.partition("-")[0] == "off" and ("plain", clients) in mean
    }
    fixed_tier = run.get("stock_tier")
    other = "plain again" if fixed_tier == "plain" else "without plugin"
    found |= {
        (f"{fixed_tier} / {other}", clients): mean["stock", clients] / time
        for (tier, clients), time in mean.items()
        if tier == fixed_tier and ("stock", clients) in mean
    }
    return found | over_best_fixed(rates, "clean windows")


def over_best_fixed(
    rates: dict[tuple[str, int], list[float]], judged: str
) -> dict[tuple[str, int], float]:
    """Automation's mean rate over the highest of the fixed tiers', by clients."""
    rate = {key: statistics.mean(values) for key, values in rates.items()}
    found = {}
    for tier, clients in rate:
        fixed = [
            rate[t, c]
            for t, c in rate
            if c == clients and t not in ("plain", "auto") and "-" not in t
        ]
        if tier == "auto" and fixed:
            found[f"auto / best fixed, {judged}", clients] = rate[tier, clients] / max(fixed)
    return found


def at_context(points: list[list[float]], context: float) -> tuple[float, float]:
    """(seconds, rounds) at which a request held that many KV slots on average."""
    for (at, steps, held), (later, more, held_then) in itertools.pairwise(points):
        if held <= context <= held_then and held_then > held:
            share = (context - held) / (held_then - held)
            return at + share * (later - at), steps + share * (more - steps)
    raise ValueError(f"{context} is outside {points[0][2]} to {points[-1][2]}")


def told(row: dict[str, Any]) -> list[list[float]]:
    """What a window told of its contexts, without what may stand beside a prefill."""
    return (row.get("contexts") or [])[BESIDE_PREFILL:]


def context_lines(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Round time as a straight line over context, per tier and clients, of all windows together."""
    gathered: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for row in [row for run in runs for row in run["rounds"]]:
        for a, b in itertools.pairwise(told(row)):
            if row["tier"] != "auto" and b[2] > a[2]:  # automation's rounds are of several tiers
                pieces = gathered[row["tier"], row["clients"]]
                pieces.append(((a[2] + b[2]) / 2, (b[0] - a[0]) / (b[1] - a[1]) * 1000))
    rows = []
    for (tier, clients), pieces in sorted(gathered.items()):
        if len({context for context, _ in pieces}) < 3:
            continue
        slope, at_zero = statistics.linear_regression(*zip(*pieces, strict=True))
        there = at_zero + slope * AT_CONTEXT
        rows.append({
            "line": tier, "clients": clients, "pieces": len(pieces),
            f"round_ms_at_{AT_CONTEXT}": round(there, 3), "us_per_token": round(slope * 1000, 2),
            "percent_per_token": round(slope / there * 100, 3),
        })  # fmt: skip
    return rows


def equal_context_ratios(run: dict[str, Any]) -> dict[tuple[str, int], float]:
    """Off against plain over the same contexts.

    Attention takes longer with each token: at 128 requests a round later is 0.05 (FA3) to
    0.09 % (triton) slower.
    Servers that tell their rounds at other moments have windows that begin at other ones.
    """
    twin = ["stock"] if run.get("stock_tier") == "plain" else []
    windows: dict[tuple[str, int], list[list[list[float]]]] = defaultdict(list)
    for row in run["rounds"]:
        points = told(row)
        if len(points) > 2 and row["tier"].partition("-")[0] in ("plain", "off", *twin):
            windows[row["tier"], row["clients"]].append(points)
    found = {}
    for tier, clients in windows:
        if tier == "plain" or ("plain", clients) not in windows:
            continue
        both = windows["plain", clients], windows[tier, clients]
        every = [*both[0], *both[1]]
        low, high = max(w[0][2] for w in every), min(w[-1][2] for w in every)
        if high - low < LEAST_CONTEXT:
            continue
        times = []
        for side in both:
            ends = [(at_context(w, low), at_context(w, high)) for w in side]
            times.append(statistics.mean((b[0] - a[0]) / (b[1] - a[1]) for a, b in ends))
        faster = times[0] / times[1]
        name = f"{tier} / plain" if tier != "stock" else "plain / plain again"
        found[f"{name}, equal contexts", clients] = 1 / faster if tier == "stock" else faster
    return found


def at_stated(tier: str, row: dict[str, Any]) -> float:
    """Tokens per second of a window, with the acceptance that its tier was set to.

    Automation's rows do not name the tier that ran; their accept length is nearest to its own.
    """
    if tier == "auto":
        seen = row.get("accept_length") or 1.0
        tier = min(STATED, key=lambda name: abs(STATED[name] - seen))
    return float(row["clients"] * STATED[tier] / row["round_ms"] * 1000)


def stated_ratios(run: dict[str, Any]) -> dict[tuple[str, int], float]:
    """Automation against the best fixed tier, by round times and stated acceptance."""
    rates: dict[tuple[str, int], list[float]] = defaultdict(list)
    for row in run["rounds"]:
        if row["round_ms"] and (row["tier"] == "auto" or row["tier"] in STATED):
            rates[row["tier"], row["clients"]].append(at_stated(row["tier"], row))
    return over_best_fixed(rates, "stated acceptance")


def loop_ratios(run: dict[str, Any]) -> dict[tuple[str, int], float]:
    """``auto`` against the best fixed tier, plain and upstream, by clients."""
    rates = {(row["tier"], row["clients"]): row["tok_s"] for row in run["loops"]}
    found = {}
    for tier, clients in rates:
        if tier != "auto":
            continue
        others = {t: rate for (t, c), rate in rates.items() if c == clients and t != "auto"}
        fixed = [rate for t, rate in others.items() if t not in ("plain", "upstream")]
        if fixed:
            found["auto / best fixed", clients] = rates[tier, clients] / max(fixed)
        for name in ("plain", "upstream"):
            if name in others:
                found[f"auto / {name}", clients] = rates[tier, clients] / others[name]
    return found


def ratios_of(run: dict[str, Any]) -> dict[tuple[str, int], float]:
    """Every ratio of a run."""
    windows = decode_ratios(run) | equal_context_ratios(run)
    return windows | stated_ratios(run) | loop_ratios(run)


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per ratio and number of clients."""
    gathered: dict[tuple[str, int], list[float]] = defaultdict(list)
    for run in runs:
        for key, ratio in ratios_of(run).items():
            gathered[key].append(ratio)
    rows = []
    for (name, clients), values in sorted(gathered.items()):
        bound, median = lower(values), statistics.median(values)
        rows.append({
            "ratio": name, "clients": clients, "runs": len(values), "median": round(median, 4),
            "lower95": None if bound is None else round(bound, 4),
            "pass": None if bound is None else median >= MEDIAN and bound >= LOWER,
        })  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    runs = [json.loads(file.read_text()) for file in chosen.files]
    rows = summary(runs) + context_lines(runs)
    for row in rows:
        print(json.dumps(row))
    if chosen.out:
        chosen.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
