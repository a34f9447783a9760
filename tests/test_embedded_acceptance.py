"""How many drafts a simulated verify step accepts."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_patch.embedded.acceptance import (
    AcceptMode,
    chain_length,
    mean_length,
    position_rate,
    sampler,
    tier_rate,
)
from engine_patch.tier import TierShape

CHAIN = TierShape.parse("s3k1d4")
SHORT = TierShape.parse("s1k1d2")
TREE = TierShape.parse("s2k4d16")
OFF = TierShape.parse("off")


@given(st.floats(1.0, 4.0))
def test_the_chain_of_three_has_the_mean_asked_for(length: float) -> None:
    assert chain_length(position_rate(length, 3), 3) == pytest.approx(length, abs=1e-9)
    assert mean_length(length, CHAIN, AcceptMode.SAMPLED) == pytest.approx(length, abs=1e-9)


def test_other_chains_follow_from_the_same_rate() -> None:
    rate = tier_rate(2.0, CHAIN)
    assert tier_rate(2.0, SHORT) == rate
    assert mean_length(2.0, SHORT, AcceptMode.SAMPLED) == pytest.approx(1 + rate)
    assert mean_length(2.0, TierShape.parse("s5k1d6"), AcceptMode.SAMPLED) > 2.0


def test_the_tree_has_the_mean_of_the_chain_of_three_capped_by_its_depth() -> None:
    assert mean_length(2.0, TREE, AcceptMode.SAMPLED) == pytest.approx(2.0)
    assert mean_length(3.5, TREE, AcceptMode.SAMPLED) == pytest.approx(3.0)


def test_off_accepts_nothing() -> None:
    for mode in AcceptMode:
        assert mean_length(2.0, OFF, mode) == 1.0


@pytest.mark.parametrize("length", [0.9, 4.1])
def test_an_impossible_accept_length_is_refused(length: float) -> None:
    with pytest.raises(ValueError, match="between 1 and 4"):
        position_rate(length, 3)


@pytest.mark.parametrize("length", [1.0, 1.37, 2.0, 2.9, 4.0])
@pytest.mark.parametrize("shape", [SHORT, CHAIN, TREE], ids=lambda shape: shape.name)
def test_draws_have_the_mean_of_the_model(length: float, shape: TierShape) -> None:
    draws = sampler(length, shape, AcceptMode.SAMPLED, random.Random(5))
    counts = b"".join(draws.draw(200) for _ in range(1000))
    expected = mean_length(length, shape, AcceptMode.SAMPLED)
    # Five standard errors of a count that lies between 0 and 3, plus the table's rounding.
    assert 1 + sum(counts) / len(counts) == pytest.approx(expected, abs=0.02)
    assert max(counts) <= shape.num_steps


def test_draws_follow_the_per_position_model() -> None:
    draws = sampler(2.0, CHAIN, AcceptMode.SAMPLED, random.Random(5))
    counts = b"".join(draws.draw(200) for _ in range(1000))
    rate = tier_rate(2.0, CHAIN)
    for depth in (1, 2, 3):
        share = sum(count >= depth for count in counts) / len(counts)
        assert share == pytest.approx(rate**depth, abs=0.01)


def test_the_requests_of_a_step_differ() -> None:
    counts = sampler(2.0, CHAIN, AcceptMode.SAMPLED, random.Random(5)).draw(64)
    assert set(counts) == {0, 1, 2, 3}


def test_exact_gives_every_request_of_a_step_the_same() -> None:
    draws = sampler(2.0, CHAIN, AcceptMode.EXACT, random.Random(5))
    assert draws.draw(3) == bytes((1, 1, 1))
    assert draws.draw(2) == bytes((1, 1))


def test_exact_is_capped_at_the_tiers_depth() -> None:
    assert sampler(3.0, SHORT, AcceptMode.EXACT, random.Random(5)).draw(1) == bytes((1,))


@given(st.floats(1.0, 4.0), st.integers(1, 400))
def test_exact_keeps_a_fractional_mean_over_steps(length: float, steps: int) -> None:
    draws = sampler(length, CHAIN, AcceptMode.EXACT, random.Random(5))
    accepted = sum(draws.draw(1)[0] for _ in range(steps))
    assert accepted == pytest.approx((length - 1) * steps, abs=1.0 + 1e-6)
