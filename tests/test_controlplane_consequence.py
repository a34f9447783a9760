"""What a change of tier brought is measured, and a change for the worse is taken back once."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from controlplane.consequence import forgotten, judged, measured, settled
from controlplane.hold_off import Judgement
from controlplane.meter import Meter
from controlplane.watch import HOUR_MS, Seen, Trial, Watch
from engine_patch.contract_words import OffFlavour
from engine_patch.tier import OFF
from store.policies import HysteresisPolicy, Stance
from store.records import Outcome, Reason
from tests.controlplane_script import Script, config, two_tiers

FAST, SLOW = 2000, 1000
"""Decode tokens per second."""


class Measured(Script):
    """A script whose decode counter moves as fast as the running tier is said to be."""

    speeds: dict[str, float]

    def see(self, load: int = 1, *, after_ms: int | None = None, **changes: Any) -> Any:
        wait = self.every_ms if after_ms is None else after_ms
        self.decode_tokens += round(self.speeds.get(self.tier, FAST) * wait / 1000) - load * 50
        return super().see(load, after_ms=after_ms, **changes)

    def run(self, seconds: float, load: int, **changes: Any) -> None:
        for _ in range(round(seconds * 1000 / self.every_ms)):
            self.see(load, **changes)


def script(policy: HysteresisPolicy | None = None, **speeds: float) -> Measured:
    made = Measured(config(policy or two_tiers(), rules=2))
    made.speeds = {"s3k1d4": FAST, OFF: SLOW} | speeds
    return made


def test_a_change_that_halves_the_speed_is_taken_back_once_and_told() -> None:
    bench = script()
    bench.run(10, 20)
    bench.run(20, 24)
    assert bench.switched == [("s3k1d4", OFF), (OFF, "s3k1d4")]
    back = bench.decisions[max(bench.decisions)]
    assert back.reason is Reason.REVERT
    assert "tok/s after the change 1000 < 1800" in back.text
    alarm = next(one for one in bench.ticks[-1].alarms if one.code == "switch_reverted")
    assert "1000 tok/s, not the 2000 expected" in alarm.text
    assert bench.ticks[-1].verdict.reason is Reason.HELD_OFF
    bench.run(200, 24)
    assert len(bench.switched) == 2


def test_a_change_for_the_better_stays() -> None:
    bench = script(off=FAST * 1.2)
    bench.run(10, 20)
    bench.run(60, 24)
    assert bench.switched == [("s3k1d4", OFF)]
    assert not bench.ticks[-1].alarms


@pytest.mark.parametrize("share", [0.95, 1.0, 1.1])
def test_a_difference_within_the_margin_is_noise(share: float) -> None:
    bench = script(off=FAST * share)
    bench.run(10, 20)
    bench.run(60, 24)
    assert bench.switched == [("s3k1d4", OFF)]


def test_rules_of_an_older_version_take_nothing_back() -> None:
    bench = script()
    bench.use(config())
    bench.run(10, 20)
    bench.run(60, 24)
    assert bench.switched == [("s3k1d4", OFF)]
    assert bench.state.policy.watch is None


def test_the_tier_is_tried_again_at_growing_intervals_and_never_given_up() -> None:
    bench = script(two_tiers(hold_off_s=60.0, hold_off_max_s=240.0))
    bench.run(10, 20)
    bench.run(1200, 24)
    tries = [one.at_utc_ms for _, one in sorted(bench.decisions.items()) if one.to_tier == OFF]
    gaps = [round((b - a) / 1000) for a, b in itertools.pairwise(tries)]
    assert len(gaps) >= 4
    assert gaps[0] == pytest.approx(70, abs=5)
    assert gaps[1] == pytest.approx(130, abs=5)
    assert all(gap == pytest.approx(250, abs=5) for gap in gaps[2:])


def test_a_trial_that_turns_out_well_ends_the_hold_off() -> None:
    bench = script(two_tiers(hold_off_s=60.0))
    bench.run(10, 20)
    bench.run(30, 24)
    bench.speeds[OFF] = FAST * 1.5
    bench.run(120, 24)
    assert bench.tier == OFF
    assert not bench.ticks[-1].alarms
    assert bench.state.policy.watch is not None
    assert bench.state.policy.watch.held_off == ()


def test_a_much_busier_engine_does_not_wait_for_the_hold_off() -> None:
    bench = script()
    bench.run(10, 20)
    bench.run(30, 24)
    assert bench.tier == "s3k1d4"
    bench.speeds |= {"s3k1d4": SLOW, OFF: FAST}
    bench.run(10, 200)
    assert bench.tier == OFF
    assert bench.switched[-1] == ("s3k1d4", OFF)


def test_one_busy_sample_does_not_suspend_the_hold_off() -> None:
    bench = script()
    bench.run(10, 20)
    bench.run(30, 24)
    bench.see(200)
    bench.run(10, 24)
    assert bench.tier == "s3k1d4"


def test_a_kv_guard_is_stronger_than_a_hold_off_and_is_not_judged() -> None:
    bench = script()
    bench.run(10, 20)
    bench.run(30, 24)
    assert bench.tier == "s3k1d4"
    bench.see(24, retractions=1)
    bench.see(24, retractions=1)
    assert bench.tier == OFF
    bench.run(25, 24, retractions=1)
    assert bench.tier == OFF


def test_recovery_after_cold_is_left_out_of_the_judgement() -> None:
    bench = script(two_tiers(cold_recovery_s=30.0))
    bench.launch = bench.tier = OFF
    bench.speeds |= {OFF: FAST, "s3k1d4": SLOW}
    cold = {"off_flavour": OffFlavour.COLD}
    bench.run(10, 20, **cold)
    bench.run(8, 8, **cold)
    assert bench.tier == "s3k1d4"
    bench.run(25, 8, **cold)
    assert bench.tier == "s3k1d4"
    bench.speeds["s3k1d4"] = FAST
    bench.run(60, 8, **cold)
    assert bench.switched == [(OFF, "s3k1d4")]


def test_without_cold_the_same_slow_start_is_taken_back() -> None:
    bench = script()
    bench.launch = bench.tier = OFF
    bench.speeds |= {OFF: FAST, "s3k1d4": SLOW}
    bench.run(10, 20)
    bench.run(25, 8)
    assert bench.switched == [(OFF, "s3k1d4"), ("s3k1d4", OFF)]


def test_graph_misses_and_holes_are_no_evidence() -> None:
    bench = script()
    bench.run(10, 20)
    for miss in range(60):
        bench.see(24, graph_misses=miss)
    assert bench.switched == [("s3k1d4", OFF)]
    bench = script()
    bench.run(10, 20)
    bench.run(4, 24)
    for _ in range(30):
        bench.see(24, after_ms=3_000)
    assert bench.switched == [("s3k1d4", OFF)]


def test_more_prefill_than_before_is_no_comparison() -> None:
    bench = script()
    prompt = 0
    bench.run(10, 20, prefill_tokens=0)
    for _ in range(80):
        prompt += 5_000
        bench.see(24, prefill_tokens=prompt)
    assert bench.switched == [("s3k1d4", OFF)]


def test_a_shadow_judges_nothing() -> None:
    bench = script()
    bench.use(config(rules=2, stance=Stance.SHADOW))
    bench.run(10, 20)
    bench.run(60, 24)
    outcomes = {one.outcome for one in bench.decisions.values()}
    assert outcomes == {Outcome.SHADOW}
    assert len(bench.decisions) == 1


def test_a_difference_below_the_noise_is_measured_on() -> None:
    calm = Meter(16, 6_000, 12_000, 0, 96_000, 12, 24_000, 48_000_000)
    wild = replace(calm, squares=12 * 2000.0**2 * 2)
    trial = Trial("a", "b", busier=True, changed_ms=0, settle_ms=0, before=(calm,), ran_ms=0)
    slower = Meter(16, 6_000, 10_000, 0, 96_000, 12, 20_000, 12 * (20_000 / 12) ** 2)
    _, found = judged(Watch("b", meters=(slower,), trial=trial), 7_000, 6_000, 0.1, None)
    assert found is not None
    assert found.worse
    noisy = replace(trial, before=(wild,))
    watch, found = judged(Watch("b", meters=(slower,), trial=noisy), 7_000, 6_000, 0.1, None)
    assert found is None
    assert watch.trial is noisy


def test_a_change_nobody_could_judge_in_three_minutes_is_let_be() -> None:
    trial = Trial("a", "b", busier=True, changed_ms=0, settle_ms=0, before=(), ran_ms=0)
    watch, found = judged(Watch("b", trial=trial), 200_000, 6_000, 0.1, None)
    assert found is None
    assert watch.trial is None


def test_a_counter_that_went_back_is_no_speed() -> None:
    seen = Seen(500, 500, "a", 4, 4, 1_000, None, None, clean=True)
    watch, _ = measured(Watch(), seen)
    watch, decoded = measured(watch, replace(seen, now_ms=1_000, tokens=10))
    assert decoded == 0


def test_an_old_hold_off_and_old_changes_are_forgotten() -> None:
    found = Judgement("a", "b", 16, 1.0, 2.0, 0.1)
    watch = settled(Watch(changes=(0,)), found, True, 0, 60_000, 60_000)
    assert forgotten(watch, 16, 100_000) is watch
    gone = forgotten(watch, 16, 130_000)
    assert gone.held_off == ()
    assert forgotten(gone, 16, HOUR_MS).changes == ()


def test_the_budget_keeps_its_last_change_for_going_busier() -> None:
    policy = two_tiers(
        switches_per_hour=4, cooldown_s=0.0, min_dwell_s=0.0, up_hold_s=0.0, down_hold_s=0.0
    )
    bench = script(policy, off=FAST)
    for _ in range(30):
        bench.run(10, 30)
        bench.run(10, 4)
    assert len(bench.switched) == 3
    assert bench.tier == OFF
    assert bench.ticks[-1].verdict.reason is Reason.BUDGET
    assert "switch budget of the hour is used" in bench.ticks[-1].verdict.text
    bench.run(3600, 4)
    assert bench.tier == "s3k1d4"


def test_a_change_back_waits_for_the_cooldown() -> None:
    policy = two_tiers(cooldown_s=30.0, min_dwell_s=0.0, up_hold_s=0.0, down_hold_s=0.0)
    bench = script(policy, off=FAST)
    bench.run(5, 4)
    bench.see(30)
    bench.run(10, 4)
    assert bench.tier == OFF
    assert bench.ticks[-1].verdict.reason is Reason.COOLDOWN
    bench.run(21, 4)
    assert bench.tier == "s3k1d4"


def test_the_probe_budget_delays_trials_and_never_ends_them() -> None:
    def trials(tokens: int) -> int:
        policy = two_tiers(
            min_accept_length={"s3k1d4": 2.0},
            accept_hold_s=5.0,
            probe_after_s=10.0,
            probe_max_s=10.0,
            probe_tokens_per_hour=tokens,
            switches_per_hour=3600,
        )
        bench = script(policy, off=FAST)
        for _ in range(7200):
            accept: dict[str, Any] = {}
            if bench.tier != OFF:
                accept = {
                    "accept_length": 1.1,
                    "accept_tier": "s3k1d4",
                    "accept_requests": 100,
                }
            bench.see(4, **accept)
        return sum(one.reason is Reason.PROBE for one in bench.decisions.values())

    few, many = trials(20_000), trials(10**9)
    assert 2 <= few <= 6
    assert many > 20 * few


def test_explanations_change_nothing() -> None:
    told, terse = script(), script()
    terse.explain = False
    for bench in (told, terse):
        bench.run(10, 20)
        bench.run(20, 24)
    assert told.commands == terse.commands
    assert replace(told.state.policy, text="", clauses=()) == replace(
        terse.state.policy, text="", clauses=()
    )
