"""The decision log: one line per entry, and everything known of one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC

import pytest

from console.board import Board, seeded, with_status
from console.events import EngineChange, GapSpan, JournalHole, Logged
from console.formatting import ASCII
from console.log import details, entry_line, heading, rows
from console.scene import Scene
from console.spans import plain
from engine_patch.contract import JournalEntry
from engine_patch.contract_words import SwitchReason
from store.records import Decision, Outcome
from tests.console_story import DEEP, ENGINE, NARROW, OFF, START_MS, decision, past, status, story


def scene() -> Scene:
    board = seeded(with_status(Board(ENGINE), status()), story(), past())
    return Scene(board, now_ms=START_MS + 120_300, zone=UTC)


def entry(event: Decision | EngineChange | GapSpan | JournalHole) -> Logged:
    return Logged("one", START_MS, event)


def written(event: Decision | EngineChange | GapSpan | JournalHole, size: int = 80) -> str:
    return plain(entry_line(scene(), entry(event), size, selected=False))


def told(event: Decision | EngineChange | GapSpan | JournalHole) -> dict[str, str]:
    return dict(details(scene(), entry(event)))


def test_a_decision_says_when_what_who_why_and_how_it_ended() -> None:
    text = written(decision(38, DEEP, NARROW, latency_ms=201.0))
    assert text == (
        " 12:02:31  s3k1d4  → s1k1d2  auto     concurrency 25 ≥ 24 held 5.0s    ok 201ms "
    )


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        (Outcome.REQUESTED, "asked"),
        (Outcome.REFUSED, "refused"),
        (Outcome.TIMED_OUT, "timed out"),
        (Outcome.SHADOW, "shadow"),
        (Outcome.SUPERSEDED, "replaced"),
    ],
)
def test_each_outcome_has_a_word(outcome: Outcome, word: str) -> None:
    assert written(decision(1, DEEP, OFF, outcome=outcome)).endswith(f" {word} ")


def test_a_refusal_gives_the_engines_words_instead_of_the_policys() -> None:
    text = written(decision(1, DEEP, OFF, outcome=Outcome.REFUSED, message="kv_short: 900 needed"))
    assert "kv_short: 900 needed" in text


def test_a_narrow_log_keeps_the_author_of_a_person() -> None:
    by_hand = written(decision(1, DEEP, OFF, author="op1", text="load test", clauses=()), 60)
    assert "s3k1d4 → off" in by_hand
    assert "op1: load test" in by_hand
    assert len(by_hand) == 60
    assert "auto" not in written(decision(1, DEEP, OFF), 60)


def test_a_gap_that_lasts_says_so() -> None:
    assert "gap 4.1s so far" in written(GapSpan(START_MS, 4100, "unreachable"))
    assert "gap 4.1s  " in written(GapSpan(START_MS, 4100, "unreachable", over=True))
    assert told(GapSpan(START_MS, 4100, "unreachable"))["lasted"] == "4.1s so far"


def test_the_engines_own_change_names_its_cause() -> None:
    own = JournalEntry(
        seq=4,
        from_tier=DEEP,
        to_tier=NARROW,
        reason=SwitchReason.ACCEPT_FLOOR,
        step=900,
        batch=24,
        accept_length=1.7,
    )
    assert "engine" in written(EngineChange(own))
    assert told(EngineChange(own))["reason"] == "accept floor at 24 running, accept length 1.70 tok"
    assert told(EngineChange(own))["journal"] == "entry 4"


def test_a_hole_in_the_journal_is_an_entry_of_its_own() -> None:
    assert "entries of the engine's journal" in written(JournalHole(), 120)
    assert "gone" in told(JournalHole())["meaning"]


def test_details_list_every_clause_with_whether_it_was_met() -> None:
    rows_told = details(scene(), entry(decision(38, DEEP, NARROW, attempts=3)))
    assert ("clauses", "met: concurrency 25 ≥ 24 req held 5.0s") in rows_told
    assert ("outcome", "ok 184ms after 3 attempts") in rows_told
    assert ("order", "epoch 1, generation 37") in rows_told


def test_the_selected_entry_is_marked_by_a_sign_and_not_by_colour_alone() -> None:
    key = scene().board.log[2].key
    shown = [plain(row) for row in rows(scene(), 80, 0, 6, key)]
    assert [row[0] for row in shown] == [" ", " ", "▸", " ", " ", " "]
    in_ascii = rows(replace(scene(), glyphs=ASCII), 80, 0, 6, key)
    assert plain(in_ascii[2])[0] == ">"


def test_an_empty_log_says_so() -> None:
    bare = Scene(with_status(Board(ENGINE), status()), now_ms=START_MS)
    assert [plain(row).strip() for row in rows(bare, 80, 0, 6, None)] == ["none yet"]


def test_the_rule_says_what_is_hidden_above_the_selected_entry() -> None:
    assert "select, enter why" in plain(heading(scene(), 80))
    assert "3 newer, esc shows them" in plain(heading(scene(), 80, 3))
