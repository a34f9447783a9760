"""Where the next block goes: towards the crossover, for few requests, and never past the money."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.bench_analysis import analyse
from controlplane.bench_records import BenchPoint
from controlplane.bench_refine import NextBlock, next_block
from tests.bench_study import (
    FULL_PRICE,
    GRID,
    SCENARIOS,
    NoisyServer,
    price,
    refined,
    true_band,
    within_one_step,
)

SEEDS = 60
"""The first of the 1,000 of ``tests/benchmarks/test_bench_intervals.py``."""


def _next(points: list[BenchPoint], left: float = 1e9, **changes: object) -> NextBlock | None:
    settings = {"base": "off", "tiers": ("s3k1d4",), "grid": GRID, "price": price} | changes
    return next_block(points, left=left, **settings)  # type: ignore[arg-type]


def test_half_the_requests_of_a_full_grid_find_the_crossover_within_one_step() -> None:
    missed = []
    for seed in range(SEEDS):
        scenario = SCENARIOS[seed % len(SCENARIOS)]
        server = refined(scenario, seed, FULL_PRICE / 2)
        assert server.sent <= FULL_PRICE / 2
        band = analyse(server.file).crossover
        if not within_one_step(band, scenario):
            missed.append((seed, band, true_band(scenario)))
    # Noise may hide it once in a hundred times; over all 1,000 seeds it is less than that.
    assert len(missed) <= 1, missed


def test_the_quiet_end_comes_first_because_it_is_cheap() -> None:
    chosen = _next([])
    assert chosen is not None
    assert (chosen.concurrency, chosen.base, chosen.tier) == (1, "off", "s3k1d4")
    assert chosen.price == price(1)
    assert chosen.reason


def test_nothing_is_chosen_that_the_budget_does_not_hold() -> None:
    assert _next([], left=price(1) - 1) is None
    server = NoisyServer(SCENARIOS[0], 0, FULL_PRICE)
    server.block(1)
    chosen = _next(server.points, left=price(2))
    assert chosen is not None
    assert chosen.price <= price(2)


def test_without_noise_halving_takes_no_more_blocks_than_the_grid_has_doublings() -> None:
    for scenario in SCENARIOS:
        server = NoisyServer(scenario, 0, FULL_PRICE, noise=0.0, drift=0.0)
        seen: list[int] = []
        while len(set(seen)) == len(seen):
            chosen = _next(server.points)
            if chosen is None:
                break
            seen.append(chosen.concurrency)
            server.block(chosen.concurrency)
        low, high = true_band(scenario)
        assert {GRID[low], GRID[high]} <= set(seen), "both ends of the band were measured"
        assert len(set(seen)) <= 6


def test_the_less_certain_of_two_tiers_is_measured() -> None:
    server = NoisyServer(SCENARIOS[0], 0, FULL_PRICE)
    for _ in range(3):
        server.block(1)
    chosen = _next(server.points, tiers=("s3k1d4", "s2k4d16"))
    assert chosen is not None
    assert chosen.tier == "s2k4d16", "nothing at all is known of it"


def test_a_concurrency_that_could_not_be_compared_is_not_tried_again() -> None:
    points = [
        BenchPoint(tier=tier, concurrency=at, tok_s=at * 10, repeat=repeat, queued=queued, cap=48)
        for at, queued in ((1, 0.0), (64, 16.0))
        for tier in ("off", "s3k1d4")
        for repeat in (1, 2)
    ]
    for left in (1e9, price(64)):
        chosen = _next(points, left=left)
        assert chosen is not None
        assert chosen.concurrency <= 32, "64 waits and all above lies beyond the cap"


@given(seed=st.integers(0, 10_000), budget=st.floats(0, 1), scenario=st.sampled_from(SCENARIOS))
@settings(max_examples=25, deadline=None)
def test_refinement_always_ends_within_its_budget(
    seed: int, budget: float, scenario: tuple[str, float]
) -> None:
    server = refined(scenario, seed, budget * FULL_PRICE)
    assert server.sent <= budget * FULL_PRICE


def test_a_tie_everywhere_ends() -> None:
    points = [
        BenchPoint(tier=tier, concurrency=at, tok_s=at * 10, repeat=repeat)
        for at in GRID
        for tier in ("off", "s3k1d4")
        for repeat in range(1, 9)
    ]
    assert _next(points) is None


@pytest.mark.parametrize("grid", [(1,), (4, 8)])
def test_small_grids_work(grid: tuple[int, ...]) -> None:
    server = NoisyServer(SCENARIOS[0], 0, FULL_PRICE)
    for _ in range(40):
        chosen = _next(server.points, grid=grid)
        if chosen is None:
            return
        assert chosen.concurrency in grid
        server.block(chosen.concurrency)
    pytest.fail("it never ends")
