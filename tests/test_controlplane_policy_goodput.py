"""The goodput policy: most tokens per second by table and accept length, with hysteresis."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_patch.costs import ContextBand, StepCost
from engine_patch.tier import OFF
from store.observations import KvNumbers
from store.policies import GoodputPolicy
from store.records import Reason
from tests.controlplane_script import Script, config, facts

DEEP, SHALLOW = "s3k1d4", "s1k1d2"
STEPS = {
    DEEP: {1: 20.0, 16: 22.0, 64: 40.0, 128: 80.0},
    SHALLOW: {1: 14.0, 16: 15.0, 64: 22.0, 128: 40.0},
    OFF: {1: 10.0, 16: 10.5, 64: 12.0, 128: 16.0},
}
ACCEPT = {DEEP: 2.6, SHALLOW: 1.7, OFF: 1.0}
COSTS = tuple(
    StepCost(tier=tier, bucket=at, samples=100, mean_ms=ms, tokens_per_step=at * ACCEPT[tier])
    for tier, row in STEPS.items()
    for at, ms in row.items()
)


def goodput(**changes: Any) -> GoodputPolicy:
    values: dict[str, Any] = {"tiers": (DEEP, SHALLOW, OFF), "start_grace_s": 0.0}
    return GoodputPolicy(**(values | changes))


def script(
    policy: GoodputPolicy | None = None, costs: tuple[StepCost, ...] = COSTS, *, launch: str = DEEP
) -> Script:
    made = config(policy or goodput(), engine=facts(DEEP, SHALLOW, OFF), rules=2)
    return Script(made.model_copy(update={"costs": costs}), launch=launch)


def run(bench: Script, seconds: float, load: int, accept: float | None = None) -> None:
    for _ in range(round(seconds * 2)):
        seen: dict[str, Any] = {}
        if accept is not None and bench.tier == DEEP:
            seen = {"accept_length": accept, "accept_tier": DEEP, "accept_requests": 100}
        bench.see(load, **seen)


@pytest.mark.parametrize(("load", "best"), [(1, DEEP), (16, SHALLOW), (64, OFF), (128, OFF)])
def test_the_tier_with_most_tokens_per_second_runs(load: int, best: str) -> None:
    rates = {tier: load * ACCEPT[tier] / STEPS[tier][load] for tier in STEPS}
    best_by_hand = max(rates, key=lambda tier: rates[tier])
    start = OFF if best_by_hand != OFF else DEEP
    bench = script(goodput(gain=0.01, switch_cost_s=0.0), launch=start)
    run(bench, 10, load)
    assert bench.tier == best_by_hand
    if load in (1, 64, 128):
        assert bench.tier == best
    assert bench.decisions[max(bench.decisions)].reason is Reason.GOODPUT


def test_a_lead_below_the_gain_changes_nothing() -> None:
    bench = script(goodput(gain=0.9), launch=OFF)
    run(bench, 60, 1)
    assert bench.switched == []
    assert bench.ticks[-1].verdict.reason is Reason.GOODPUT


def test_the_lead_must_hold() -> None:
    bench = script(goodput(hold_s=5.0), launch=DEEP)
    run(bench, 10, 1)
    for _ in range(60):
        bench.see(64)
        bench.see(1)
    assert bench.switched == []
    run(bench, 4, 64)
    assert bench.switched == []
    run(bench, 4, 64)
    assert bench.tier == OFF


def test_a_change_must_earn_its_cost() -> None:
    cheap = goodput(gain=0.01, switch_cost_s=0.0, horizon_s=10.0)
    dear = goodput(gain=0.01, switch_cost_s=5.0, horizon_s=10.0)
    for policy, expected in ((cheap, DEEP), (dear, OFF)):
        bench = script(policy, launch=OFF)
        run(bench, 20, 1)
        assert bench.tier == expected


def test_a_measured_accept_length_outweighs_the_tables() -> None:
    bench = script()
    run(bench, 30, 1, accept=1.1)
    assert bench.tier != DEEP


def test_a_tier_that_lost_by_its_accept_length_is_tried_again_ever_more_rarely() -> None:
    policy = goodput(probe_after_s=30.0, probe_max_s=240.0, hold_s=1.0)
    bench = script(policy)
    run(bench, 1800, 1, accept=1.1)
    trials = [
        one.at_utc_ms
        for _, one in sorted(bench.decisions.items())
        if one.to_tier == DEEP and one.reason is Reason.PROBE
    ]
    gaps = [(b - a) / 1000 for a, b in itertools.pairwise(trials)]
    assert len(gaps) >= 4
    assert gaps[0] < gaps[1] < gaps[2]
    assert max(gaps) < 300
    run(bench, 300, 1, accept=2.6)
    assert bench.tier == DEEP


def test_a_tier_above_the_limit_on_time_per_token_is_left_without_the_gain() -> None:
    # At 64 requests s1k1d2 takes 22 / 1.7 = 12.9 ms per token, off 12.0 ms: 8 % more tok/s.
    for limit, expected in ((None, SHALLOW), (12.5, OFF), (11.0, OFF), (20.0, SHALLOW)):
        bench = script(goodput(gain=0.2, tpot_ms=limit), launch=SHALLOW)
        run(bench, 20, 64)
        assert bench.tier == expected, limit


def test_without_a_table_it_says_what_it_needs() -> None:
    bench = script(costs=())
    run(bench, 5, 1)
    assert bench.commands == []
    assert bench.ticks[-1].verdict.reason is Reason.NOT_READY
    assert "run specdeck bench" in bench.ticks[-1].verdict.text


def test_a_tier_the_table_does_not_know_is_left_out_and_told() -> None:
    bench = script(costs=tuple(one for one in COSTS if one.tier != SHALLOW))
    run(bench, 5, 1)
    assert any("leaves out s1k1d2" in text for text in bench.ticks[-1].warnings)


def test_kv_pressure_goes_off_at_once_and_returns() -> None:
    bench = script()
    run(bench, 10, 1)
    full = KvNumbers(capacity=100_000, committed=95_000, evictable=0, reserve=8)
    bench.see(1, kv=full)
    assert bench.tier == OFF
    assert bench.decisions[max(bench.decisions)].reason is Reason.KV_PRESSURE
    run(bench, 60, 1)
    assert bench.tier == DEEP


def test_the_verdict_tells_the_expected_rates_and_what_others_need() -> None:
    bench = script()
    run(bench, 10, 1)
    verdict = bench.ticks[-1].verdict
    assert "s3k1d4 130" in verdict.text
    assert {one.tier for one in verdict.outlook} == {SHALLOW, OFF}
    assert all(one.clauses[0].unit == "tok/s" for one in verdict.outlook)


def test_the_longest_context_band_that_was_measured_counts() -> None:
    slow = StepCost(tier=DEEP, bucket=1, band=ContextBand.UP_TO_16K, samples=9, mean_ms=200.0)
    bench = script(costs=(*COSTS, slow))
    long = KvNumbers(capacity=100_000, committed=10_000, evictable=0, reserve=8)
    for _ in range(20):
        bench.see(1, kv=long)
    assert bench.tier != DEEP


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 200), min_size=20, max_size=120))
def test_any_load_twice_gives_the_same_decisions_within_the_budget(loads: list[int]) -> None:
    policy = goodput(switches_per_hour=4, hold_s=0.0, min_dwell_s=0.0, cooldown_s=0.0)
    one, other = script(policy), script(policy)
    for load in loads:
        one.see(load)
        other.see(load)
    assert one.commands == other.commands
    assert len(one.switched) <= 4
