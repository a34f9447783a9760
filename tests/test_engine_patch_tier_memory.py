"""What a tier will take of the GPU's memory, before it is built."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_patch.tier import TierShape
from engine_patch.tier_memory import MARGIN, MIB, Setting, attention_bytes, estimate, too_large


def _setting(backend: str = "triton", context: int = 131072) -> Setting:
    return Setting(backend=backend, context=context, vocabulary=128256)


@pytest.mark.parametrize(
    ("tier", "flashinfer", "triton", "fa3"),
    [
        ("off", 444, 102, 144),
        ("s1k1d2", 504, 204, 144),
        ("s3k1d4", 696, 552, 288),
        ("s2k4d8", 1056, 1200, 408),
        ("s2k4d16", 1536, 2016, 456),
    ],
)
def test_attention_buffers_follow_sglangs_allocations(
    tier: str, flashinfer: int, triton: int, fa3: int
) -> None:
    """Computed by hand from the allocations of SGLang 0.5.23, batch 48, context 131,072."""
    shape = TierShape.parse(tier)
    for backend, mib in (("flashinfer", flashinfer), ("triton", triton), ("fa3", fa3)):
        assert round(attention_bytes(shape, 48, _setting(backend)) / MIB) == mib


def test_a_page_holds_several_entries_of_fa3s_tables_but_not_of_a_trees_own() -> None:
    paged = Setting(backend="fa3", context=8192, vocabulary=1, page_size=64)
    chain, tree = TierShape.parse("s1k1d2"), TierShape.parse("s1k4d4")
    assert attention_bytes(chain, 8, paged) == 4 * 2 * 3 * 128 * 8
    assert attention_bytes(tree, 8, paged) == 4 * 2 * (3 * 128 * 8 + 2 * 8192 * 8) + 8 * 8192 * 4


def test_a_backend_that_is_not_known_counts_its_graphs_alone() -> None:
    shape = TierShape.parse("s3k1d4")
    assert estimate(shape, 8, 4, _setting("other")) == 4 * 8 * MIB + 8 * 4 * 128256 * 8
    assert estimate(shape, 8, 0, _setting("other")) == 0


@given(st.integers(1, 512), st.integers(1, 60), st.sampled_from(["triton", "flashinfer", "fa3"]))
def test_a_smaller_batch_never_costs_more(batch: int, sizes: int, backend: str) -> None:
    shape, setting = TierShape.parse("s2k4d16"), _setting(backend, 8192)
    half = estimate(shape, (batch + 1) // 2, sizes, setting)
    assert half <= estimate(shape, batch, sizes, setting)


def test_a_tier_that_does_not_fit_is_refused_with_the_numbers_and_the_remedies() -> None:
    shape = TierShape.parse("s2k4d16")
    assert too_large(shape, 100 * MIB, 100 * MIB + MARGIN) == ""
    words = too_large(shape, 4096 * MIB, 2048 * MIB)
    for part in ("s2k4d16", "4,096 MiB", "2,048 MiB", "--mem-fraction-static",
                 "SPECDECK_TIER_MAX_BATCH=s2k4d16=N", "SPECDECK_HEADROOM=ignore"):  # fmt: skip
        assert part in words
