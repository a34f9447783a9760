"""Hundreds of engines share one loop: polls are spread, and renewals cost no further poll."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controlplane.pace import phase_ms, renews
from engine_patch.contract_words import Mode
from store.records import Command


@given(st.text(max_size=64).filter(lambda text: text.isascii()), st.integers(1, 60_000))
def test_a_phase_lies_within_the_period_and_stays(engine_id: str, period_ms: int) -> None:
    phase = phase_ms(engine_id, period_ms)
    assert 0 <= phase < period_ms
    assert phase == phase_ms(engine_id, period_ms)


def test_200_engines_are_not_polled_at_the_same_moment() -> None:
    phases = [phase_ms(f"engine-{place}", 1000) for place in range(200)]
    crowded = max(sum(start <= one < start + 20 for one in phases) for start in range(1000))
    # 4 would be even; before, it was all 200.
    assert crowded < 20


def test_only_the_same_command_with_a_later_order_is_a_renewal() -> None:
    first = Command(mode=Mode.ON, tier="s3k1d4", lease_s=30, epoch=1, generation=4)
    assert renews(first.model_copy(update={"generation": 5}), first)
    assert renews(first.model_copy(update={"epoch": 2, "generation": 1}), first)
    assert not renews(first, None)
    for change in ({"mode": Mode.OFF, "tier": None}, {"tier": "s1k1d2"}, {"takeover": True}):
        assert not renews(first.model_copy(update=change), first)
