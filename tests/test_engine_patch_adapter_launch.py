"""Which tiers are built from what was asked for at launch."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_patch import adapter_launch
from engine_patch.adapter_launch import (
    BUILT_VARIABLE,
    LIMITS_VARIABLE,
    TIERS_VARIABLE,
    candidate_steps,
)
from engine_patch.tier import OFF, TierShape
from engine_patch.tier_plan import Plan, chain, flags_shape, parse_limits, plan

TREE = TierShape.parse("s2k4d8")


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (TIERS_VARIABLE, BUILT_VARIABLE, LIMITS_VARIABLE):
        # Set first, so that what a test leaves behind is undone as well.
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    monkeypatch.setattr(adapter_launch, "_asked", None)


class Arguments:
    """What ``note_arguments`` reads of SGLang's server arguments."""

    speculative_algorithm = "EAGLE3"
    speculative_adaptive = True
    speculative_num_steps: int | None = 4
    speculative_eagle_topk: int | None = None
    speculative_num_draft_tokens: int | None = None
    speculative_adaptive_config: str | None = None
    max_running_requests = None


@pytest.mark.parametrize(
    ("text", "config", "launch", "tiers"),
    [
        (None, None, 3, (OFF, "s1k1d2", "s3k1d4")),
        (None, None, 1, (OFF, "s1k1d2")),
        (None, None, None, (OFF, "s1k1d2", "s3k1d4")),
        ("s5k1d6,off", None, 3, (OFF, "s3k1d4", "s5k1d6")),
        (" off , s2k1d3 ", None, None, (OFF, "s2k1d3")),
        ("s2k1d3", [1, 3], None, ("s2k1d3",)),
        (None, [0, 7], 3, (OFF, "s3k1d4", "s7k1d8")),
        ("off", None, None, (OFF, "s1k1d2")),
        ("off,s2k4d8", None, 3, (OFF, "s3k1d4")),
    ],
)
def test_the_users_list_beats_sglangs_configuration_beats_the_default(
    text: str | None, config: list[int] | None, launch: int | None, tiers: tuple[str, ...]
) -> None:
    assert plan(text, config, None if launch is None else chain(launch)).tiers == tiers


def test_a_tree_wider_than_the_launch_tier_is_left_out_with_the_flags_that_let_it_in() -> None:
    decided = plan("off,s2k4d8", None, chain(1))
    ((name, reason),) = decided.left_out
    assert (name, decided.tiers) == ("s2k4d8", (OFF, "s1k1d2"))
    assert "--speculative-eagle-topk 4" in reason
    assert "--speculative-num-draft-tokens 8" in reason


def test_trees_are_built_when_the_launch_tier_has_the_largest_topk() -> None:
    decided = plan("off,s3k1d4,s3k2d4", None, TREE)
    assert decided.tiers == (OFF, "s3k1d4", "s3k2d4", "s2k4d8")
    assert (decided.launch, decided.topk_max, decided.trees) == ("s2k4d8", 4, True)
    assert decided.left_out == ()


@pytest.mark.parametrize(
    ("text", "launch"),
    [
        ("off,s1k1d2,s2k4d8,s3k4d16", "s3k4d16"),
        ("off,s1k1d2,s3k1d4", "s1k1d2"),
        ("off,s5k1d6", "s5k1d6"),
    ],
)
def test_without_flags_the_list_names_the_launch_tier(text: str, launch: str) -> None:
    assert plan(text, None, None).launch == launch


@pytest.mark.parametrize(
    ("flags", "shape"),
    [
        ((None, None, None), None),
        ((3, None, None), chain(3)),
        ((3, 1, 9), chain(3)),
        ((2, 4, 8), TREE),
        ((2, 4, None), None),
    ],
)
def test_the_flags_give_a_shape(
    flags: tuple[int | None, int | None, int | None], shape: TierShape | None
) -> None:
    assert flags_shape(*flags) == shape


def test_limits_belong_to_tiers_that_are_built() -> None:
    limits = parse_limits("s2k4d8=16, s3k1d4=128 ,s9k1d10=4")
    assert plan("off,s3k1d4", None, TREE, limits).limits == {"s2k4d8": 16, "s3k1d4": 128}


@pytest.mark.parametrize("text", ["s2k4d8", "s2k4d8=0", "s2k4d8=x", "off=4", "fast=1"])
def test_a_limit_that_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"limit|tier"):
        parse_limits(text)


