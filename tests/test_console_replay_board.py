"""The replay's pure parts: its board, its lines, where a typed place leads, what has room."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.board import Board, seeded, with_status
from console.formatting import ASCII
from console.replay_board import (
    SPEEDS,
    ReplayBoard,
    glyphs_of,
    merged,
    other_speed,
    seed_count,
    seen_from,
)
from console.replay_goto import GotoError, goto
from console.replay_layout import replay_plan
from console.replay_lines import header, line_cells, replay_notices, time_line, verified_words
from console.replay_whatif import page, pane, rate_words, verify_page
from console.scene import Scene
from console.spans import plain, width
from controlplane.replay_messages import Difference, Span, Verification
from controlplane.replay_player import FASTEST, SLOWEST, Mark
from controlplane.sessions_messages import ReplayRequest, ReplayState, SessionInfo, StripAnswer
from controlplane.whatif_estimate import Estimate, LoadModel
from controlplane.whatif_messages import Side, Turn, WhatIf
from store.records import Marker
from tests.console_story import DEEP, ENGINE, NARROW, OFF, START_MS, past, status, story

SESSION = SessionInfo(
    id=1,
    name="night",
    engine_id=ENGINE,
    first_seq=1,
    last_seq=241,
    started_utc_ms=START_MS,
    ended_utc_ms=START_MS + 120_000,
    ticks=241,
)


def at(place: int = 120, **changes: object) -> ReplayState:
    """A replay at rest."""
    known = {
        "session": SESSION,
        "playing": False,
        "speed": 1.0,
        "seq": place + 1,
        "at_utc_ms": START_MS + 500 * place,
        "place": place,
        "ticks": 241,
        "tape_s": place / 2,
        "length_s": 120.0,
        "ended": False,
    }
    return ReplayState.model_validate(known | changes)


def strip(cells: int = 58) -> StripAnswer:
    """A line with one of everything."""
    return StripAnswer(
        cells=cells,
        tiers=tuple(DEEP if cell < 30 else OFF for cell in range(cells)),
        gaps=(10,),
        marks={
            Mark.DECISION: (5, 30),
            Mark.DIFFERENCE: (30,),
            Mark.MARKER: (40,),
            Mark.ALARM: (10,),
        },
        first_utc_ms=START_MS,
        last_utc_ms=START_MS + 120_000,
        most={"concurrency": 30.0, "decode": 1800.0, "queue": None},
    )


def replay(**changes: object) -> ReplayBoard:
    """A replay with everything known."""
    board = seeded(with_status(Board(ENGINE), status()), story(), past(), ())
    return replace(ReplayBoard(board, state=at(), strip=strip()), **changes)  # type: ignore[arg-type]


def scene(told: ReplayBoard, *, ascii_only: bool = False) -> Scene:
    """The scene of a replay."""
    return Scene(board=told.board, now_ms=told.now_ms, zone=UTC, glyphs=glyphs_of(ascii_only))


def what_if(**changes: object) -> WhatIf:
    """An answer with an estimate."""
    covered = Estimate(tok_s=1610.4, low=1470.0, high=1750.0, coverage=0.83, seconds=99.0)
    config = status().policy
    assert config is not None
    turn = Turn(seq=61, at_utc_ms=START_MS + 30_000, from_tier=DEEP, to_tier=NARROW, reason="load")
    known = {
        "policy": config,
        "load": LoadModel.RECORDED,
        "samples": 240,
        "gaps": 1,
        "seconds": 120.0,
        "recorded": Side(
            switches=1, turns=(turn,), seconds_in={DEEP: 30.0, NARROW: 90.0}, estimate=covered
        ),
        "what_if": Side(switches=0, turns=(), seconds_in={DEEP: 120.0}, estimate=covered),
        "recorded_covered_tok_s": 1490.0,
        "oracle": covered,
        "first_difference": 61,
        "differences": (61, 200),
        "cannot_know": ("the load is taken as recorded",),
    }
    return WhatIf.model_validate(known | changes)


def test_the_line_shows_each_mark_the_position_and_the_tiers() -> None:
    told = replay()
    marks, tiers = (plain(row) for row in time_line(scene(told), told, 80, 2))
    line = marks[11:69]
    assert marks[10] == "├"
    assert marks[69] == "┤"
    assert (line[5], line[10], line[30], line[40]) == ("d", "!", "x", "m")
    assert line.count("●") == 1
    assert line[29] == "●"  # observation 121 of 241
    assert (tiers[11], tiers[11 + 10], tiers[11 + 57]) == ("3", "·", "0")
    for cell in (0, 57):
        moved = replace(told, state=at(0 if cell == 0 else 240))
        assert plain(time_line(scene(moved), moved, 80, 2)[0])[11 + cell] == "●"


def test_the_what_ifs_tiers_stand_under_the_recorded_ones() -> None:
    asked = strip().model_copy(update={"what_if": (NARROW,) * 57 + (None,)})
    told = replay(strip=asked, what_if=what_if())
    rows = [plain(row) for row in time_line(scene(told), told, 80, 3)]
    assert rows[2].startswith(" what-if   1111")
    assert rows[2][11 + 57] == "·"


@pytest.mark.parametrize("ascii_only", [False, True])
def test_every_line_fits_and_ascii_is_ascii(ascii_only: bool) -> None:
    marker = Marker(
        engine_id=ENGINE, at_utc_ms=1, seq=121, kind="deploy", author="op1", text="v2 " * 60
    )
    told = replay(markers=(marker,), what_if=what_if(), trouble="gone", busy="verifying")
    here = scene(told, ascii_only=ascii_only)
    for cells in (60, 80, 120, 200):
        cut = replace(told, strip=strip(line_cells(cells)))
        rows = [
            header(here, cut, cells),
            *time_line(here, cut, cells, 3),
            *replay_notices(here, cut, cells),
            *pane(here, cut, cells, 6),
            *pane(here, cut, cells, 13),
        ]
        assert all(width(row) <= cells for row in rows)
        if ascii_only:
            assert all(plain(row).isascii() for row in rows)
        assert "REPLAY" in plain(rows[0])
        assert len(pane(here, cut, cells, 6)) == 6


def test_a_replay_that_has_not_answered_yet_shows_the_mark_all_the_same() -> None:
    told = ReplayBoard(Board(""))
    assert "REPLAY opening" in plain(header(scene(told), told, 80))
    assert "is being read" in plain(time_line(scene(told), told, 80, 2)[0])
    assert replay_notices(scene(told), told, 80) == ()
    assert pane(scene(told), told, 80, 6) == ()


def test_a_marker_is_shown_at_its_observation_and_shortly_after() -> None:
    marker = Marker(engine_id=ENGINE, at_utc_ms=1, seq=100, kind="deploy", author="op1", text="v2")
    told = replay(markers=(marker,))
    seen = [replace(told, state=at(place)).marker is not None for place in (98, 99, 110, 118, 119)]
    assert seen == [False, True, True, True, False]


def test_the_ranges_of_the_trends_are_those_of_the_whole_recording() -> None:
    board = seen_from(status(), strip(), story()[:3], (), ())
    assert board.tops == {"concurrency": 40.0, "decode": 2000.0, "queue": 8.0}
    assert seen_from(status(), None, (), (), ()).tops["decode"] == 100.0


def test_the_board_of_a_replay_is_the_live_one() -> None:
    live = seeded(with_status(Board(ENGINE), status()), story(), past(), ())
    seen = seen_from(status(), None, story(), past(), ())
    assert (seen.history, seen.log, seen.tick) == (live.history, live.log, live.tick)


def test_enough_ticks_are_read_to_fill_the_trends() -> None:
    assert seed_count(0.5) == 261
    assert seed_count(60.0) == 60
    assert seed_count(0.001) == 1000
    assert seed_count(0.0) == 1000


def test_speeds_rise_and_fall_between_their_ends() -> None:
    speed, seen = SLOWEST, [SLOWEST]
    while speed < FASTEST:
        speed = other_speed(speed, 1)
        seen.append(speed)
    assert tuple(seen) == SPEEDS
    assert other_speed(FASTEST, 1) == FASTEST
    assert other_speed(SLOWEST, -1) == SLOWEST
    assert other_speed(3.0, 1) == 4.0
    assert other_speed(3.0, -1) == 2.0


def test_a_key_that_is_held_down_is_one_order() -> None:
    step = ReplayRequest(step=1)
    jump = ReplayRequest(jump=Mark.MARKER)
    assert merged([step, step, step, jump, step]) == [ReplayRequest(step=3), jump, step]
    assert merged([]) == []


@pytest.mark.parametrize(
    ("typed", "order"),
    [
        ("#61", ReplayRequest(seq=61)),
        (" 61 ", ReplayRequest(seq=61)),
        ("50%", ReplayRequest(tape_s=60.0)),
        ("200 %", ReplayRequest(tape_s=120.0)),
        ("+30s", ReplayRequest(tape_s=90.0)),
        ("-2m", ReplayRequest(tape_s=0.0)),
        ("+9d", ReplayRequest(tape_s=120.0)),
    ],
)
def test_a_typed_place_is_an_order(typed: str, order: ReplayRequest) -> None:
    assert goto(typed, at(), UTC) == order


def test_a_typed_time_is_read_in_the_zone_of_the_screen_and_lies_in_the_recording() -> None:
    noon = 1_796_731_200_000  # 2026-12-08 12:00 UTC
    here = at(at_utc_ms=noon, session=SESSION.model_copy(update={"started_utc_ms": noon - 1000}))
    there = goto("12:00:30", here, UTC).at_utc_ms
    assert there == noon + 30_999
    assert goto("13:00:30", here, timezone(timedelta(hours=1))).at_utc_ms == there
    # Over midnight: of the two days the one that is recorded.
    night = SESSION.model_copy(
        update={"started_utc_ms": noon, "ended_utc_ms": noon + 18 * 3_600_000}
    )
    late = at(at_utc_ms=noon + 3_600_000, session=night)
    assert goto("03:00", late, UTC).at_utc_ms == noon + 15 * 3_600_000 + 999
    with pytest.raises(GotoError, match="no time of day"):
        goto("25:00", here, UTC)


@settings(deadline=None)
@given(
    st.one_of(st.text(max_size=30), st.from_regex(r"[+\-#]?\d{0,20}[%smhd:]*\d*", fullmatch=True))
)
def test_any_text_is_an_order_or_told_what_to_write(text: str) -> None:
    order: ReplayRequest | None
    try:
        order = goto(text, at(), UTC)
    except GotoError as error:
        told = str(error)
        order = None
    if order is None:
        assert told
    else:
        ways = (order.seq, order.at_utc_ms, order.tape_s)
        assert sum(way is not None for way in ways) == 1
        assert order.tape_s is None or 0 <= order.tape_s <= 120


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 120), st.integers(0, 3), st.booleans(), st.booleans())
def test_what_is_shown_never_needs_more_rows_than_there_are(
    columns: int, rows: int, notices: int, asked: bool, pane_shown: bool
) -> None:
    plan = replay_plan(columns, rows, notices, asked, asked and pane_shown)
    assert plan.essentials == (columns < 60 or rows < 16)
    if not plan.essentials:
        table = 2 + 5 * plan.trend_rows if plan.trend_rows else 0
        assert 1 + plan.line + plan.notices + 6 + table + plan.pane + 1 <= rows
        assert plan.log or plan.pane
        assert not plan.pane or (asked and pane_shown)


def test_the_pane_says_what_both_did_the_estimate_and_what_it_cannot_know() -> None:
    told = replay(what_if=what_if())
    text = "\n".join(plain(row) for row in pane(scene(told), told, 80, 13))
    for words in (
        "switches              1                 0",
        "1 490 measured    1 610 (1 470–1 750) est., covers 83 %",
        "▲ time in s3k1d4      25.0 %            100.0 %",
        "first difference 12:03:01, observation 61: recorded s1k1d2",
        "asked: the recorded policy; the load as recorded",
        "cannot know: the load is taken as recorded",
    ):
        assert words in text, text
    short = "\n".join(plain(row) for row in pane(scene(told), told, 80, 6))
    assert "switches 1 → 0 · s3k1d4 25 % → 100 % · s1k1d2 75 % → 0 %" in short
    assert "tok/s 1 490 → 1 610 (1 470–1 750) est., covers 83 %" in short


def test_without_a_table_there_is_no_number() -> None:
    nothing = Estimate(tok_s=None, low=None, high=None, coverage=0.0, seconds=0.0)
    assert rate_words(scene(replay()), nothing) == "not covered"


def test_the_page_lists_the_changes_and_counts_those_left_out() -> None:
    turn = Turn(seq=61, at_utc_ms=START_MS, from_tier=DEEP, to_tier=OFF, reason="load up")
    side = what_if().what_if.model_copy(update={"switches": 7, "turns": (turn,)})
    told = replay(what_if=what_if(what_if=side, first_difference=None, differences=()))
    text = "\n".join(plain(row) for row in page(scene(told), told, 72))
    assert "the two never part" in text
    assert "s3k1d4  → off" in text
    assert "and 6 more" in text


def test_a_verification_tells_differences_and_what_cannot_be_verified() -> None:
    found = Verification(
        ticks=300,
        verified=240,
        differing=2,
        differences=(
            Difference(seq=50, field="verdict", recorded="off", replayed="s3k1d4"),
            Difference(seq=51, field="verdict", recorded="off", replayed="s3k1d4"),
        ),
        not_verifiable=(Span(first_seq=1, last_seq=58, ticks=58, why="nothing is decided"),),
        unreadable=1,
        switches_same=3,
        switches_differing=("switch 4 of replica 0: batch 9: recorded off, replayed s3k1d4",),
    )
    text = "\n".join(plain(row) for row in verify_page(scene(replay()), found, 72))
    for words in (
        "DIFFERENT",
        "240 of 300 verdicts verified, 2 differ",
        "observations 1 to 58, 58 ticks: nothing is decided",
        "observation 50, verdict",
        "1 damaged rows left out",
        "switch 4 of replica 0",
    ):
        assert words in text, text
    words, _ = verified_words(replay(verified=found))
    assert "DIFFERENT, 2 differ, 1 engine switches differ; 240 of 300" in words
    assert "58 not verifiable" in words
    assert ASCII.box != glyphs_of(True).box
