"""The hysteresis policy on plain values: load, accept length, guards, flapping."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.policy import PolicyState, View, carried_over, decide, explain, make_plan
from controlplane.policy_state import NEVER, Choice, Gate
from engine_patch.contract_words import OffKind
from engine_patch.tier import OFF, Boundary
from store.policies import FixedPolicy, HysteresisPolicy
from store.records import Reason
from tests.controlplane_script import facts, tier_info, two_tiers

THREE = HysteresisPolicy(
    tiers=("s3k1d4", "s1k1d2", OFF),
    boundaries=(Boundary(up_at=8, down_at=6), Boundary(up_at=64, down_at=48)),
)


class Walk:
    """A policy walked along a path of views; its choices are confirmed at the next view."""

    def __init__(self, policy: HysteresisPolicy, *tiers: str, every_ms: int = 500) -> None:
        self.plan = make_plan(policy, facts(*(tiers or policy.tiers)))
        self.state = PolicyState()
        self.every_ms = every_ms
        self.now_ms = 0
        self.settled_ms = NEVER
        self.confirmed = self.plan.tiers[0]
        self.changes: list[tuple[int, str, Reason]] = []
        self.choice: Choice
        self.view: View

    def go(self, load: int = 1, *, after_ms: int | None = None, **changes: Any) -> Choice:
        passed = self.every_ms if after_ms is None else after_ms
        self.now_ms += passed
        want = self.plan.tiers[self.state.want] if self.state.want >= 0 else self.confirmed
        if want != self.confirmed:
            self.confirmed, self.settled_ms = want, self.now_ms
        values: dict[str, Any] = {
            "now_ms": self.now_ms,
            "since_ms": passed,
            "hole": False,
            "load": load,
            "total": load,
            "kv_used": 0.3,
            "kv_committed": 30_000,
            "kv_capacity": 100_000,
            "retracted": 0,
            "accept": None,
            "accept_tier": None,
            "confirmed": self.confirmed,
            "settled_ms": self.settled_ms,
            "acting": True,
            "pending": False,
            "adopt": True,
            "grace_left_ms": 0,
        }
        self.view = View(**(values | changes))
        self.state, self.choice = decide(self.plan, self.state, self.view)
        if self.choice.changed:
            self.changes.append((self.now_ms, self.tier, self.choice.reason))
        return self.choice

    def accept(self, length: float, load: int = 4, **changes: Any) -> Choice:
        """A view with a clean accept length of the tier that runs now."""
        tier = self.plan.tiers[self.state.want]
        return self.go(load, accept=length, accept_tier=tier, **changes)

    def until(self, ms: int, load: int = 1, **changes: Any) -> None:
        end = self.now_ms + ms
        while self.now_ms < end:
            self.go(load, **changes)

    @property
    def tier(self) -> str:
        return self.plan.tiers[self.state.want]


def test_it_starts_at_the_tier_the_engine_runs() -> None:
    walk = Walk(two_tiers())
    walk.confirmed = OFF
    assert walk.go(1).changed is False
    assert walk.tier == OFF


def test_it_starts_by_load_when_the_engine_runs_none_of_its_tiers() -> None:
    walk = Walk(THREE)
    walk.confirmed = "s5k1d6"
    walk.go(20)
    assert walk.tier == "s1k1d2"


def test_a_load_at_the_threshold_goes_busier_after_its_hold_and_not_before() -> None:
    walk = Walk(two_tiers(up_hold_s=2.0))
    walk.go(1)
    for _ in range(4):
        assert walk.go(24).changed is False
    assert walk.go(24).changed is True
    assert walk.changes == [(3000, OFF, Reason.LOAD_UP)]


def test_a_load_just_below_the_threshold_never_goes_busier() -> None:
    walk = Walk(two_tiers())
    walk.until(600_000, load=23)
    assert walk.changes == []


def test_it_comes_back_at_down_at_and_not_just_above() -> None:
    walk = Walk(two_tiers(min_dwell_s=0))
    walk.until(5_000, load=30)
    assert walk.tier == OFF
    walk.until(60_000, load=17)
    assert walk.tier == OFF
    walk.until(4_500, load=16)
    assert walk.tier == "s3k1d4"


def test_the_hold_starts_anew_when_the_condition_breaks() -> None:
    walk = Walk(two_tiers(up_hold_s=2.0))
    walk.go(1)
    for _ in range(40):
        for _ in range(4):
            walk.go(30)
        walk.go(23)
    assert walk.changes == []


def test_a_higher_jump_while_a_threshold_is_held_does_not_restart_the_hold() -> None:
    walk = Walk(two_tiers(up_hold_s=2.0))
    walk.go(1)
    for load in (24, 60, 25, 200):
        walk.go(load)
    assert walk.go(24).changed is True


def test_a_jump_over_several_boundaries_goes_straight_to_the_right_tier() -> None:
    walk = Walk(THREE)
    walk.go(1)
    walk.until(3_000, load=200)
    assert [tier for _, tier, _ in walk.changes] == [OFF]
    walk.until(12_000, load=1)
    assert [tier for _, tier, _ in walk.changes] == [OFF, "s3k1d4"]


def test_a_jump_into_the_middle_ends_in_the_middle() -> None:
    walk = Walk(THREE)
    walk.until(3_000, load=200)
    walk.until(12_000, load=20)
    assert walk.tier == "s1k1d2"


def test_dwell_counts_from_the_confirmed_change() -> None:
    walk = Walk(two_tiers(up_hold_s=0.5, down_hold_s=0.5, min_dwell_s=5.0))
    walk.go(1)
    walk.until(1_500, load=30)
    assert walk.tier == OFF
    confirmed_at = None
    while walk.tier == OFF:
        walk.go(1)
        if walk.choice.gate is Gate.DWELL:
            confirmed_at = walk.settled_ms
    assert confirmed_at is not None
    assert walk.now_ms - confirmed_at == 5_000


def test_a_change_on_its_way_holds_the_policy_still() -> None:
    walk = Walk(two_tiers(up_hold_s=0, down_hold_s=0, min_dwell_s=0))
    walk.go(1)
    walk.go(30)
    assert walk.tier == OFF
    assert walk.go(1, pending=True).gate is Gate.PENDING
    assert walk.tier == OFF
    assert walk.go(1).changed is True


def test_nothing_is_switched_in_the_start_grace_not_even_by_a_guard() -> None:
    walk = Walk(two_tiers(up_hold_s=0))
    walk.go(1)
    assert walk.go(200, grace_left_ms=800).gate is Gate.GRACE
    assert walk.go(200, kv_used=0.99, grace_left_ms=300).changed is False
    assert walk.go(200, kv_used=0.99).changed is True


def test_a_hole_in_the_evidence_starts_every_hold_anew() -> None:
    walk = Walk(two_tiers(up_hold_s=2.0))
    walk.go(30)
    walk.go(30, after_ms=60_000, hole=True)
    assert walk.changes == []
    walk.until(1_500, load=30)
    assert walk.changes == []
    assert walk.go(30).changed is True


# -- no flapping ------------------------------------------------------------------------------


def test_a_load_that_alternates_around_up_at_every_sample_switches_at_most_once() -> None:
    walk = Walk(two_tiers(boundaries=(Boundary(up_at=57, down_at=48),), up_hold_s=0))
    for sample in range(1_200):
        walk.go(56 + sample % 2)
    assert len(walk.changes) <= 1


def test_a_load_peak_inside_the_dwell_is_forgotten_when_it_is_over() -> None:
    walk = Walk(two_tiers(min_dwell_s=60.0))
    walk.confirmed = OFF
    walk.go(1)
    walk.until(5_000, load=1)
    assert walk.tier == "s3k1d4"
    walk.until(10_000, load=30)
    assert walk.choice.gate is Gate.DWELL
    walk.until(120_000, load=20)
    assert walk.tier == "s3k1d4"


@given(
    loads=st.lists(st.integers(17, 23), min_size=10, max_size=200),
    start=st.sampled_from([1, 40]),
)
@settings(deadline=None)
def test_a_load_inside_the_band_never_switches(loads: list[int], start: int) -> None:
    walk = Walk(two_tiers())
    walk.until(20_000, load=start)
    before = len(walk.changes)
    for load in loads:
        walk.go(load)
    assert len(walk.changes) == before


@given(
    path=st.lists(st.tuples(st.integers(0, 90), st.integers(1, 30)), min_size=1, max_size=40),
    hold=st.sampled_from([0.0, 0.5, 2.0]),
    dwell=st.sampled_from([0.0, 1.5, 5.0]),
)
@settings(max_examples=150, deadline=None)
def test_two_switches_are_never_closer_than_the_dwell(
    path: list[tuple[int, int]], hold: float, dwell: float
) -> None:
    policy = THREE.model_copy(update={"up_hold_s": hold, "down_hold_s": hold, "min_dwell_s": dwell})
    walk = Walk(policy)
    for load, samples in path:
        for _ in range(samples):
            walk.go(load)
    # A change is confirmed at the view after it, so that two lie one view further apart.
    for (earlier, _, _), (later, _, _) in zip(walk.changes, walk.changes[1:], strict=False):
        assert later - earlier >= dwell * 1000 + walk.every_ms * (dwell > 0)


@given(
    crossings=st.lists(
        st.tuples(
            st.lists(st.integers(24, 90), min_size=30, max_size=40),
            st.lists(st.integers(0, 16), min_size=30, max_size=40),
        ),
        min_size=1,
        max_size=4,
    )
)
@settings(deadline=None)
def test_each_crossing_of_the_band_switches_once_per_direction(
    crossings: list[tuple[list[int], list[int]]],
) -> None:
    walk = Walk(two_tiers())
    walk.go(1)
    for busy, quiet in crossings:
        for load in (*busy, *quiet):
            walk.go(load)
    assert [tier for _, tier, _ in walk.changes] == [OFF, "s3k1d4"] * len(crossings)


# -- accept length ----------------------------------------------------------------------------

FLOOR = two_tiers(min_accept_length={"s3k1d4": 1.8}, accept_hold_s=10.0, probe_after_s=60.0)


def poor(walk: Walk, seconds: float, length: float = 1.2, load: int = 4) -> None:
    for _ in range(int(seconds * 1000 / walk.every_ms)):
        walk.accept(length, load)


def test_an_accept_length_below_its_floor_for_the_hold_goes_one_tier_busier() -> None:
    walk = Walk(FLOOR)
    walk.go(4)
    poor(walk, 10)
    assert walk.changes == []
    poor(walk, 0.5)
    assert [change[1:] for change in walk.changes] == [(OFF, Reason.ACCEPT_FLOOR)]


def test_an_accept_length_at_its_floor_is_good_enough() -> None:
    walk = Walk(FLOOR)
    walk.go(4)
    poor(walk, 60, length=1.8)
    assert walk.changes == []


def test_one_good_window_clears_what_was_held_against_the_tier() -> None:
    walk = Walk(FLOOR)
    walk.go(4)
    for _ in range(10):
        poor(walk, 9)
        walk.accept(2.5)
    assert walk.changes == []


def test_the_floors_hold_is_time_and_not_a_number_of_samples() -> None:
    walk = Walk(FLOOR, every_ms=2_000)
    walk.go(4)
    poor(walk, 10)
    assert walk.changes == []
    poor(walk, 2)
    assert walk.tier == OFF


def test_time_without_evidence_neither_counts_nor_clears() -> None:
    walk = Walk(FLOOR)
    walk.go(4)
    poor(walk, 9)
    walk.until(300_000, load=4)
    assert walk.changes == []
    poor(walk, 2)
    assert walk.tier == OFF


def test_a_window_of_another_tier_is_no_evidence() -> None:
    walk = Walk(FLOOR)
    walk.go(4)
    for _ in range(60):
        walk.go(4, accept=1.0, accept_tier="s1k1d2")
    assert walk.changes == []


def test_trials_come_at_doubling_intervals_and_never_stop() -> None:
    walk = Walk(FLOOR.model_copy(update={"probe_max_s": 400.0}))
    walk.go(4)
    retreats: list[int] = []
    trials: list[int] = []
    while walk.now_ms < 3_600_000:
        tier = walk.tier
        walk.accept(1.1) if tier != OFF else walk.go(4)
        if walk.choice.changed:
            (trials if walk.tier != OFF else retreats).append(walk.now_ms)
    gaps = [
        round((trial - retreat) / 1000) for trial, retreat in zip(trials, retreats, strict=False)
    ]
    assert gaps[:5] == [60, 120, 240, 400, 400]
    assert len(trials) >= 8


def test_poor_acceptance_for_half_an_hour_speculates_at_most_a_twentieth_of_it() -> None:
    walk = Walk(FLOOR)
    walk.go(4)
    speculating = 0
    while walk.now_ms < 1_800_000:
        on = walk.tier != OFF
        speculating += walk.every_ms * on
        walk.accept(1.3) if on else walk.go(4)
    assert speculating / 1_800_000 <= 0.05


def test_a_collapse_of_two_minutes_is_over_after_the_next_trial_that_passes() -> None:
    walk = Walk(FLOOR)
    walk.go(4)
    while walk.now_ms < 120_000:
        walk.accept(1.1) if walk.tier != OFF else walk.go(4)
    while walk.now_ms < 600_000:
        walk.accept(2.6) if walk.tier != OFF else walk.go(4)
    assert walk.tier == "s3k1d4"
    assert walk.state.probing is False
    settled = len(walk.changes)
    for _ in range(4_000):
        walk.accept(2.6)
    assert len(walk.changes) == settled


def test_a_retreat_soon_after_a_passed_trial_waits_longer_the_next_time() -> None:
    walk = Walk(FLOOR)
    walk.go(4)
    gaps = []
    for _ in range(3):
        while walk.tier != OFF:
            walk.accept(1.1)
        gaps.append(walk.state.probe_gap_ms)
        while walk.tier == OFF:
            walk.go(4)
        while walk.state.probing:
            walk.accept(2.6)
    assert gaps == [60_000, 120_000, 240_000]


def test_an_idle_engine_on_trial_is_not_judged() -> None:
    walk = Walk(FLOOR)
    walk.go(4)
    poor(walk, 11)
    walk.until(70_000, load=0)
    assert (walk.tier, walk.state.probing) == ("s3k1d4", True)
    walk.until(600_000, load=0)
    assert (walk.tier, walk.state.probing) == ("s3k1d4", True)


def test_a_trial_is_not_passed_by_running_another_tier() -> None:
    walk = Walk(FLOOR)
    walk.go(4)
    poor(walk, 11)
    walk.until(70_000, load=0)
    walk.until(20_000, load=60)
    assert (walk.tier, walk.state.probing) == (OFF, True)
    walk.until(20_000, load=4)
    poor(walk, 11)
    assert walk.state.probe_gap_ms == 120_000


def test_one_trial_goes_on_before_the_next_quieter_tier_is_tried() -> None:
    policy = THREE.model_copy(update={"min_accept_length": {"s3k1d4": 1.8, "s1k1d2": 1.4}})
    walk = Walk(policy)
    walk.go(4)
    poor(walk, 30)
    assert walk.tier == OFF
    while walk.tier == OFF:
        walk.go(4)
    walk.until(300_000, load=4)
    assert (walk.tier, walk.state.probing) == ("s1k1d2", True)


def test_busy_load_outranks_a_trial_that_is_due() -> None:
    walk = Walk(FLOOR)
    walk.go(4)
    poor(walk, 11)
    walk.until(600_000, load=60)
    assert walk.tier == OFF
    assert len(walk.changes) == 1


def test_the_busiest_tier_has_nowhere_to_retreat_to() -> None:
    floors = {"s3k1d4": 1.8, "s1k1d2": 1.4}
    policy = HysteresisPolicy(
        tiers=("s3k1d4", "s1k1d2"),
        boundaries=(Boundary(up_at=8, down_at=6),),
        min_accept_length=floors,
    )
    walk = Walk(policy)
    walk.go(4)
    for _ in range(400):
        walk.accept(1.1)
        if walk.state.want == 1:
            assert walk.tier == "s1k1d2"
    assert {tier for _, tier, _ in walk.changes} <= {"s1k1d2", "s3k1d4"}


# -- guards -----------------------------------------------------------------------------------


def test_kv_pressure_goes_off_at_once_without_hold_or_dwell() -> None:
    walk = Walk(two_tiers(min_dwell_s=60.0, up_hold_s=10.0))
    walk.go(4)
    walk.settled_ms = walk.now_ms
    assert walk.go(4, kv_used=0.92).changed is True
    assert walk.changes[-1][1:] == (OFF, Reason.KV_PRESSURE)


def test_a_guard_does_not_wait_for_a_change_on_its_way() -> None:
    walk = Walk(two_tiers())
    walk.go(4)
    assert walk.go(4, kv_used=0.95, pending=True).changed is True


def test_just_below_kv_high_nothing_happens() -> None:
    walk = Walk(two_tiers())
    walk.until(60_000, load=4, kv_used=0.919)
    assert walk.changes == []


def test_one_retraction_goes_off_at_once_and_holds() -> None:
    walk = Walk(two_tiers(retraction_hold_s=30.0))
    walk.go(4)
    walk.go(4, retracted=2)
    assert walk.changes == [(1_000, OFF, Reason.RETRACTION)]
    walk.until(29_000, load=4)
    assert walk.tier == OFF
    walk.until(2_000, load=4)
    assert walk.tier == "s3k1d4"


def test_a_guard_that_lets_go_returns_to_where_the_load_is_even_inside_the_band() -> None:
    walk = Walk(two_tiers())
    walk.go(20)
    walk.go(20, kv_used=0.95)
    walk.until(60_000, load=20, kv_used=0.85)
    assert walk.tier == OFF
    walk.until(60_000, load=20, kv_used=0.5)
    assert walk.tier == "s3k1d4"


def test_a_load_that_grew_busy_under_a_guard_stays_off_when_the_guard_lets_go() -> None:
    walk = Walk(two_tiers())
    walk.go(4)
    walk.go(4, kv_used=0.95)
    walk.until(60_000, load=40)
    assert (walk.tier, walk.state.guard) == (OFF, None)


def test_a_return_that_would_fill_the_slots_again_is_held_back() -> None:
    # 8 slots per request for s3k1d4: 1 000 requests take 8 % of the slots.
    policy = two_tiers(boundaries=(Boundary(up_at=2_000, down_at=1_500),))
    walk = Walk(policy)
    walk.go(1_000, kv_used=0.86, kv_committed=78_000)
    walk.go(1_000, kv_used=0.93, kv_committed=85_000)
    assert walk.tier == OFF
    for _ in range(2_000):
        walk.go(1_000, kv_used=0.80 - 0.001, kv_committed=79_900)
    assert len(walk.changes) == 1
    walk.until(60_000, load=1_000, kv_used=0.70, kv_committed=70_000)
    assert walk.tier == "s3k1d4"


def test_a_load_change_towards_a_larger_reserve_waits_for_room_too() -> None:
    walk = Walk(two_tiers(boundaries=(Boundary(up_at=2_000, down_at=1_500),)))
    walk.confirmed = OFF
    walk.go(1_800, kv_used=0.84, kv_committed=80_000)
    walk.until(60_000, load=1_000, kv_used=0.84, kv_committed=80_000)
    assert (walk.tier, walk.choice.gate) == (OFF, Gate.KV_ROOM)
    walk.until(10_000, load=500, kv_used=0.84, kv_committed=80_000)
    assert walk.tier == "s3k1d4"


def test_without_an_off_the_guard_goes_to_the_tier_that_gives_slots_back() -> None:
    policy = HysteresisPolicy(
        tiers=("s2k4d16", "s3k1d4", "s1k1d2"),
        boundaries=(Boundary(up_at=4, down_at=2), Boundary(up_at=64, down_at=48)),
    )
    walk = Walk(policy)
    walk.go(1)
    walk.go(1, kv_used=0.95)
    assert walk.changes[-1][1:] == ("s1k1d2", Reason.KV_PRESSURE)


def test_a_guard_that_can_give_nothing_back_says_so_and_changes_nothing() -> None:
    infos = (tier_info("s3k1d4"), tier_info(OFF, alloc_len=4))
    policy = two_tiers()
    worse = facts(*infos, backend="triton", off=OffKind.ONE_TOKEN_VERIFY)
    plan = make_plan(policy, worse)
    assert plan.tiers == ("s3k1d4",)
    walk = Walk(policy)
    walk.plan = plan
    walk.go(4)
    walk.go(4, kv_used=0.95)
    assert walk.choice.helpless is True
    assert walk.changes == []
    text = explain(walk.plan, walk.state, walk.view, walk.choice).text
    assert "no tier the policy may use gives slots back" in text


def test_a_retraction_guard_ends_without_kv_numbers() -> None:
    walk = Walk(two_tiers())
    bare = {"kv_used": None, "kv_committed": None, "kv_capacity": None}
    walk.go(4, **bare)
    walk.go(4, retracted=1, **bare)
    walk.until(60_000, load=4, **bare)
    assert walk.tier == "s3k1d4"


@given(
    path=st.lists(
        st.tuples(
            st.integers(0, 90),
            st.floats(0.0, 1.0),
            st.integers(0, 2),
            st.one_of(st.none(), st.floats(1.0, 4.0)),
        ),
        min_size=5,
        max_size=120,
    )
)
@settings(max_examples=100, deadline=None)
def test_under_a_guard_with_an_off_tier_the_policy_wants_off(
    path: list[tuple[int, float, int, float | None]],
) -> None:
    walk = Walk(FLOOR)
    for load, kv, retracted, accept in path:
        tier = None if walk.state.want < 0 else walk.tier
        walk.go(
            load,
            kv_used=kv,
            retracted=retracted,
            accept=accept,
            accept_tier=tier,
        )
        if walk.now_ms > 500 and (kv >= 0.92 or retracted):
            assert walk.tier == OFF


# -- plan, fixed, other versions --------------------------------------------------------------


def test_a_tier_that_was_not_built_is_left_out_with_a_warning() -> None:
    plan = make_plan(THREE, facts("s3k1d4", OFF))
    assert plan.tiers == ("s3k1d4", OFF)
    assert (plan.up_at, plan.down_at) == ((8,), (6,))
    assert "s1k1d2 was not built" in plan.warnings[0]


def test_a_policy_of_which_nothing_was_built_is_not_ready() -> None:
    plan = make_plan(THREE, facts("s5k1d6"))
    assert plan.tiers == ()
    assert "s5k1d6" in plan.not_ready


def test_automation_never_has_an_off_that_is_slower_than_plain() -> None:
    worse = facts("s3k1d4", "s1k1d2", OFF, backend="triton", off=OffKind.ONE_TOKEN_VERIFY)
    plan = make_plan(THREE, worse)
    assert plan.tiers == ("s3k1d4", "s1k1d2")
    assert plan.off is None
    assert plan.say(OFF) == "one-token verify"
    assert "0.25 to 0.31" in plan.warnings[0]
    fixed = make_plan(FixedPolicy(tier=OFF), worse)
    assert "one-token verify" in fixed.not_ready


def test_a_tier_with_a_largest_batch_is_left_before_it() -> None:
    small = tier_info("s3k1d4", max_batch=12)
    plan = make_plan(two_tiers(), facts(small, OFF))
    assert (plan.up_at, plan.down_at) == ((13,), (12,))
    assert "at most 12" in plan.warnings[0]


def test_a_largest_batch_above_the_engines_cap_is_no_limit() -> None:
    plan = make_plan(two_tiers(), facts(tier_info("s3k1d4", max_batch=512), OFF))
    assert plan.up_at == (24,)
    assert plan.warnings == ()


def test_a_fixed_policy_wants_its_tier_whatever_the_load() -> None:
    plan = make_plan(FixedPolicy(tier="s3k1d4"), facts())
    walk = Walk(two_tiers())
    walk.plan = plan
    for load in (0, 500):
        choice = walk.go(load, kv_used=0.99)
        assert (walk.tier, choice.reason) == ("s3k1d4", Reason.FIXED)


def test_another_policy_version_keeps_the_tier_and_starts_its_holds_anew() -> None:
    walk = Walk(two_tiers())
    walk.go(1)
    walk.until(3_000, load=30)
    assert walk.tier == OFF
    new = make_plan(THREE, facts(*THREE.tiers))
    state = carried_over(walk.plan, new, walk.state)
    assert new.tiers[state.want] == OFF
    assert state.up_since == ()


def test_a_policy_without_the_present_tier_is_placed_anew() -> None:
    walk = Walk(two_tiers())
    walk.go(1)
    new = make_plan(FixedPolicy(tier=OFF), facts())
    assert carried_over(walk.plan, new, walk.state).want == NEVER


# -- words ------------------------------------------------------------------------------------


def told(walk: Walk) -> str:
    return explain(walk.plan, walk.state, walk.view, walk.choice).text


def test_a_load_change_is_told_with_value_threshold_and_hold() -> None:
    walk = Walk(two_tiers())
    walk.go(1)
    walk.until(2_500, load=25)
    assert told(walk) == "concurrency 25 >= 24 held 2.0 s of 2.0 s"


def test_a_hold_is_told_while_it_builds() -> None:
    walk = Walk(two_tiers())
    walk.go(1)
    walk.go(25)
    walk.go(25)
    assert told(walk) == "concurrency 25 >= 24 held 0.5 s of 2.0 s"
    assert walk.choice.reason is Reason.HOLDING


def test_a_steady_tier_is_told_with_what_keeps_it() -> None:
    walk = Walk(FLOOR)
    walk.go(4)
    walk.accept(3.42)
    assert told(walk) == "concurrency 4 < 24 · accept length 3.42 >= 1.80"


def test_the_outlook_says_what_each_other_tier_still_needs() -> None:
    walk = Walk(THREE)
    walk.go(20)
    walk.go(20)
    outlook = explain(walk.plan, walk.state, walk.view, walk.choice).outlook
    needs = {(item.tier, item.reason): item.clauses[0] for item in outlook}
    assert needs[(OFF, Reason.LOAD_UP)].threshold == 64
    assert needs[("s1k1d2", Reason.LOAD_UP)].held_s == 0.5
    assert needs[("s1k1d2", Reason.LOAD_UP)].met is False
    assert needs[(OFF, Reason.KV_PRESSURE)].threshold == 0.92


def test_the_outlook_names_dwell_when_that_blocks() -> None:
    walk = Walk(two_tiers())
    walk.go(1)
    walk.until(3_500, load=30)
    item = explain(walk.plan, walk.state, walk.view, walk.choice).outlook[0]
    assert item.tier == "s3k1d4"
    assert item.blocked.startswith("dwell ")


@given(
    path=st.lists(
        st.tuples(
            st.integers(0, 90),
            st.floats(0.0, 1.0),
            st.integers(0, 1),
            st.one_of(st.none(), st.floats(1.0, 4.0)),
            st.booleans(),
        ),
        min_size=1,
        max_size=80,
    )
)
@settings(max_examples=100, deadline=None)
def test_an_explanation_can_be_built_for_every_choice_and_changes_nothing(
    path: list[tuple[int, float, int, float | None, bool]],
) -> None:
    policy = THREE.model_copy(
        update={"min_accept_length": {"s3k1d4": 1.8, "s1k1d2": 1.3}, "accept_hold_s": 1.0}
    )
    walk = Walk(policy)
    for load, kv, retracted, accept, pending in path:
        tier = None if walk.state.want < 0 else walk.tier
        walk.go(
            load, kv_used=kv, retracted=retracted, accept=accept, accept_tier=tier, pending=pending
        )
        before = walk.state
        explanation = explain(walk.plan, walk.state, walk.view, walk.choice)
        assert explanation.text
        assert walk.state is before
        for item in explanation.outlook:
            assert item.tier != walk.tier
        if walk.choice.changed:
            assert explanation.clauses


@pytest.mark.parametrize("kv", [None, 0.5])
def test_missing_kv_numbers_never_trip_a_guard(kv: float | None) -> None:
    walk = Walk(two_tiers())
    walk.until(10_000, load=4, kv_used=kv, kv_committed=None, kv_capacity=None)
    assert walk.changes == []
