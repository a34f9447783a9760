"""The view model: built from ticks alone, in whatever order and shape they come."""

from __future__ import annotations

import re
from datetime import UTC
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.board import UNCONFIRMED, WINDOW_MS, Board, apply, seeded, with_status
from console.card import card
from console.events import EngineChange, GapSpan, JournalHole
from console.gauges import table
from console.header import essentials, header
from console.scene import Scene, elapsed_s, freshness, override_left_s, strip_signs
from console.spans import plain
from engine_patch.contract import JournalEntry
from engine_patch.contract_words import SwitchReason
from store.observations import KvNumbers, RankTier
from store.records import Decision, EngineSwitch, Outcome, Tick
from tests.console_story import (
    BOOT,
    DEEP,
    ENGINE,
    NARROW,
    OFF,
    START_MS,
    decision,
    facts,
    gap,
    override,
    past,
    policy,
    sample,
    status,
    story,
    tick,
)


def told(*ticks: Tick) -> Board:
    """A board that knows the engine and has seen ``ticks``."""
    return seeded(with_status(Board(ENGINE), status()), ticks, ())


def scene(board: Board, second: float = 120.3) -> Scene:
    """``board`` so many seconds into the story."""
    return Scene(board, now_ms=START_MS + round(second * 1000), zone=UTC)


def row(board: Board, label: str) -> str:
    """The row of the trend table that begins with ``label``."""
    rows = [plain(line) for line in table(scene(board), 80)]
    return next(text for text in rows if text.strip().startswith(label))


def trend(board: Board, label: str) -> str:
    """The drawn columns of one row."""
    return row(board, label)[29:58]


def test_a_tick_that_was_seen_already_changes_nothing() -> None:
    board = told(*story(10))
    assert board.tick is not None
    assert apply(board, board.tick) is board
    assert apply(board, story(5)[-1]) is board


def test_another_engines_tick_changes_nothing() -> None:
    board = told(*story(1))
    foreign = sample(3, engine_id="b200-0")
    assert apply(board, tick(foreign)) is board


def test_history_is_kept_for_the_window_and_no_longer() -> None:
    board = told(*story(120), *(tick(sample(120 + half / 2)) for half in range(1, 200)))
    assert board.axis_ms - board.history[0].at_ms <= WINDOW_MS + 10_000
    assert len(board.history) < 270


def test_ticks_in_any_order_tell_the_same_history() -> None:
    assert told(*reversed(story(20))) == told(*story(20))


def test_the_gap_is_blank_in_every_trend_and_a_dot_in_the_mode_strip() -> None:
    board = told(*story())
    for label in ("concurrency", "accept length", "KV slots", "decode", "queue"):
        assert trend(board, label)[20:22] == "  ", label
        assert " " not in trend(board, label)[:20].strip(), label
    assert "··" in trend(board, "mode")


def test_the_mode_strip_shares_the_trends_time_axis() -> None:
    strip = trend(told(*story()), "mode")
    busy = trend(told(*story()), "concurrency")
    assert strip.index("1") in range(8, 11)
    assert len(strip.rstrip()) == len(busy.rstrip())


def test_without_ticks_the_picture_does_not_advance() -> None:
    board = told(*story())
    assert [plain(line) for line in table(scene(board, 120.2), 80)] == [
        plain(line) for line in table(scene(board, 900.0), 80)
    ]


def test_gaps_do_advance_it() -> None:
    board = told(*story())
    later = seeded(board, [tick(gap(120 + half / 2), None) for half in range(1, 40)], ())
    assert trend(later, "concurrency").endswith("    ")


def test_a_repeated_set_of_numbers_is_no_new_measurement() -> None:
    board = told(*(tick(sample(second, fresh=False)) for second in range(30)))
    assert trend(board, "concurrency").strip() == ""
    assert set(trend(board, "mode").replace("·", "")) == {"3"}


def test_ranks_that_differ_are_a_question_mark_in_the_strip() -> None:
    board = told(tick(sample(0), None), tick(sample(1), None))
    assert board.history[-1].tier == UNCONFIRMED
    assert trend(board, "mode").rstrip().endswith("?")


def test_missing_numbers_are_dashes_everywhere() -> None:
    bare = sample(
        0,
        concurrency=None,
        replica_concurrency=None,
        queued=None,
        accept_length=None,
        kv=KvNumbers(),
        lease_remaining_s=None,
    )
    board = told(tick(bare, decode_tok_s=None))
    for label, unit in (
        ("concurrency", "req"),
        ("accept length", "tok"),
        ("KV slots", "%"),
        ("decode", "tok/s"),
        ("queue", "req"),
    ):
        assert re.search(rf"{label} +- {unit}", row(board, label)), row(board, label)
        assert trend(board, label).strip() == ""


