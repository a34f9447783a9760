"""The first policy of an engine: from its step-cost table, else careful defaults."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.capabilities import default_policy
from controlplane.first_policy import assumed_accept_length
from engine_patch.contract_words import OffKind
from engine_patch.costs import BUCKETS, StepCost
from engine_patch.tier import OFF, Boundary
from store.observations import EngineFacts, PluginStatus
from tests.controlplane_script import facts

# tokens/s of the closed loop on one H200, SGLang 0.5.17, FA3: concurrency, plain, chain (accept
# length 2.0).  Step times follow as concurrency * accept length / tokens/s.
FA3 = ((1, 206, 326), (4, 802, 1237), (16, 2999, 4510), (64, 9194, 10886), (128, 12732, 12380),
       (256, 15178, 13546))  # fmt: skip


def cost(tier: str, bucket: int, ms: float, accept: float | None = None) -> StepCost:
    tokens = None if accept is None else accept * bucket
    return StepCost(tier=tier, bucket=bucket, samples=10, mean_ms=ms, tokens_per_step=tokens)


def measured_fa3() -> tuple[StepCost, ...]:
    found = []
    for bucket, plain, chain in FA3:
        found.append(cost(OFF, bucket, bucket * 1000 / plain, 1.0))
        found.append(cost("s3k1d4", bucket, bucket * 2.0 * 1000 / chain, 2.0))
    return tuple(found)


def test_the_boundary_lies_around_the_measured_crossing() -> None:
    policy = default_policy(facts(backend="fa3"), measured_fa3())
    assert policy.tiers == ("s3k1d4", OFF)
    (boundary,) = policy.boundaries
    # The measured crossing lies near 100: above at 64, below at 128.
    assert 64 < boundary.down_at < boundary.up_at <= 128
    assert boundary.up_at - boundary.down_at >= 10


def test_the_floor_is_break_even_at_the_quietest_bucket() -> None:
    policy = default_policy(facts(backend="fa3"), measured_fa3())
    assert policy.min_accept_length == {"s3k1d4": round(2.0 * 206 / 326, 2)}


def test_a_better_accept_length_moves_the_boundary_up() -> None:
    low = default_policy(facts(backend="fa3"), measured_fa3(), {"s3k1d4": 1.7})
    high = default_policy(facts(backend="fa3"), measured_fa3(), {"s3k1d4": 2.1})
    assert low.boundaries[0].up_at < high.boundaries[0].up_at


def test_speculation_that_always_wins_keeps_off_above_the_table_for_the_guards() -> None:
    policy = default_policy(facts(backend="fa3"), measured_fa3(), {"s3k1d4": 4.0})
    assert policy.tiers == ("s3k1d4", OFF)
    assert policy.boundaries[0].up_at > 256


def test_speculation_that_never_wins_is_kept_for_an_idle_engine_only() -> None:
    policy = default_policy(facts(backend="fa3"), measured_fa3(), {"s3k1d4": 1.0})
    assert policy.tiers == ("s3k1d4", OFF)
    assert policy.boundaries == (Boundary(up_at=1, down_at=0),)


def test_a_tier_that_never_wins_is_left_out() -> None:
    never = tuple(cost("s5k1d6", bucket, 500.0, 2.0) for bucket, _, _ in FA3)
    policy = default_policy(
        facts("s5k1d6", "s3k1d4", OFF, backend="fa3"), (*measured_fa3(), *never)
    )
    assert policy.tiers == ("s3k1d4", OFF)


def test_an_off_known_to_be_slower_is_never_in_a_first_policy() -> None:
    slow = facts("s3k1d4", "s1k1d2", OFF, backend="triton", off=OffKind.ONE_TOKEN_VERIFY)
    careful = default_policy(slow)
    assert careful.tiers == ("s3k1d4", "s1k1d2")
    costs = tuple(
        cost(tier, bucket, ms * bucket, accept)
        for tier, accept, ms in (("s3k1d4", 2.0, 2.0), ("s1k1d2", 1.5, 1.8), (OFF, 1.0, 0.1))
        for bucket in (1, 16, 64)
    )
    assert OFF not in default_policy(slow, costs).tiers


def test_without_a_table_more_verified_tokens_mean_a_lower_boundary() -> None:
    policy = default_policy(facts("s2k4d16", "s3k1d4", "s1k1d2", OFF, backend="flashinfer"))
    assert policy.tiers == ("s2k4d16", "s3k1d4", "s1k1d2", OFF)
    assert [bound.up_at for bound in policy.boundaries] == [4, 16, 32]
    assert [bound.down_at for bound in policy.boundaries] == [3, 12, 24]
    assert policy.min_accept_length == {}


def test_a_table_of_one_tier_alone_is_no_table() -> None:
    only = tuple(item for item in measured_fa3() if item.tier == OFF)
    assert default_policy(facts(), only) == default_policy(facts())


@pytest.mark.parametrize("tiers", [("s3k1d4",), (OFF,)])
def test_an_engine_with_one_tier_gets_a_policy_of_that_tier(tiers: tuple[str, ...]) -> None:
    assert default_policy(facts(*tiers)).tiers == tiers


def test_an_engine_that_tells_nothing_gets_a_valid_policy() -> None:
    absent = EngineFacts(boot_id=None, plugin=PluginStatus.ABSENT)
    assert default_policy(absent).tiers == (OFF,)


def test_the_assumed_accept_length_grows_with_depth_and_stays_below_the_most() -> None:
    lengths = [assumed_accept_length(tier) for tier in (OFF, "s1k1d2", "s3k1d4", "s5k1d6")]
    assert lengths == sorted(lengths)
    assert lengths[0] == 1.0
    assert lengths[2] == pytest.approx(2.176)


@given(
    times=st.lists(
        st.tuples(st.floats(0.5, 100), st.floats(0.5, 100), st.floats(0.5, 100)),
        min_size=2,
        max_size=len(BUCKETS),
    ),
    accepts=st.tuples(st.floats(1.0, 4.0), st.floats(1.0, 2.0)),
)
@settings(deadline=None)
def test_any_table_gives_a_valid_policy(
    times: list[tuple[float, float, float]], accepts: tuple[float, float]
) -> None:
    tiers = ("s3k1d4", "s1k1d2", OFF)
    costs = tuple(
        cost(tier, bucket, ms)
        for bucket, row in zip(BUCKETS, times, strict=False)
        for tier, ms in zip(tiers, row, strict=True)
    )
    policy = default_policy(
        facts(*tiers, backend="fa3"), costs, {"s3k1d4": accepts[0], "s1k1d2": accepts[1]}
    )
    # The record's own validation refuses boundaries that do not rise or leave no gap.
    assert policy.tiers[-1] == OFF
    assert len(policy.boundaries) == len(policy.tiers) - 1
