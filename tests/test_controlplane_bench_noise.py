"""Intervals and ties: what repeats can tell, and what a single run cannot."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.bench_noise import (
    NOISE_CHAIN,
    NOISE_PLAIN,
    NOISE_PLAIN_QUIET,
    intervals,
    repeats,
    student,
    tolerance,
)
from controlplane.bench_records import BenchPoint
from tests.bench_study import FULL_BLOCKS, SCENARIOS, covered, full_grid


def _runs(tier: str, speeds: list[float], first: int = 1) -> list[BenchPoint]:
    return [
        BenchPoint(tier=tier, concurrency=8, tok_s=speed, repeat=repeat)
        for repeat, speed in enumerate(speeds, first)
    ]


def test_a_single_run_on_either_side_has_no_repeats() -> None:
    many, one = _runs("plain", [100, 101, 99]), _runs("s3k1d4", [150])
    assert repeats(one, many) is None
    assert repeats(many, one) is None


def test_pairs_take_a_common_drift_out() -> None:
    drifting = [100.0, 110.0, 120.0, 130.0]
    paired = repeats(_runs("s3k1d4", [1.5 * speed for speed in drifting]), _runs("plain", drifting))
    assert paired is not None
    bounds = intervals({8: paired})[8]
    assert bounds.low == pytest.approx(1.5)
    assert bounds.high == pytest.approx(1.5)
    apart = repeats(
        _runs("s3k1d4", [1.5 * speed for speed in drifting]), _runs("plain", drifting, first=10)
    )
    assert apart is not None
    assert len(apart.sides) == 2, "numbers that do not match cannot be paired"
    assert intervals({8: apart})[8].low < 1.4


def test_a_point_much_noisier_than_its_pool_speaks_for_itself() -> None:
    def cell(concurrency: int, spread: float) -> list[BenchPoint]:
        return [
            BenchPoint(
                tier=tier,
                concurrency=concurrency,
                tok_s=100 * (1 + (spread if tier == "s3k1d4" else 0.0) * sign),
                repeat=repeat,
            )
            for repeat, sign in enumerate((-1, 1, -1, 1), 1)
            for tier in ("s3k1d4", "plain")
        ]

    found = {}
    for at, spread in ((1, 0.01), (2, 0.01), (4, 0.01), (8, 0.01), (16, 0.2)):
        runs = cell(at, spread)
        one = repeats(runs[::2], runs[1::2])
        assert one is not None
        found[at] = one
    bounds = intervals(found)
    assert bounds[16].high - bounds[16].low > 0.3
    alone = intervals({16: found[16]})[16]
    assert bounds[16].high == pytest.approx(alone.high)


def test_more_repeats_of_the_same_spread_narrow_the_interval() -> None:
    widths = []
    for copies in (1, 2, 4):
        spec, plain = [150.0, 140.0, 160.0] * copies, [100.0] * (3 * copies)
        found = repeats(_runs("s3k1d4", spec), _runs("plain", plain))
        assert found is not None
        bounds = intervals({8: found})[8]
        widths.append(bounds.high - bounds.low)
    assert widths == sorted(widths, reverse=True)


def test_the_same_runs_always_give_the_same_interval() -> None:
    found = repeats(_runs("s3k1d4", [150, 140, 160]), _runs("plain", [100, 98, 103]))
    assert found is not None
    assert intervals({8: found}) == intervals({8: found})


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(1, 1e6)), min_size=2, max_size=9))
@settings(max_examples=80, deadline=None)
def test_an_interval_is_finite_ordered_and_turns_over_with_the_ratio(
    rows: list[tuple[float, float]],
) -> None:
    spec = _runs("s3k1d4", [row[0] for row in rows])
    plain = _runs("plain", [row[1] for row in rows])
    there, back = repeats(spec, plain), repeats(plain, spec)
    assert there is not None
    assert back is not None
    bounds, turned = intervals({8: there})[8], intervals({8: back})[8]
    assert 0 <= bounds.low <= bounds.high
    assert there.centre == pytest.approx(-back.centre, abs=1e-9)
    assert turned.low == pytest.approx(1 / bounds.high, rel=1e-6)
    assert turned.high == pytest.approx(1 / bounds.low, rel=1e-6)


@pytest.mark.parametrize(
    ("freedom", "tabled"), [(1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (10, 2.228)]
)
def test_student_agrees_with_the_table(freedom: int, tabled: float) -> None:
    assert student(0.975, freedom) == pytest.approx(tabled, rel=0.01)


def test_student_needs_a_degree_of_freedom() -> None:
    with pytest.raises(ValueError, match="degree of freedom"):
        student(0.975, 0)


def test_the_tolerance_of_single_runs_is_the_measured_noise_of_both() -> None:
    def run(tier: str, concurrency: int) -> BenchPoint:
        return BenchPoint(tier=tier, concurrency=concurrency, tok_s=1)

    busy = tolerance(run("s3k1d4", 128), run("plain", 128))
    assert busy == pytest.approx(math.hypot(NOISE_CHAIN, NOISE_PLAIN))
    quiet = tolerance(run("s3k1d4", 16), run("plain", 16))
    assert quiet == pytest.approx(math.hypot(NOISE_CHAIN, NOISE_PLAIN_QUIET))


@pytest.mark.parametrize(
    ("blocks", "seeds", "uneven"), [(1, 300, False), (FULL_BLOCKS, 100, False), (2, 150, True)]
)
def test_95_percent_intervals_cover_the_truth_in_93_to_97_percent(
    blocks: int, seeds: int, uneven: bool
) -> None:
    """The first seeds of the 1,000 in ``tests/benchmarks/test_bench_intervals.py``."""
    held = [
        holds
        for seed in range(seeds)
        for holds in covered(
            full_grid(SCENARIOS[seed % len(SCENARIOS)], seed, blocks, uneven=uneven)
        ).values()
    ]
    assert len(held) == seeds * 9
    assert 0.93 <= sum(held) / len(held) <= 0.97