def test_an_off_engine_shows_no_accept_length() -> None:
    assert "- tok" in row(told(tick(sample(0, OFF), OFF)), "accept length")


def test_a_zero_is_shown_as_zero() -> None:
    idle = sample(0, concurrency=0, replica_concurrency=0, queued=0)
    board = told(tick(idle, decode_tok_s=0.0))
    assert re.search(r"concurrency +0 req", row(board, "concurrency"))
    assert re.search(r"decode +0 tok/s", row(board, "decode"))


def test_the_busiest_replica_is_compared_with_the_thresholds() -> None:
    assert facts().identity is not None
    identity = facts().identity.model_copy(update={"dp_size": 2})  # type: ignore[union-attr]
    board = with_status(told(), status(known=facts(identity=identity)))
    board = apply(board, tick(sample(0, concurrency=30, replica_concurrency=20)))
    assert re.search(r"busiest replica +20 req", row(board, "busiest replica"))


def test_growing_ranges_never_shrink() -> None:
    board = told(tick(sample(0), decode_tok_s=5300.0), tick(sample(1), decode_tok_s=10.0))
    assert board.tops["decode"] == 6000
    assert "0–6k" in row(board, "decode")


def test_the_cap_of_the_engine_ends_the_range_of_concurrency() -> None:
    assert "0–64" in row(told(*story(1)), "concurrency")


def test_a_clock_that_is_set_back_does_not_turn_the_axis_back() -> None:
    first = tick(sample(10))
    second = tick(sample(11, at_utc_ms=START_MS - 3_600_000))
    third = tick(sample(12, at_utc_ms=START_MS - 3_599_000, at_mono_ms=5, clock_id="restarted"))
    board = told(first, second, third)
    places = [point.at_ms for point in board.history]
    assert places == [START_MS + 10_000, START_MS + 11_000, START_MS + 12_000]


@given(
    st.lists(
        st.tuples(
            st.integers(-(10**9), 10**9),
            st.integers(0, 10**9),
            st.sampled_from(["a", "b"]),
            st.booleans(),
        ),
        max_size=12,
    ),
    st.integers(-(10**9), 10**9),
)
@settings(max_examples=60, deadline=None)
def test_whatever_the_clocks_say_ages_are_never_negative(
    readings: list[tuple[int, int, str, bool]], now: int
) -> None:
    board = with_status(Board(ENGINE), status())
    for number, (utc, mono, clock_id, lost) in enumerate(readings):
        changes: dict[str, Any] = {
            "seq": number + 1,
            "at_utc_ms": START_MS + utc,
            "at_mono_ms": mono,
            "clock_id": clock_id,
        }
        seen = gap(0).model_copy(update=changes) if lost else sample(0, **changes)
        board = apply(board, tick(seen, None if lost else DEEP, override=override()))
    places = [point.at_ms for point in board.history]
    assert places == sorted(places)
    shown = Scene(board, now_ms=START_MS + now, zone=UTC)
    fresh = freshness(shown)
    assert fresh.age_s is None or fresh.age_s >= 0
    assert elapsed_s(shown) >= 0
    assert (override_left_s(shown) or 0.0) >= 0
    for entry in board.log:
        assert not isinstance(entry.event, GapSpan) or entry.event.lasted_ms >= 0
    text = "\n".join(plain(line) for line in (header(shown, 80), *card(shown, 80)))
    assert not re.search(r"(age|STALE|for) -", text)


@given(st.integers(30, 140), st.integers(3, 40))
@settings(max_examples=30, deadline=None)
def test_every_part_fills_its_width_exactly(size: int, height: int) -> None:
    shown = scene(told(*story(60)), 60.2)
    for line in (header(shown, size), *card(shown, size), *essentials(shown, size, height)):
        assert len(plain(line)) == size


def test_age_counts_from_the_newest_fresh_sample() -> None:
    board = told(tick(sample(0)))
    assert freshness(scene(board, 0.3)).words == "age 0.3s"
    stuck = apply(board, tick(sample(1, fresh=False), stale_s=1.0))
    assert freshness(scene(stuck, 1.3)).words == "age 1.3s"


def test_after_three_poll_periods_it_is_stale_in_words() -> None:
    board = told(tick(sample(0)))
    assert not freshness(scene(board, 1.5)).stale
    assert freshness(scene(board, 1.6)).words == "STALE 1.6s"


def test_a_board_without_a_sample_has_no_data() -> None:
    assert freshness(scene(told())).words == "no data"
    assert freshness(scene(told(tick(gap(0), None)))).words == "no data"


