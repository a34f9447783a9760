"""Tiers and thresholds: names, shapes, reserves, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine_patch.costs import BUCKETS, ContextBand, bucket, context_band
from engine_patch.tier import Boundary, Thresholds, TierShape


@st.composite
def shapes(draw: st.DrawFn) -> TierShape:
    steps = draw(st.integers(0, 8))
    if steps == 0:
        return TierShape.parse("off")
    topk = draw(st.integers(1, 8))
    if topk == 1:
        return TierShape(num_steps=steps, topk=1, num_draft_tokens=steps + 1)
    most = 1 + topk + (steps - 1) * topk**2
    return TierShape(num_steps=steps, topk=topk, num_draft_tokens=draw(st.integers(2, most)))


@given(shapes())
def test_a_tier_name_reads_back_to_the_same_shape(shape: TierShape) -> None:
    assert TierShape.parse(shape.name) == shape


@pytest.mark.parametrize(
    ("name", "page", "alloc", "reserve"),
    [
        # The three examples of SGLang's arithmetic that we checked by hand.
        ("s2k4d16", 1, 16, 32),
        ("s2k1d3", 1, 3, 6),
        ("s5k4d8", 64, 512, 1024),
        ("off", 1, 1, 2),
    ],
)
def test_the_reserve_follows_sglangs_formula(
    name: str, page: int, alloc: int, reserve: int
) -> None:
    shape = TierShape.parse(name)
    assert (shape.alloc_len(page), shape.reserve(page)) == (alloc, reserve)


@pytest.mark.parametrize(
    "name", ["", "on", "OFF", "s0k1d1", "s3k1d5", "s1k4d6", "s3k1d4 ", "s03k1d4", "s3k1d1"]
)
def test_an_impossible_tier_is_refused(name: str) -> None:
    with pytest.raises(ValueError):
        TierShape.parse(name)


def test_a_boundary_without_a_gap_is_refused_because_it_would_flap() -> None:
    with pytest.raises(ValidationError, match="must lie below up_at"):
        Boundary(up_at=16, down_at=16)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tiers": ("s3k1d4", "off")}, "need 1 boundaries"),
        ({"tiers": ("off", "off"), "boundaries": [{"up_at": 2, "down_at": 1}]}, "once"),
        (
            {
                "tiers": ("s3k1d4", "s1k1d2", "off"),
                "boundaries": [{"up_at": 20, "down_at": 10}, {"up_at": 15, "down_at": 12}],
            },
            "rise",
        ),
        ({"tiers": ("s3k1d4",), "min_accept_length": {"s1k1d2": 1.5}}, "not in the order"),
        ({"tiers": ("s3k1d4",), "min_accept_length": {"s3k1d4": 4.5}}, "between 1 and its steps"),
    ],
)
def test_thresholds_that_contradict_themselves_are_refused(
    fields: dict[str, object], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        Thresholds.model_validate(fields)


@given(st.integers(1, 5000))
def test_a_batch_belongs_to_the_smallest_bucket_that_holds_it(batch: int) -> None:
    found = bucket(batch)
    smaller = [b for b in BUCKETS if b < found]
    assert found >= min(batch, BUCKETS[-1])
    assert not smaller or smaller[-1] < batch


@pytest.mark.parametrize(
    ("tokens", "band"),
    [
        (0, ContextBand.UP_TO_1K),
        (1024, ContextBand.UP_TO_1K),
        (1025, ContextBand.UP_TO_4K),
        (16384, ContextBand.UP_TO_16K),
        (16385, ContextBand.MORE),
    ],
)
def test_context_bands_include_their_upper_end(tokens: float, band: ContextBand) -> None:
    assert context_band(tokens) is band
