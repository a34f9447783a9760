"""Which tiers are built from what was asked for at launch."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_patch import adapter_launch
from engine_patch.adapter_launch import BUILT_VARIABLE, TIERS_VARIABLE, candidate_steps, plan
from engine_patch.tier import OFF, TierShape


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (TIERS_VARIABLE, BUILT_VARIABLE):
        # Set first, so that what a test leaves behind is undone as well.
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    monkeypatch.setattr(adapter_launch, "_asked", None)


class Arguments:
    """What ``note_arguments`` reads of SGLang's server arguments."""

    speculative_algorithm = "EAGLE3"
    speculative_adaptive = True
    speculative_num_steps = 4
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
    assert plan(text, config, launch).tiers == tiers


def test_a_tree_is_left_out_with_its_reason() -> None:
    ((name, reason),) = plan("off,s2k4d8", None, 1).left_out
    assert name == "s2k4d8"
    assert "topk 4" in reason


@pytest.mark.parametrize("text", ["", " , ", "fast", "off;s1k1d2"])
def test_a_list_that_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"tier"):
        plan(text, None, None)


@given(
    st.none()
    | st.lists(st.integers(0, 9), min_size=1).map(
        lambda steps: ",".join(adapter_launch.chain(s).name for s in steps)
    ),
    st.none() | st.integers(1, 9),
)
def test_the_launch_tier_is_built_and_something_speculates(
    text: str | None, launch: int | None
) -> None:
    tiers = plan(text, None, launch).tiers
    assert any(tier != OFF for tier in tiers)
    assert launch is None or adapter_launch.chain(launch).name in tiers
    widths = [TierShape.parse(tier).num_draft_tokens for tier in tiers]
    assert widths == sorted(set(widths))


def test_the_first_process_decides_and_its_children_read_it() -> None:
    adapter_launch.note_arguments(Arguments())
    assert candidate_steps(lambda _: [9]) == [0, 1, 4]
    assert os.environ[BUILT_VARIABLE] == "off,s1k1d2,s4k1d5"
    adapter_launch._asked = None  # a child has resolved nothing itself
    assert candidate_steps(lambda _: [9]) == [0, 1, 4]


def test_a_second_launch_in_the_same_process_decides_anew() -> None:
    os.environ[BUILT_VARIABLE] = "off,s9k1d10"
    adapter_launch.note_arguments(Arguments())
    assert candidate_steps(lambda _: [9]) == [0, 1, 4]


def test_sglangs_configuration_is_asked_only_if_it_was_given() -> None:
    assert candidate_steps(lambda _: [2, 6], "adaptive.json") == [2, 6]
    assert os.environ[BUILT_VARIABLE] == "s2k1d3,s6k1d7"


def test_why_sglang_turned_adaptive_off_is_kept() -> None:
    adapter_launch.note_arguments(Arguments())
    adapter_launch.note_reason("attention DP is not supported", object())
    asked = adapter_launch.asked()
    assert asked is not None
    assert asked.turned_off == "attention DP is not supported"
    adapter_launch.note_reason(None, object())
    assert asked.turned_off == ""