def test_time_left_goes_on_between_ticks_and_stops_at_zero() -> None:
    board = told(tick(sample(10), override=override(), override_left_s=3.0))
    assert override_left_s(scene(board, 11.0)) == pytest.approx(2.0)
    assert override_left_s(scene(board, 60.0)) == 0.0


def test_gaps_one_after_another_are_one_entry_that_grows() -> None:
    board = told(*story(86))
    spans = [entry.event for entry in board.log if isinstance(entry.event, GapSpan)]
    assert [(span.lasted_ms, span.over) for span in spans] == [(6000, False)]
    board = seeded(board, story(95), ())
    spans = [entry.event for entry in board.log if isinstance(entry.event, GapSpan)]
    assert [(span.lasted_ms, span.over) for span in spans] == [(11_000, True)]


def test_a_second_gap_is_a_second_entry() -> None:
    board = told(tick(gap(0), None), tick(sample(1)), tick(gap(2), None))
    assert sum(isinstance(entry.event, GapSpan) for entry in board.log) == 2


def test_a_decision_is_one_entry_from_asked_to_confirmed() -> None:
    asked = decision(1, DEEP, OFF, outcome=Outcome.REQUESTED, settled_utc_ms=None)
    done = decision(1, DEEP, OFF)
    board = told(tick(sample(1), decisions=(asked,)), tick(sample(2), decisions=(done,)))
    assert [entry.event for entry in board.log] == [done]


def test_what_was_stored_earlier_does_not_undo_what_a_tick_told() -> None:
    asked = decision(1, DEEP, OFF, outcome=Outcome.REQUESTED, settled_utc_ms=None)
    board = told(tick(sample(2), decisions=(decision(1, DEEP, OFF),)))
    again = seeded(board, (), (asked,))
    outcomes = [e.event.outcome for e in again.log if isinstance(e.event, Decision)]
    assert outcomes == [Outcome.CONFIRMED]


def test_the_log_is_newest_first() -> None:
    board = seeded(told(*story()), (), past())
    times = [entry.at_utc_ms for entry in board.log]
    assert times == sorted(times, reverse=True)
    assert len(times) == 6


def journal(seq: int, reason: SwitchReason) -> JournalEntry:
    return JournalEntry(seq=seq, from_tier=DEEP, to_tier=NARROW, reason=reason, step=900, batch=24)


def test_the_engines_own_changes_are_logged_and_commanded_ones_are_not_twice() -> None:
    own, asked = journal(4, SwitchReason.BATCH_UP), journal(5, SwitchReason.COMMAND)
    board = told(tick(sample(1, switches=(own, asked), journal_hole=True)))
    kinds = [type(entry.event) for entry in board.log]
    assert sorted(kind.__name__ for kind in kinds) == ["EngineChange", "JournalHole"]
    assert JournalHole in kinds


def test_a_stored_switch_and_the_same_one_in_a_tick_are_one_entry() -> None:
    own = journal(4, SwitchReason.BATCH_UP)
    stored = EngineSwitch(engine_id=ENGINE, boot_id=BOOT, seen_utc_ms=START_MS, entry=own)
    board = seeded(told(tick(sample(1, switches=(own,)))), (), (), (stored,))
    assert [entry.event for entry in board.log] == [EngineChange(own)]


def test_the_policy_orders_the_tiers() -> None:
    board = told()
    assert board.tiers == (DEEP, NARROW, OFF)
    assert board.speculating == (DEEP, NARROW)
    unordered = with_status(Board(ENGINE), status().model_copy(update={"policy": None}))
    assert set(unordered.tiers) == {DEEP, NARROW, OFF}


def test_a_status_without_a_policy_keeps_the_known_one() -> None:
    board = with_status(told(), status().model_copy(update={"policy": None}))
    assert board.policy == policy()


def test_tiers_with_equal_steps_get_letters_in_the_strip() -> None:
    assert strip_signs((DEEP, NARROW, OFF)) == {DEEP: "3", NARROW: "1", OFF: "0"}
    assert strip_signs((DEEP, "s3k4d16", OFF)) == {DEEP: "a", "s3k4d16": "b", OFF: "0"}


def test_ranks_that_were_not_observed_are_not_counted_as_confirming() -> None:
    half_seen = (
        RankTier(dp_rank=0, tp_rank=0, tier=DEEP),
        RankTier(dp_rank=0, tp_rank=1, tier=None),
    )
    late = scene(told(tick(sample(120, applied=half_seen))))
    assert "confirms s3k1d4 on 1/2 ranks, 1 not observed" in plain(card(late, 120)[1])
