"""The deciding side: tiers from counts alone, without flapping, journal without holes."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_patch.accept_window import WINDOW_STEPS, Window
from engine_patch.chooser import FLOOR_REQUESTS, JOURNAL_LENGTH, RETRY_STEPS, Chooser
from engine_patch.contract_words import Mode, SwitchReason
from engine_patch.tier import Boundary, Thresholds
from engine_patch.wire import RankCommand

TIERS = ("off", "s1k1d2", "s3k1d4")
THREE = Thresholds(
    tiers=("s3k1d4", "s1k1d2", "off"),
    boundaries=(Boundary(up_at=16, down_at=8), Boundary(up_at=64, down_at=40)),
    min_dwell_steps=10,
)


def chooser(**more: object) -> Chooser:
    return Chooser(TIERS, "s3k1d4", **more)  # type: ignore[arg-type]


def auto(order: Thresholds = THREE, **more: object) -> Chooser:
    made = chooser(**more)
    made.command(RankCommand(mode=Mode.AUTO, thresholds=order, generation=1))
    return made


def run(made: Chooser, batches: list[int]) -> list[str]:
    return [made.next_tier(batch) for batch in batches]


def test_a_commanded_tier_starts_with_the_next_batch() -> None:
    made = chooser()
    assert made.next_tier(4) == "s3k1d4"
    made.command(RankCommand(mode=Mode.OFF, epoch=2, generation=3))
    assert made.tier == "s3k1d4"
    assert made.next_tier(4) == "off"
    entry = made.journal[-1]
    assert (entry.from_tier, entry.to_tier, entry.reason) == (
        "s3k1d4", "off", SwitchReason.COMMAND,
    )  # fmt: skip
    assert (entry.epoch, entry.generation, entry.step, entry.batch) == (2, 3, 2, 4)


def test_on_without_a_tier_means_the_last_speculating_one() -> None:
    made = chooser()
    made.command(RankCommand(mode=Mode.ON, tier="s1k1d2"))
    made.next_tier(1)
    made.command(RankCommand(mode=Mode.OFF))
    made.next_tier(1)
    made.command(RankCommand(mode=Mode.ON))
    assert made.next_tier(1) == "s1k1d2"


def test_an_idle_engine_obeys_without_a_batch() -> None:
    made = chooser()
    made.command(RankCommand(mode=Mode.OFF))
    assert made.settle_idle() == "off"
    assert made.step == 0


def test_a_moment_of_emptiness_between_two_waves_is_no_load_to_follow() -> None:
    made = auto()
    assert made.next_tier(100) == "off"
    run(made, [100] * 20)
    assert made.settle_idle() == "off"
    assert run(made, [100] * 20) == ["off"] * 20
    assert made.switches == 1


def test_auto_follows_the_batch_and_goes_straight_across_two_boundaries() -> None:
    made = auto()
    assert run(made, [4, 100]) == ["s3k1d4", "off"]
    assert made.journal[-1].reason is SwitchReason.BATCH_UP
    assert run(made, [3] * 12)[-1] == "s3k1d4"
    assert made.journal[-1].reason is SwitchReason.BATCH_DOWN


def test_auto_keeps_a_tier_for_its_dwell() -> None:
    made = auto()
    assert made.next_tier(20) == "s1k1d2"
    assert run(made, [2] * 9) == ["s1k1d2"] * 9
    assert made.next_tier(2) == "s3k1d4"


def test_a_batch_that_alternates_around_a_boundary_switches_once() -> None:
    made = auto()
    run(made, [15, 16] * 1000)
    assert made.switches == 1


def test_a_batch_beyond_a_tiers_graphs_leaves_it_at_once() -> None:
    made = auto(largest_batch={"s3k1d4": 12})
    assert run(made, [12, 13]) == ["s3k1d4", "s1k1d2"]
    assert run(made, [9]) == ["s1k1d2"]


def test_poor_acceptance_leaves_a_tier_and_waits_longer_each_time() -> None:
    order = THREE.model_copy(update={"min_accept_length": {"s3k1d4": 2.0}})
    made = auto(order)
    left = []
    for _ in range(20 * RETRY_STEPS):
        before = made.tier
        tier = made.next_tier(4)
        if tier != before and before == "s3k1d4":
            left.append(made.step)
        if tier == "s3k1d4":
            made.verified(tier, [0, 0, 1, 0])
    assert made.journal[0].reason is SwitchReason.ACCEPT_FLOOR
    waits = [b - a for a, b in itertools.pairwise(left)]
    assert len(waits) >= 3
    assert all(b > 1.5 * a for a, b in itertools.pairwise(waits))
    assert waits[0] >= RETRY_STEPS


def test_a_small_sample_never_condemns_a_tier() -> None:
    order = THREE.model_copy(update={"min_accept_length": {"s3k1d4": 2.0}})
    made = auto(order)
    for _ in range(FLOOR_REQUESTS - 1):
        assert made.next_tier(1) == "s3k1d4"
        made.verified("s3k1d4", [0])


def test_results_of_an_earlier_tier_do_not_enter_the_window() -> None:
    made = chooser()
    made.next_tier(2)
    made.command(RankCommand(mode=Mode.ON, tier="s1k1d2"))
    made.next_tier(2)
    made.verified("s3k1d4", [3, 3])  # under overlap these arrive one batch late
    assert made.window.length is None
    made.verified("s1k1d2", [1, 0])
    assert made.window.length == pytest.approx(1.5)


def test_the_window_reports_acceptance_per_position() -> None:
    window = Window("s3k1d4")
    window.add([3, 1, 0, 2])
    record = window.record()
    assert record.per_position == (0.75, 0.5, 0.25)
    assert record.length == pytest.approx(2.5)
    assert record.length == pytest.approx(1 + sum(record.per_position))


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=8), min_size=1, max_size=150))
def test_the_running_sums_equal_the_newest_window(steps: list[list[int]]) -> None:
    window = Window("s3k1d4")
    for step in steps:
        window.add(step)
    newest = [count for step in steps[-WINDOW_STEPS:] for count in step]
    assert (window.requests, window.accepted) == (len(newest), sum(newest))
    assert window.record().per_position == tuple(
        sum(count > depth for count in newest) / len(newest) for depth in range(3)
    )


def test_a_move_up_without_free_slots_is_refused_and_nothing_moves() -> None:
    made = chooser(reserve_follows=True)
    made.command(RankCommand(mode=Mode.OFF))
    made.next_tier(10)
    assert made.journal[-1].reserve_returned == 6
    answer = made.command(RankCommand(mode=Mode.ON, generation=9), running=10, free_slots=59)
    assert not answer.applied
    assert answer.message.startswith("kv_short")
    assert "60" in answer.message
    assert made.next_tier(10) == "off"
    assert made.generation == 0
    assert made.command(RankCommand(mode=Mode.ON), running=10, free_slots=60).applied


def test_a_journal_reader_that_fell_behind_sees_a_hole() -> None:
    made = chooser()
    for turn in range(JOURNAL_LENGTH + 10):
        made.command(RankCommand(mode=Mode.OFF if turn % 2 == 0 else Mode.ON))
        made.next_tier(1)
    assert made.journal_first == 11
    assert next(e.seq for e in made.journal_since(0)) == 11


steps = st.lists(
    st.tuples(st.integers(1, 300), st.lists(st.integers(0, 3), max_size=4)), max_size=200
)


@given(steps)
def test_ranks_that_see_the_same_counts_agree_on_every_step(
    seen: list[tuple[int, list[int]]],
) -> None:
    order = THREE.model_copy(update={"min_accept_length": {"s3k1d4": 2.0, "s1k1d2": 1.5}})
    one, two = auto(order), auto(order)
    for batch, accepted in seen:
        assert one.next_tier(batch) == two.next_tier(batch)
        for made in (one, two):
            made.verified(made.tier, accepted)
    assert list(one.journal) == list(two.journal)


@given(st.lists(st.integers(1, 300), max_size=300))
def test_automatic_switches_are_a_dwell_apart_and_numbered_without_holes(
    batches: list[int],
) -> None:
    made = auto()
    run(made, batches)
    entries = list(made.journal)
    assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
    for a, b in itertools.pairwise(entries):
        assert b.step - a.step >= THREE.min_dwell_steps
        assert a.to_tier == b.from_tier


@given(st.lists(st.integers(9, 15), max_size=200))
def test_a_load_within_the_band_never_switches(batches: list[int]) -> None:
    made = auto()
    run(made, batches)
    assert made.switches == 0


def test_auto_waits_for_free_slots_before_it_moves_to_a_tier_that_needs_more() -> None:
    made = auto(reserve_follows=True)
    assert run(made, [70] * 20)[-1] == "off"
    free = 10
    # Five requests need 5 x (8 - 2) more slots than off holds.
    said = [made.next_tier(5, free_slots=lambda: free) for _ in range(20)]
    assert set(said) == {"off"}
    free = 30
    assert made.next_tier(5, free_slots=lambda: free) == "s3k1d4"


def test_free_slots_are_not_asked_for_where_nothing_more_is_needed() -> None:
    made = auto(reserve_follows=True)

    def never() -> int:
        raise AssertionError("asked")

    assert [made.next_tier(70, free_slots=never) for _ in range(20)][-1] == "off"
    follows_not = auto()
    assert [follows_not.next_tier(5, free_slots=never) for _ in range(3)][-1] == "s3k1d4"
