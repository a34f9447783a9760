"""Step times come from clean windows only."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_patch.costs import ContextBand
from engine_patch.step_times import StepTimes

MS = 1_000_000


def _steps(times: StepTimes, count: int, *, tier: str = "off", batch: int = 4, start: int = 0,
           ms: float = 10.0, graph: bool = True) -> int:  # fmt: skip
    now = start
    for _ in range(count):
        now += int(ms * MS)
        times.result(tier, batch, batch, 100.0, now, graph=graph)
    return now


def test_the_first_step_after_anything_else_is_no_window() -> None:
    times = StepTimes()
    _steps(times, 1)
    assert times.table() == ()
    assert times.changes == 0


def test_steps_of_one_tier_and_bucket_are_averaged() -> None:
    times = StepTimes()
    _steps(times, 11, batch=3)
    (cell,) = times.table()
    assert (cell.tier, cell.bucket, cell.band) == ("off", 4, ContextBand.UP_TO_1K)
    assert (cell.samples, cell.mean_ms, cell.var_ms2) == (10, 10.0, 0.0)
    assert cell.tokens_per_step == 3.0
    assert cell.measured


@pytest.mark.parametrize("what", ["disturbed", "switched", "grown", "missed"])
def test_a_window_with_anything_else_in_it_is_left_out(what: str) -> None:
    times = StepTimes()
    now = _steps(times, 3)
    if what == "disturbed":
        times.disturb()
        _steps(times, 1, start=now + 50 * MS)
    elif what == "switched":
        _steps(times, 1, start=now + 50 * MS, tier="s1k1d2")
    elif what == "grown":
        _steps(times, 1, start=now + 50 * MS, batch=9)
    else:
        now = _steps(times, 1, start=now + 50 * MS, graph=False)
        _steps(times, 1, start=now + 50 * MS)
    (cell,) = times.table()
    assert (cell.samples, cell.mean_ms) == (2, 10.0)


def test_a_hiccup_of_the_host_is_left_out_once_the_mean_is_known() -> None:
    times = StepTimes()
    now = _steps(times, 20)
    now = _steps(times, 1, start=now, ms=500.0)
    _steps(times, 5, start=now)
    (cell,) = times.table()
    assert (cell.samples, cell.mean_ms) == (24, 10.0)


def test_contexts_are_kept_apart() -> None:
    times = StepTimes()
    for place, context in enumerate((100.0, 100.0, 2000.0, 9000.0, 99000.0)):
        times.result("off", 1, 1, context, place * MS, graph=True)
    assert {cell.band for cell in times.table()} == set(ContextBand)


@given(st.lists(st.floats(0.5, 3.0), min_size=2, max_size=60), st.integers(0, 2**16))
def test_mean_and_variance_are_those_of_the_samples(gaps: list[float], seed: int) -> None:
    times, now, rng = StepTimes(), 0, random.Random(seed)
    tokens = [rng.randint(4, 16) for _ in range(len(gaps) + 1)]
    times.result("s3k1d4", 4, tokens[0], 100.0, now, graph=True)
    taken = []
    for gap, emitted in zip(gaps, tokens[1:], strict=True):
        now += int(gap * MS)
        taken.append(int(gap * MS) / MS)
        times.result("s3k1d4", 4, emitted, 100.0, now, graph=True)
    (cell,) = times.table()
    assert cell.samples == len(gaps)
    assert cell.mean_ms == pytest.approx(statistics.fmean(taken), abs=1e-5)
    assert cell.var_ms2 == pytest.approx(statistics.variance(taken), abs=1e-5)
    assert cell.tokens_per_step == pytest.approx(statistics.fmean(tokens[1:]), abs=1e-5)
