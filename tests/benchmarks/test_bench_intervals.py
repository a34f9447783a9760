"""The whole study of intervals and refinement: 1,000 seeds fixed in advance (0 to 999).

The result is kept in ``results/bench_intervals.json``; the default suite runs the
first tenth to three tenths.
"""

from __future__ import annotations

import datetime as dt
import json
import platform
import time
from pathlib import Path

import pytest

from controlplane.bench_analysis import analyse
from tests.bench_study import (
    DRIFT,
    FULL_BLOCKS,
    FULL_PRICE,
    GRID,
    NOISE,
    SCENARIOS,
    covered,
    full_grid,
    refined,
    within_one_step,
)

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]
SEEDS = 1000
RESULT = Path(__file__).parent / "results/bench_intervals.json"


def _coverage(blocks: int, *, uneven: bool = False) -> dict[str, float]:
    """Share of the seeds whose interval held the truth, over all and by concurrency."""
    held = dict.fromkeys(GRID, 0)
    for seed in range(SEEDS):
        server = full_grid(SCENARIOS[seed % len(SCENARIOS)], seed, blocks, uneven=uneven)
        for at, holds in covered(server).items():
            held[at] += holds
    return {
        "all": round(sum(held.values()) / (SEEDS * len(GRID)), 4),
        **{str(at): hits / SEEDS for at, hits in held.items()},
    }


def test_intervals_cover_and_refinement_finds_the_crossover() -> None:
    begun = time.monotonic()
    coverage = {str(blocks): _coverage(blocks) for blocks in (1, 2, FULL_BLOCKS)}
    uneven = {str(blocks): _coverage(blocks, uneven=True) for blocks in (1, 2, FULL_BLOCKS)}
    found = by_full_grid = 0
    spent: list[float] = []
    for seed in range(SEEDS):
        scenario = SCENARIOS[seed % len(SCENARIOS)]
        server = refined(scenario, seed, FULL_PRICE / 2)
        found += within_one_step(analyse(server.file).crossover, scenario)
        spent.append(server.sent / FULL_PRICE)
        full = full_grid(scenario, seed, FULL_BLOCKS)
        by_full_grid += within_one_step(analyse(full.file).crossover, scenario)
    result = {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "setup": {
            "machine": f"{platform.machine()}, Python {platform.python_version()}",
            "seeds": f"0 to {SEEDS - 1}",
            "scenarios": [f"{backend}, accept length {tau}" for backend, tau in SCENARIOS],
            "grid": list(GRID),
            "noise_per_run": NOISE,
            "drift_over_benchmark": DRIFT,
            "blocks": "A B B A",
            "full_grid_blocks": FULL_BLOCKS,
        },
        "coverage_of_95_percent_intervals_by_blocks": coverage,
        "coverage_with_noise_of_2_percent_below_128_and_10_percent_above": uneven,
        "refinement": {
            "budget_of_full_grid": 0.5,
            "spent_mean": round(sum(spent) / SEEDS, 4),
            "spent_most": round(max(spent), 4),
            "within_one_grid_step": found / SEEDS,
            "full_grid_within_one_grid_step": by_full_grid / SEEDS,
        },
        "seconds": round(time.monotonic() - begun, 1),
    }
    print(json.dumps(result, indent=1))
    for held in (*coverage.values(), *uneven.values()):
        assert 0.93 <= held["all"] <= 0.97
    assert max(spent) <= 0.5
    assert found / SEEDS >= 0.99
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
