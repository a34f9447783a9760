"""The engine applies thresholds by itself, and the control plane supervises it."""

from __future__ import annotations

import pytest

from controlplane.delegation import STEP, thresholds_of
from controlplane.planning import make_plan
from controlplane.policy_state import Moved
from engine_patch.contract import Capability
from engine_patch.contract_words import Mode, SwitchReason
from engine_patch.tier import OFF, Boundary
from store.observations import Sample
from store.policies import HysteresisPolicy
from store.records import Outcome, Reason
from tests.controlplane_script import facts, tier_info, two_tiers
from tests.controlplane_virtual import Bench

DEEP = "s3k1d4"
TRUE, WRONG = Boundary(up_at=112, down_at=80), Boundary(up_at=12, down_at=6)


def two(boundary: Boundary = TRUE, **changes: float) -> HysteresisPolicy:
    return HysteresisPolicy(tiers=(DEEP, OFF), boundaries=(boundary,), **changes)


def bench(policy: HysteresisPolicy, **more: object) -> Bench:
    return Bench(policy=policy, tiers=(OFF, DEEP), delegate=True, **more)  # type: ignore[arg-type]


def sample(made: Bench) -> Sample:
    found = made.ticks[-1].observation
    assert isinstance(found, Sample)
    return found


def test_the_engine_is_asked_for_auto_once_and_switches_by_itself() -> None:
    made = bench(two(WRONG))
    made.run(10, 1)
    assert sample(made).mode is Mode.AUTO
    assert sample(made).thresholds == thresholds_of(made.control.basis.plan, None)
    made.run(10, 16)
    made.run(10, 1)
    reasons = [one.reason for one in made.engine.chooser.journal]
    assert SwitchReason.BATCH_UP in reasons
    assert SwitchReason.BATCH_DOWN in reasons
    asked = [one for _, one in sorted(made.decisions.items())]
    assert [(one.reason, one.outcome) for one in asked] == [(Reason.DELEGATED, Outcome.CONFIRMED)]
    verdict = made.ticks[-1].verdict
    assert verdict.reason is Reason.DELEGATED
    assert "off from 12 requests, back at 6" in verdict.text
    assert [one.tier for one in verdict.outlook] == [OFF]


def test_the_engine_reacts_between_two_polls() -> None:
    made = bench(two(WRONG))
    made.run(10, 1)
    made.alone(0.4, 16)
    made.run(0.5, 16)
    assert sample(made).engine_tier == OFF


def test_a_boundary_that_lies_too_low_is_moved_by_evidence_and_told() -> None:
    made = bench(two(WRONG, adjust_every_s=60.0))
    made.run(10, 4)
    for _ in range(12):
        made.run(45, 16)
        made.run(45, 4)
    order = sample(made).thresholds
    assert order is not None
    assert order.boundaries[0].up_at > WRONG.up_at
    assert order.boundaries[0].up_at <= WRONG.up_at * 2
    moves = [one for one in made.decisions.values() if one.reason is Reason.DELEGATED]
    assert len(moves) >= 2
    assert all(one.outcome is Outcome.CONFIRMED for one in moves)
    assert made.share_of(DEEP) > 0.6


def test_boundaries_in_the_right_place_are_left_alone() -> None:
    made = bench(two())
    for _ in range(6):
        made.run(40, 4)
        made.run(40, 200)
    assert made.control.policy.moved == Moved((1.0,), (0,))
    assert len(made.decisions) == 1


def test_a_guard_acts_directly_and_hands_back() -> None:
    made = bench(two(), kv_slots=20_000)
    made.run(10, 4)
    made.engine.hold(18_800)
    made.run(1.5, 4)
    assert (sample(made).engine_tier, sample(made).mode) == (OFF, Mode.OFF)
    made.engine.hold(0)
    made.run(60, 4)
    assert (sample(made).engine_tier, sample(made).mode) == (DEEP, Mode.AUTO)
    reasons = [one.reason for _, one in sorted(made.decisions.items())]
    assert reasons[0] is Reason.DELEGATED
    assert reasons[-1] is Reason.DELEGATED
    assert {Reason.KV_PRESSURE, Reason.RETRACTION} & set(reasons[1:-1])


def test_a_restarted_engine_is_delegated_to_again() -> None:
    made = bench(two(WRONG))
    made.run(10, 1)
    made.boot()
    made.run(10, 16)
    assert (sample(made).mode, sample(made).engine_tier) == (Mode.AUTO, OFF)


def test_an_engine_that_cannot_is_steered_directly_and_told() -> None:
    lame = facts(capabilities=(Capability(name="auto", available=False, reason="too old"),))
    plan = make_plan(two_tiers(), lame, rules=2, delegate=True)
    assert plan.delegation is None
    assert "thresholds are applied from here: too old" in plan.warnings
    able = facts(capabilities=(Capability(name="switching", available=True),))
    assert make_plan(two_tiers(), able, rules=2, delegate=True).delegation is not None
    assert make_plan(two_tiers(), able, rules=1, delegate=True).delegation is None


def test_when_the_lease_ends_the_engine_goes_on_by_the_policys_thresholds() -> None:
    made = Bench(policy=two(WRONG), tiers=(OFF, DEEP))
    made.run(10, 1)
    assert sample(made).mode is Mode.ON
    made.alone(40, 1)
    made.alone(5, 16)
    assert made.engine.chooser.mode is Mode.AUTO
    assert made.engine.chooser.tier == OFF
    made.alone(30, 1)
    assert made.engine.chooser.tier == DEEP


def test_a_new_policy_version_reaches_the_engine_without_a_switch() -> None:
    made = Bench(policy=two(WRONG), tiers=(OFF, DEEP))
    made.run(10, 1)
    newer = made.config.policy.model_copy(
        update={"policy": two(Boundary(up_at=40, down_at=30)), "version": 2}
    )
    made.config = made.config.model_copy(update={"policy": newer})
    before = len(made.decisions)
    made.run(5, 1)
    order = sample(made).thresholds
    assert order is not None
    assert order.boundaries == (Boundary(up_at=40, down_at=30),)
    assert len(made.decisions) == before


def test_thresholds_stay_within_what_the_engine_takes() -> None:
    small = facts(tier_info(DEEP, max_batch=20), tier_info(OFF))
    plan = make_plan(two_tiers(), small, rules=2)
    assert plan.thresholds is not None
    assert plan.thresholds.boundaries[0].up_at == 21


@pytest.mark.parametrize("factor", [1 / STEP, STEP, STEP**3])
def test_moved_boundaries_are_valid_and_rise(factor: float) -> None:
    policy = HysteresisPolicy(
        tiers=(DEEP, "s1k1d2", OFF),
        boundaries=(Boundary(up_at=2, down_at=1), Boundary(up_at=3, down_at=2)),
    )
    able = facts(DEEP, "s1k1d2", OFF, capabilities=(Capability(name="auto", available=True),))
    plan = make_plan(policy, able, rules=2, delegate=True)
    order = thresholds_of(plan, Moved((factor, 1 / factor), (0, 0)))
    assert order is not None
    assert order.boundaries[0].up_at < order.boundaries[1].up_at
