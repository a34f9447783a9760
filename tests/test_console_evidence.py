"""A decision explained: clauses, evidence, what would have to change; the filtered list."""

from __future__ import annotations

from dataclasses import replace

from console.board import Board, seeded
from console.evidence import as_text, change_if, explained
from console.journal import Kind, Sieve, sifted
from console.lookups import Looked, Lookups
from console.scene import Scene
from store.records import Decision, Op, Outcome
from tests.console_story import (
    DEEP,
    ENGINE,
    NARROW,
    OFF,
    START_MS,
    clause,
    decision,
    past,
    sample,
    story,
    tick,
)


def scene(**changes: object) -> Scene:
    """The story's end."""
    board = seeded(Board(ENGINE), story(), past())
    return replace(Scene(board, START_MS + 120_000), **changes)  # type: ignore[arg-type]


def test_the_opposite_of_each_met_clause_is_told_with_its_distance() -> None:
    taken = decision(38, DEEP, NARROW)
    assert change_if(scene(), taken) == ("concurrency < 24 req (was 25), or for less than 5.0s",)
    low = decision(
        38, DEEP, NARROW, clauses=(clause("accept length", 1.5, Op.LT, 1.8, unit="tok"),)
    )
    assert change_if(scene(), low) == ("accept length ≥ 1.80 tok (was 1.50)",)


def test_a_person_a_refusal_and_shadow_need_something_else() -> None:
    assert (
        "op1 asks for something else" in change_if(scene(), decision(1, DEEP, OFF, author="op1"))[0]
    )
    refused = decision(1, DEEP, OFF, outcome=Outcome.REFUSED, message="kv_short")
    assert change_if(scene(), refused) == ("the engine takes it: kv_short",)
    shadow = decision(1, DEEP, OFF, outcome=Outcome.SHADOW)
    assert change_if(scene(), shadow)[0].startswith("automation is made active")


def test_evidence_is_the_observation_itself_or_why_it_is_missing() -> None:
    told = scene()
    entry = next(one for one in told.board.log if isinstance(one.event, Decision))
    event = entry.event
    assert isinstance(event, Decision)
    assert ("evidence", f"reading observation {event.seq}") in explained(told, entry)
    seen = tick(sample((event.seq - 1000) / 2))
    known = scene(looked=Lookups(evidence={event.seq: Looked(seen, 1)}))
    rows = dict(explained(known, entry))
    assert rows["evidence"].startswith("concurrency ")
    assert rows["other"].startswith("s1k1d2 when concurrency ≥ 24 req for 5.0s")
    gone = scene(looked=Lookups(evidence={event.seq: Looked(None, 1)}))
    assert dict(explained(gone, entry))["evidence"].endswith("is not stored any more")
    failed = scene(looked=Lookups(evidence={event.seq: Looked(None, 1, "timed out")}))
    assert dict(explained(failed, entry))["evidence"] == "could not be read: timed out"


def test_the_copied_text_names_the_engine_and_has_no_control_characters() -> None:
    told = scene()
    hostile = told.board.log[1]
    assert isinstance(hostile.event, Decision)
    bad = hostile.event.model_copy(update={"text": "a\x1b[2Jb", "message": "x\ny"})
    text = as_text(told, replace(hostile, event=bad))
    assert text.startswith(f"engine: {ENGINE}\n")
    assert "\x1b" not in text
    assert "message: x y" in text


def test_kinds_and_words_sift_the_list() -> None:
    told = scene()
    assert len(sifted(told, Sieve())) == len(told.board.log)
    people = sifted(told, Sieve(Kind.PEOPLE))
    assert [one.event.author for one in people if isinstance(one.event, Decision)] == ["op1"]
    trouble = sifted(told, Sieve(Kind.TROUBLE))
    assert len(trouble) == 2
    assert len(sifted(told, Sieve(words="dwell REFUSED"))) == 1
    assert sifted(told, Sieve(Kind.ENGINE)) == ()
    assert Sieve(words="x").next_kind() == Sieve(Kind.AUTOMATION, "x")
