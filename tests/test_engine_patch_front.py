"""The commanding side: order, claim, lease, refusals.  Time is an argument in milliseconds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_patch.contract_commands import Refusal, ReplicaAnswer, SpeculationCommand
from engine_patch.contract_words import Mode, OnLeaseEnd, RefusalCode, SwitchReason
from engine_patch.front import Accepted, Duplicate, Front

TIERS = ("off", "s1k1d2", "s3k1d4")
ORDER = {
    "tiers": ["s3k1d4", "off"],
    "boundaries": [{"up_at": 8, "down_at": 4}],
    "min_dwell_steps": 10,
}


def front(**more: object) -> Front:
    return Front.at_launch("boot-1", TIERS, "s3k1d4", **more)  # type: ignore[arg-type]


def command(
    generation: int, *, epoch: int = 0, holder: str = "cp", **more: object
) -> SpeculationCommand:
    return SpeculationCommand.model_validate(
        {"mode": "off", "holder": holder, "epoch": epoch, "generation": generation} | more
    )


def taken(state: Front, order: SpeculationCommand, now_ms: float = 0) -> Front:
    result = state.accept(order, now_ms)
    assert isinstance(result, Accepted), result
    return result.front.answered((ReplicaAnswer(dp_rank=0, applied=True),), now_ms)


def refused(state: Front, order: SpeculationCommand, now_ms: float = 0) -> Refusal:
    result = state.accept(order, now_ms)
    assert isinstance(result, Refusal), result
    return result


def test_a_fresh_engine_runs_its_launch_tier_at_order_zero() -> None:
    state = front()
    assert (state.mode, state.tier, state.epoch, state.generation) == (Mode.ON, "s3k1d4", 0, 0)
    assert state.claim(0) is None


def test_a_command_goes_to_the_ranks_with_its_order() -> None:
    result = front().accept(command(1, mode="on", tier="s1k1d2"), 0)
    assert isinstance(result, Accepted)
    assert (result.command.tier, result.command.epoch, result.command.generation) == (
        "s1k1d2",
        0,
        1,
    )
    assert (result.front.tier, result.front.holder) == ("s1k1d2", "cp")


def test_the_same_command_again_gets_the_same_answer_without_effect() -> None:
    state = taken(front(), command(1))
    result = state.accept(command(1), 5)
    assert isinstance(result, Duplicate)
    assert result.answer.duplicate
    assert result.answer.generation == 1


def test_a_command_the_ranks_did_not_answer_goes_out_again_when_repeated() -> None:
    first = front().accept(command(1), 0)
    assert isinstance(first, Accepted)
    again = first.front.accept(command(1), 1)
    assert isinstance(again, Accepted)
    assert again.command == first.command


def test_the_same_order_with_another_body_is_refused() -> None:
    state = taken(front(), command(1))
    assert refused(state, command(1, mode="on")).code is RefusalCode.OTHER_BODY


@pytest.mark.parametrize("order", [(0, 0), (0, 4), (0, 1)])
def test_an_older_order_is_refused_and_names_the_one_in_force(order: tuple[int, int]) -> None:
    state = taken(front(), command(5))
    refusal = refused(state, command(order[1], epoch=order[0]))
    assert refusal.code is RefusalCode.STALE_ORDER
    assert (refusal.epoch, refusal.generation) == (0, 5)


def test_order_zero_is_never_a_command() -> None:
    assert refused(front(), command(0)).code is RefusalCode.STALE_ORDER


def test_a_foreign_claim_is_refused_with_its_holder_and_remaining_time() -> None:
    state = taken(front(), command(1, lease_s=30), now_ms=1000)
    refusal = refused(state, command(2, holder="other"), now_ms=11_000)
    assert refusal.code is RefusalCode.FOREIGN_CLAIM
    assert refusal.claim is not None
    assert refusal.claim.holder == "cp"
    assert refusal.claim.remaining_s == pytest.approx(20)


def test_a_takeover_raises_the_epoch_and_the_old_holder_is_then_foreign() -> None:
    state = taken(front(), command(7))
    state = taken(state, command(1, holder="other", takeover=True))
    assert (state.epoch, state.generation, state.holder) == (1, 1, "other")
    assert refused(state, command(8)).code is RefusalCode.FOREIGN_CLAIM


def test_a_repeated_takeover_is_answered_once_more_and_raises_nothing() -> None:
    order = command(1, holder="other", takeover=True)
    state = taken(taken(front(), command(7)), order)
    result = state.accept(order, 0)
    assert isinstance(result, Duplicate)
    assert result.answer.epoch == 1


def test_a_takeover_of_an_epoch_that_has_passed_is_stale() -> None:
    state = taken(front(), command(1))
    state = taken(state, command(1, holder="other", takeover=True))
    assert refused(state, command(9, takeover=True)).code is RefusalCode.STALE_ORDER


def test_the_claim_falls_with_the_lease() -> None:
    state = taken(front(), command(1, lease_s=10))
    assert state.lease_ended(9_999) is None
    ended = state.lease_ended(10_000)
    assert ended is not None
    assert ended[0].claim(10_000) is None
    assert isinstance(ended[0].accept(command(2, holder="other"), 10_000), Accepted)


@pytest.mark.parametrize(
    ("end", "thresholds", "mode", "tier"),
    [
        (OnLeaseEnd.AUTO, ORDER, Mode.AUTO, None),
        (OnLeaseEnd.AUTO, None, Mode.ON, "s3k1d4"),
        (OnLeaseEnd.LAUNCH, ORDER, Mode.ON, "s3k1d4"),
    ],
)
def test_the_end_of_a_lease_goes_where_the_command_said(
    end: OnLeaseEnd, thresholds: object, mode: Mode, tier: str | None
) -> None:
    state = taken(front(), command(1, lease_s=1, on_lease_end=end, thresholds=thresholds))
    ended = state.lease_ended(1000)
    assert ended is not None
    assert ended[1] is not None
    assert (ended[1].mode, ended[1].tier) == (mode, tier)
    assert ended[1].reason is SwitchReason.LEASE_END
    assert (ended[0].mode, ended[0].tier) == (mode, tier)


def test_a_lease_that_ends_in_hold_changes_nothing_but_the_claim() -> None:
    state = taken(front(), command(1, lease_s=1, on_lease_end="hold"))
    ended = state.lease_ended(1000)
    assert ended is not None
    assert ended[1] is None
    assert (ended[0].mode, ended[0].tier, ended[0].holder) == (Mode.OFF, "off", None)


def test_an_unknown_tier_is_refused_with_the_built_ones() -> None:
    refusal = refused(front(), command(1, mode="on", tier="s2k4d16"))
    assert refusal.code is RefusalCode.UNKNOWN_TIER
    assert refusal.allowed == TIERS


def test_thresholds_with_an_unknown_tier_are_refused() -> None:
    order = {"tiers": ["s5k1d6", "off"], "boundaries": [{"up_at": 8, "down_at": 4}]}
    assert refused(front(), command(1, mode="auto", thresholds=order)).code is (
        RefusalCode.UNKNOWN_TIER
    )


def test_auto_without_any_thresholds_is_refused() -> None:
    assert refused(front(), command(1, mode="auto")).code is RefusalCode.NO_THRESHOLDS


def test_auto_uses_the_thresholds_sent_earlier() -> None:
    state = taken(front(), command(1, thresholds=ORDER))
    assert taken(state, command(2, mode="auto")).mode is Mode.AUTO


def test_thresholds_beyond_a_tiers_graphs_are_refused() -> None:
    state = front(largest_batch={"s3k1d4": 6})
    refusal = refused(state, command(1, mode="auto", thresholds=ORDER))
    assert refusal.code is RefusalCode.INVALID
    assert "at most 7" in refusal.message


def test_an_engine_that_cannot_switch_says_why() -> None:
    refusal = refused(front(unsupported="DP attention is on"), command(1))
    assert (refusal.code, refusal.message) == (RefusalCode.UNSUPPORTED, "DP attention is on")


def test_an_off_flavour_that_is_not_available_is_refused() -> None:
    assert refused(front(), command(1, off_flavour="cold")).code is RefusalCode.UNSUPPORTED


def test_another_protocol_is_refused_with_those_served() -> None:
    refusal = refused(front(), command(1, protocol=99))
    assert refusal.code is RefusalCode.PROTOCOL
    assert "99" in refusal.message


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]),
            st.integers(0, 3),
            st.integers(0, 6),
            st.sampled_from(["on", "off", "auto"]),
            st.booleans(),
            st.sampled_from([None, 1, 5]),
            st.integers(0, 3000),
        ),
        max_size=30,
    )
)
def test_the_order_in_force_never_falls_and_refusals_move_nothing(
    calls: list[tuple[str, int, int, str, bool, int | None, int]],
) -> None:
    state, now = front(), 0.0
    for holder, epoch, generation, mode, takeover, lease_s, wait in calls:
        now += wait
        ended = state.lease_ended(now)
        if ended is not None:
            state = ended[0]
        before = (state.epoch, state.generation)
        order = command(
            generation, epoch=epoch, holder=holder, mode=mode, takeover=takeover, lease_s=lease_s
        )
        foreign = state.holder not in (None, holder)
        result = state.accept(order, now)
        if isinstance(result, Accepted):
            assert not foreign or takeover
            state = result.front.answered((ReplicaAnswer(dp_rank=0, applied=True),), now)
            assert (state.epoch, state.generation) >= before
            assert state.holder == holder
        assert (state.epoch, state.generation) >= before
