"""What an operator must be able to rely on, on the embedded engine in virtual time."""

from __future__ import annotations

from typing import Any

from controlplane.first_policy import default_policy
from engine_patch.tier import OFF, Boundary
from store.policies import GoodputPolicy, HysteresisPolicy
from store.records import Outcome, Reason
from tests.controlplane_virtual import Bench

DEEP = "s3k1d4"
# On the fa3 table off overtakes s3k1d4 at about 100 running requests.
TRUE, WRONG = Boundary(up_at=112, down_at=80), Boundary(up_at=12, down_at=6)


def two(boundary: Boundary = TRUE, **changes: Any) -> HysteresisPolicy:
    return HysteresisPolicy(tiers=(DEEP, OFF), boundaries=(boundary,), **changes)


def test_a_load_that_alternates_around_a_threshold_for_ten_minutes_switches_at_most_twice() -> None:
    bench = Bench(policy=two(Boundary(up_at=12, down_at=10)))
    bench.run(10, 4)
    for turn in range(600):
        bench.run(0.5, 14 if turn % 2 else 8)
        bench.run(0.5, 8 if turn % 2 else 14)
    assert len(bench.switched) <= 2


def test_poor_acceptance_for_half_an_hour_speculates_at_most_a_twentieth_of_it() -> None:
    policy = two(min_accept_length={DEEP: 1.6})
    bench = Bench(policy=policy, tiers=(OFF, DEEP), accept_length=1.3)
    bench.run(1800, 4)
    assert bench.share_of(DEEP) <= 0.05
    assert bench.switched[0] == (DEEP, OFF)
    probes = [one for one in bench.decisions.values() if one.reason is Reason.PROBE]
    assert len(probes) >= 3


def test_a_collapse_of_two_minutes_is_over_without_a_restart() -> None:
    policy = two(min_accept_length={DEEP: 1.6})
    bench = Bench(policy=policy, tiers=(OFF, DEEP), accept_length=2.5)
    bench.run(60, 4)
    assert bench.ticks[-1].confirmed == DEEP
    bench.engine.set_accept_length(1.1)
    bench.run(120, 4)
    assert bench.ticks[-1].confirmed == OFF
    bench.engine.set_accept_length(2.5)
    bench.run(200, 4)
    assert bench.ticks[-1].confirmed == DEEP
    assert bench.boots == 1


def test_an_engine_that_says_yes_and_does_nothing_is_told_and_asked_ever_more_rarely() -> None:
    bench = Bench(policy=two(WRONG))
    bench.run(10, 1)
    bench.faults.lie = True
    bench.run(120, 16)
    last = bench.ticks[-1]
    assert [one.code for one in last.alarms] == ["not_applied"]
    assert last.desired == OFF
    assert last.confirmed == DEEP
    lost = [one for one in bench.decisions.values() if one.outcome is Outcome.TIMED_OUT]
    assert 2 <= len(lost) <= 8
    assert all(one.attempts == 3 for one in lost)
    bench.faults.lie = False
    bench.run(130, 16)
    assert not any(one.code == "not_applied" for one in bench.ticks[-1].alarms)


def test_one_rank_that_refuses_is_never_confirmed_and_stops_automation() -> None:
    bench = Bench(policy=two(WRONG))
    bench.run(10, 1)
    bench.faults.rank_refuses = 1
    bench.run(20, 16)
    assert bench.switched == []
    assert bench.ticks[-1].confirmed is None
    assert "ranks_disagree" in [one.code for one in bench.ticks[-1].alarms]
    before = len(bench.decisions)
    bench.run(20, 1)
    assert len(bench.decisions) == before


def test_a_minute_without_answers_under_load_brings_no_switch_and_no_burst() -> None:
    bench = Bench(policy=two(WRONG))
    bench.run(10, 16)
    bench.run(5, 16)
    assert bench.ticks[-1].confirmed == OFF
    before = len(bench.decisions)
    bench.unreachable = True
    bench.run(60, 16)
    assert "engine_unreachable" in [one.code for one in bench.ticks[-1].alarms]
    assert len(bench.decisions) == before
    bench.unreachable = False
    bench.run(3.5, 16)
    # Its lease ended meanwhile, so the engine left the tier; one order brings it back.
    made = [one for _, one in sorted(bench.decisions.items())][before:]
    assert len(made) <= 1
    bench.run(10, 16)
    assert bench.ticks[-1].confirmed == OFF
    assert len(bench.decisions) <= before + 1


def test_full_kv_slots_with_retractions_send_speculation_off_at_the_next_poll() -> None:
    bench = Bench(policy=two(), kv_slots=20_000)
    bench.run(10, 4)
    assert bench.ticks[-1].confirmed == DEEP
    bench.engine.hold(18_800)
    bench.run(1.0, 4)
    assert bench.ticks[-1].confirmed == OFF


def test_a_threshold_in_the_wrong_place_is_found_out_and_told() -> None:
    bench = Bench(policy=two(WRONG), tiers=(OFF, DEEP), accept_length=2.5)
    bench.run(10, 8)
    bench.run(120, 16)
    assert bench.ticks[-1].confirmed == DEEP
    assert bench.switched == [(DEEP, OFF), (OFF, DEEP)]
    assert bench.decisions[max(bench.decisions)].reason is Reason.REVERT
    assert [one.code for one in bench.ticks[-1].alarms] == ["switch_reverted"]
    bench.run(900, 16)
    # Twice as long each time: at 10, 320 and 930 s.
    assert len(bench.switched) == 6
    assert bench.share_of(OFF) < 0.06


def test_thresholds_in_the_right_place_are_never_taken_back() -> None:
    bench = Bench(tiers=(OFF, DEEP))
    for _ in range(5):
        bench.run(40, 4)
        bench.run(60, 200)
    assert bench.switched == [(DEEP, OFF), (OFF, DEEP)] * 4 + [(DEEP, OFF)]
    assert not any(tick.alarms for tick in bench.ticks)
    assert {one.reason for one in bench.decisions.values()} == {Reason.LOAD_UP, Reason.LOAD_DOWN}


def test_goodput_ends_in_the_faster_tier_at_each_load_and_is_never_taken_back() -> None:
    bench = Bench(policy=GoodputPolicy(tiers=(DEEP, OFF)), tiers=(OFF, DEEP))
    for clients, best in ((4, DEEP), (200, OFF), (4, DEEP)):
        bench.run(60, clients)
        assert bench.ticks[-1].confirmed == best
    assert bench.switched == [(DEEP, OFF), (OFF, DEEP)]
    assert not any(tick.alarms for tick in bench.ticks)


def test_hysteresis_and_goodput_agree_where_both_are_measured() -> None:
    for clients in (2, 32, 180):
        ends = set()
        for policy in (None, GoodputPolicy(tiers=(DEEP, OFF))):
            bench = Bench(policy=policy, tiers=(OFF, DEEP))
            assert policy is None or policy != default_policy(bench.config.facts)
            bench.run(30, clients)
            ends.add(bench.ticks[-1].confirmed)
        assert len(ends) == 1, clients
