"""Thresholds as text: what fields make of a policy, and how two policies differ."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.drafting import DraftError, differences, drafted, fields
from console.formatting import UNICODE
from engine_patch.tier import Boundary
from store.policies import FixedPolicy, GoodputPolicy, HysteresisPolicy, Policy
from tests.console_story import DEEP, policy


def values(of: Policy, **changes: str) -> dict[str, str]:
    """The untouched fields, with changes."""
    untouched = {one.id: one.value for row in fields(of) for one in row}
    return untouched | {name.replace("_at_", "-"): text for name, text in changes.items()}


def test_untouched_fields_make_the_same_policy() -> None:
    present = policy().policy
    assert drafted(present, values(present)) == present
    assert differences(present, drafted(present, values(present)), UNICODE) == ()


def test_a_changed_boundary_floor_and_guard_are_told_one_by_one() -> None:
    present = policy().policy
    changed = drafted(
        present, values(present) | {"up-0": "20", "floor-s1k1d2": "1.2", "kv_high": "95"}
    )
    told = differences(present, changed, UNICODE)
    assert "s1k1d2 at 24 → 20 req" in told
    assert "kv high 92 % → 95 %" in told
    assert any("s1k1d2 1.2" in one for one in told)


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("up-0", "x", "whole number"),
        ("up-0", "-3", "whole number"),
        ("up-0", "2.5", "whole number"),
        ("up-0", "16", "must lie below up_at"),
        ("up-0", "60", "must rise"),
        ("up_hold_s", "soon", "write a number"),
        ("up_hold_s", "nan", "write a number"),
        ("kv_high", "inf", "write a number"),
        ("kv_high", "70", "kv_low must lie below"),
        ("floor-s3k1d4", "9", r"between 1 and steps \+ 1"),
        ("min_dwell_s", "99999", "less than or equal"),
    ],
)
def test_a_wrong_field_is_named_with_what_it_takes(field: str, text: str, words: str) -> None:
    present = policy().policy
    with pytest.raises(DraftError, match=words):
        drafted(present, values(present) | {field: text})


@given(up=st.integers(2, 500), gap=st.integers(1, 400), hold=st.floats(0, 3600, allow_nan=False))
def test_what_is_written_into_fields_comes_out_as_written(up: int, gap: int, hold: float) -> None:
    down = max(up - gap, 0)
    made = HysteresisPolicy(
        tiers=(DEEP, "off"), boundaries=(Boundary(up_at=up, down_at=down),), up_hold_s=hold
    )
    again = drafted(made, values(made))
    assert isinstance(again, HysteresisPolicy)
    assert again.boundaries == made.boundaries
    assert again.up_hold_s == pytest.approx(hold, rel=1e-5)


def test_a_fixed_policy_has_no_fields_and_another_kind_is_told() -> None:
    fixed = FixedPolicy(tier=DEEP)
    assert fields(fixed) == ()
    told = differences(policy().policy, fixed, UNICODE)
    assert told == ("policy hysteresis → fixed", "always s3k1d4")


GOODPUT = GoodputPolicy(tiers=("s3k1d4", "off"), gain=1 / 3, tpot_ms=50.0)


def test_a_goodput_policy_is_edited_and_what_nobody_touched_stays_exact() -> None:
    assert drafted(GOODPUT, values(GOODPUT)) == GOODPUT
    changed = drafted(GOODPUT, values(GOODPUT) | {"tpot_ms": "40", "hold_s": "4"})
    assert changed == GOODPUT.model_copy(update={"tpot_ms": 40.0, "hold_s": 4.0})
    assert differences(GOODPUT, changed, UNICODE) == (
        "hold 3.0s → 4.0s",
        "tpot ms 50.0 → 40.0",
    )
    without = drafted(GOODPUT, values(GOODPUT) | {"tpot_ms": "  ", "gain": "10"})
    assert isinstance(without, GoodputPolicy)
    assert (without.tpot_ms, without.gain) == (None, 0.1)


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("gain", "0", "gain"),
        ("gain", "nan", "write a number"),
        ("tpot_ms", "fast", "the time per token: write a number"),
        ("tpot_ms", "-1", "tpot ms"),
        ("switch_cost_s", "60", "switch_cost_s must lie below horizon_s"),
        ("kv_low", "99", "kv_low must lie below kv_high"),
    ],
)
def test_a_wrong_goodput_field_is_named(field: str, text: str, words: str) -> None:
    with pytest.raises(DraftError, match=words):
        drafted(GOODPUT, values(GOODPUT) | {field: text})


@given(st.sampled_from(sorted(values(GOODPUT))), st.text(max_size=12))
def test_any_text_in_a_goodput_field_makes_a_policy_or_a_sentence(field: str, text: str) -> None:
    try:
        made = drafted(GOODPUT, values(GOODPUT) | {field: text})
    except DraftError:
        return
    assert isinstance(made, GoodputPolicy)
