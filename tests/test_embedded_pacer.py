"""Virtual time on wall time, and the lag it measures."""

from __future__ import annotations

import asyncio
import time

from engine_patch.embedded.core import Engine, EngineConfig
from engine_patch.embedded.pacer import EARLY_MS, LAG_LIMIT, Lag, Pacer
from engine_patch.embedded.requests import Request
from engine_patch.embedded.table import load


def test_a_run_below_a_second_is_not_judged() -> None:
    lag = Lag()
    lag.answered(late_ms=400, lasted_ms=900, now_ms=950)
    assert lag.judge(950) == (0.0, True)


def test_answers_on_time_leave_a_run_valid() -> None:
    lag = Lag()
    for second in range(60):
        lag.answered(late_ms=-0.5, lasted_ms=1500, now_ms=second * 1000.0)
    assert lag.judge(60_000) == (0.0, True)


def test_the_lag_is_the_late_share_of_request_time() -> None:
    lag = Lag()
    lag.answered(late_ms=15, lasted_ms=1500, now_ms=2000)
    assert lag.judge(2000) == (0.01, True)


def test_a_lag_above_two_percent_makes_the_run_invalid_for_good() -> None:
    lag = Lag()
    lag.answered(late_ms=(LAG_LIMIT + 0.001) * 2000, lasted_ms=2000, now_ms=3000)
    assert lag.broken
    for second in range(4, 400):
        lag.answered(late_ms=0, lasted_ms=2000, now_ms=second * 1000.0)
    value, valid = lag.judge(400_000)
    assert value < LAG_LIMIT
    assert not valid


def test_a_bad_ten_seconds_break_a_long_good_run() -> None:
    lag = Lag()
    for second in range(1000):
        lag.answered(late_ms=0, lasted_ms=2000, now_ms=second * 1000.0)
    assert lag.judge(1_000_000) == (0.0, True)
    lag.answered(late_ms=500, lasted_ms=2000, now_ms=1_000_500)
    value, valid = lag.judge(1_000_500)
    assert value > LAG_LIMIT
    assert not valid


def test_what_is_overdue_right_now_counts() -> None:
    lag = Lag()
    lag.answered(late_ms=0, lasted_ms=2000, now_ms=2000)
    _, valid = lag.judge(4000, overdue_ms=1000)
    assert not valid


async def test_events_are_handled_when_they_are_due() -> None:
    start = time.monotonic()

    def clock_ms() -> float:
        return (time.monotonic() - start) * 1000

    handled: list[tuple[Request, float]] = []
    ended = asyncio.Event()

    def left(request: Request) -> None:
        handled.append((request, clock_ms()))
        if len(handled) == 4:
            ended.set()

    engine = Engine(EngineConfig(table=load("fa3")))
    pacer = Pacer([engine], clock_ms, left, lambda _request: None)
    for place in range(4):
        engine.submit(Request(16, 20 + 10 * place, arrival_ms=clock_ms()))
    pacer.submitted()
    await asyncio.wait_for(ended.wait(), 5)
    assert pacer.overdue_ms() == 0.0
    for request, at_ms in handled:
        assert request.finish_ms is not None
        assert at_ms >= request.finish_ms - EARLY_MS - 0.01
    pacer.close()


async def test_a_late_loop_catches_up_without_shifting_simulated_times() -> None:
    def finish_times(stall_s: float) -> list[float]:
        now = 0.0
        engine = Engine(EngineConfig(table=load("fa3")), seed=9)
        done: list[float] = []
        pacer = Pacer(
            [engine], lambda: now, lambda r: done.append(r.finish_ms or 0), lambda _: None
        )
        for _ in range(4):
            engine.submit(Request(16, 64, arrival_ms=0.0))
        while len(done) < 4:
            now += stall_s * 1000
            pacer.catch_up()
        pacer.close()
        return done

    assert finish_times(0.001) == finish_times(5.0)