def test_a_plan_survives_the_way_to_the_ranks() -> None:
    decided = plan("off,s3k2d4,s1k8d4", None, TREE, {"s2k4d8": 16})
    assert Plan.load(decided.dump()) == decided
    with pytest.raises(ValueError, match="no plan"):
        Plan.load("{}")


@pytest.mark.parametrize("text", ["", " , ", "fast", "off;s1k1d2"])
def test_a_list_that_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"tier"):
        plan(text, None, None)


@given(
    st.none()
    | st.lists(st.integers(0, 9), min_size=1).map(
        lambda steps: ",".join(chain(s).name for s in steps)
    ),
    st.none() | st.integers(1, 9),
)
def test_the_launch_tier_is_built_and_something_speculates(
    text: str | None, launch: int | None
) -> None:
    tiers = plan(text, None, None if launch is None else chain(launch)).tiers
    assert any(tier != OFF for tier in tiers)
    assert launch is None or chain(launch).name in tiers
    widths = [TierShape.parse(tier).num_draft_tokens for tier in tiers]
    assert widths == sorted(set(widths))


def test_the_first_process_decides_and_its_children_read_it() -> None:
    adapter_launch.note_arguments(Arguments())
    assert candidate_steps(lambda _: [9]) == [0, 1, 4]
    decided = Plan.load(os.environ[BUILT_VARIABLE])
    assert (decided.tiers, decided.launch) == ((OFF, "s1k1d2", "s4k1d5"), "s4k1d5")
    adapter_launch._asked = None  # a child has resolved nothing itself
    assert candidate_steps(lambda _: [9]) == [0, 1, 4]
    assert adapter_launch.in_force() == decided


def test_a_second_launch_in_the_same_process_decides_anew() -> None:
    os.environ[BUILT_VARIABLE] = plan("off,s9k1d10", None, None).dump()
    adapter_launch.note_arguments(Arguments())
    assert candidate_steps(lambda _: [9]) == [0, 1, 4]


def test_buffers_are_sized_for_the_widest_tree() -> None:
    os.environ[TIERS_VARIABLE] = "off,s3k1d4,s2k4d8"
    assert candidate_steps(lambda _: [9]) == [0, 3, 7]


def test_sglangs_configuration_is_asked_only_if_it_was_given() -> None:
    assert candidate_steps(lambda _: [2, 6], "adaptive.json") == [2, 6]
    assert Plan.load(os.environ[BUILT_VARIABLE]).tiers == ("s2k1d3", "s6k1d7")


def test_why_sglang_turned_adaptive_off_is_kept_and_nothing_is_planned() -> None:
    adapter_launch.note_arguments(Arguments())
    reason = "attention DP is not supported"
    arguments = Arguments()
    assert adapter_launch.unsupported_reason(lambda _: reason, arguments) == reason
    asked = adapter_launch.asked()
    assert asked is not None
    assert asked.turned_off == reason
    assert adapter_launch.in_force() is None
    assert adapter_launch.unsupported_reason(lambda _: None, arguments) is None
    assert asked.turned_off == ""


def test_nothing_is_switched_with_the_plan_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter_launch.note_arguments(Arguments())
    monkeypatch.setenv(adapter_launch.PLAN_STREAM_VARIABLE, "1")
    reason = adapter_launch.unsupported_reason(lambda _: None, Arguments())
    assert reason is not None
    assert reason.endswith("unset SGLANG_ENABLE_OVERLAP_PLAN_STREAM")
    monkeypatch.setenv(adapter_launch.PLAN_STREAM_VARIABLE, "0")
    assert adapter_launch.unsupported_reason(lambda _: None, Arguments()) is None


def test_the_plan_in_force_is_read_once_until_another_takes_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert adapter_launch.in_force() is None
    first, second = (Plan(tiers=(OFF, name), launch=name) for name in ("s1k1d2", "s3k1d4"))
    monkeypatch.setenv(BUILT_VARIABLE, first.dump())
    assert adapter_launch.in_force() == first
    # Asked for twice before every decode step.
    assert adapter_launch.in_force() is adapter_launch.in_force()
    monkeypatch.setenv(BUILT_VARIABLE, second.dump())
    assert adapter_launch.in_force() == second
