"""A recording replays to the recorded verdicts: gaps, restarts, overrides, clock steps and all."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.replay_steps import FIRST_CONTACT, HOLE, NO_STATE
from controlplane.replay_verify import verify
from controlplane.sessions_inputs import CHECKPOINT_STEPS
from engine_patch.contract import JournalEntry
from engine_patch.contract_words import Mode, SwitchReason
from engine_patch.tier import OFF, Boundary, Thresholds
from store.policies import Stance
from store.records import EngineSwitch, OutcomeKind
from store.session_reader import SessionFile
from store.session_writer import SessionWriter
from tests.controlplane_script import ENGINE, config, facts, override, two_tiers
from tests.session_parts import META, Recorded

NAMES = (
    *("gap", "restart", "override", "extend", "release", "refusal", "lost", "clock", "process"),
    *("shadow", "active", "facts", "utc_back"),
)
EVENTS = st.sampled_from(NAMES)
STORY = st.lists(st.one_of(st.integers(0, 60), EVENTS), min_size=5, max_size=60)


def _tell(recorded: Recorded, event: str) -> None:
    """Something happens between two observations."""
    granted = recorded.state.granted
    match event:
        case "gap":
            recorded.gap()
        case "restart":
            recorded.restart(recorded.boot_id + "+")
        case "override":
            recorded.person(override(Mode.OFF, at_utc_ms=recorded.utc_ms, length_s=5))
        case "extend" if granted is not None:
            more = granted.override.model_copy(update={"granted_s": granted.override.granted_s + 3})
            recorded.person(more)
        case "release":
            recorded.person(None)
        case "refusal" | "lost" if recorded.commands:
            kind = OutcomeKind.REFUSED if event == "refusal" else OutcomeKind.UNREACHABLE
            recorded.answer_with(kind)
        case "clock":
            recorded.clock_id += "'"
            recorded.mono_ms = 7
        case "utc_back":
            recorded.utc_ms -= 3_600_000
        case "process":
            recorded.new_process(None if granted is None else granted.override)
        case "shadow" | "active":
            recorded.stance(Stance(event))
        case "facts":
            recorded.use(recorded.config.model_copy(update={"facts": facts("s1k1d2", OFF)}))


def _recorded(story: list[Any], **changes: Any) -> Recorded:
    recorded = Recorded(config=config(), **changes)
    for event in story:
        if isinstance(event, int):
            recorded.see(event)
        else:
            _tell(recorded, event)
    return recorded


@settings(max_examples=60, deadline=None)
@given(STORY, st.booleans())
def test_every_story_replays_to_identical_ticks(story: list[Any], obeys: bool) -> None:
    recorded = _recorded([1, *story], obeys=obeys)
    with (
        tempfile.TemporaryDirectory() as folder,
        recorded.session(Path(folder) / "a.specdeck") as session,
    ):
        found = verify(session)
    assert found.differences == ()
    assert found.verified == found.ticks == len(recorded.ticks)
    assert found.not_verifiable == ()


def test_a_wall_clock_that_went_back_does_not_change_the_order(tmp_path: Path) -> None:
    recorded = _recorded([1, 30, 30, "utc_back", 30, 30, 30, 30, 2, 2])
    with recorded.session(tmp_path / "a.specdeck") as session:
        seqs = [tick.observation.seq for tick in session.ticks()]
        assert seqs == sorted(seqs)
        assert verify(session).identical


def _changed(tmp_path: Path, change: Callable[[Recorded], None]) -> SessionFile:
    recorded = _recorded([1] * 5 + [40] * 10)
    change(recorded)
    return recorded.session(tmp_path / "a.specdeck")


def test_another_verdict_is_listed_with_both_sides(tmp_path: Path) -> None:
    def forge(recorded: Recorded) -> None:
        tick = recorded.ticks[7]
        verdict = tick.verdict.model_copy(update={"text": "because I say so"})
        recorded.ticks[7] = tick.model_copy(update={"verdict": verdict})

    with _changed(tmp_path, forge) as session:
        found = verify(session)
    assert (found.verified, found.differing, found.identical) == (14, 1, False)
    assert (found.differences[0].seq, found.differences[0].field) == (8, "verdict")
    assert "because I say so" in found.differences[0].recorded


def test_a_hole_is_not_verifiable_until_the_next_checkpoint(tmp_path: Path) -> None:
    recorded = _recorded([1] * (2 * CHECKPOINT_STEPS + 20))
    del recorded.ticks[10:20]
    with recorded.session(tmp_path / "a.specdeck") as session:
        found = verify(session)
    assert found.identical
    (span,) = found.not_verifiable
    assert (span.first_seq, span.last_seq) == (21, CHECKPOINT_STEPS + 1)
    assert span.why == HOLE


def test_without_any_input_nothing_is_claimed(tmp_path: Path) -> None:
    with _changed(tmp_path, lambda recorded: recorded.inputs.clear()) as session:
        found = verify(session)
    assert (found.verified, found.differing) == (0, 0)
    assert [span.why for span in found.not_verifiable] == [NO_STATE]


def test_ticks_before_the_first_contact_are_not_verifiable(tmp_path: Path) -> None:
    def nothing_known(recorded: Recorded) -> None:
        recorded.inputs.clear()
        recorded.ticks = [t.model_copy(update={"policy_version": 0}) for t in recorded.ticks]

    with _changed(tmp_path, nothing_known) as session:
        assert [span.why for span in verify(session).not_verifiable] == [FIRST_CONTACT]


def test_a_forged_state_in_a_checkpoint_is_noticed(tmp_path: Path) -> None:
    recorded = _recorded([1] * (CHECKPOINT_STEPS + 20))
    at = next(
        i for i, one in enumerate(recorded.inputs) if one.kind == "checkpoint" and one.after_seq > 1
    )
    body = recorded.inputs[at].body.replace('"want":0', '"want":1')
    assert body != recorded.inputs[at].body
    recorded.inputs[at] = recorded.inputs[at].model_copy(update={"body": body})
    with recorded.session(tmp_path / "a.specdeck") as session:
        found = verify(session)
    assert "state" in {one.field for one in found.differences}


ORDER = Thresholds(
    tiers=("s3k1d4", OFF), boundaries=(Boundary(up_at=24, down_at=16),), min_dwell_steps=8
)


def _entry(seq: int, reason: SwitchReason, batch: int, step: int, **changes: Any) -> JournalEntry:
    way = ("s3k1d4", OFF) if seq % 2 else (OFF, "s3k1d4")
    values = {"from_tier": way[0], "to_tier": way[1], **changes}
    return JournalEntry(seq=seq, reason=reason, batch=batch, step=step, **values)


@pytest.mark.parametrize(
    ("entries", "same", "shown", "differing"),
    [
        ([_entry(1, SwitchReason.BATCH_UP, 24, 100)], 1, 0, 0),
        ([_entry(1, SwitchReason.BATCH_UP, 23, 100)], 0, 0, 1),
        ([_entry(1, SwitchReason.COMMAND, 1, 100)], 0, 1, 0),
        (
            [
                _entry(1, SwitchReason.BATCH_UP, 30, 100),
                _entry(2, SwitchReason.BATCH_DOWN, 3, 104),
            ],
            1,
            0,
            1,
        ),
        (
            [
                _entry(1, SwitchReason.BATCH_UP, 30, 100),
                _entry(2, SwitchReason.BATCH_DOWN, 3, 108),
            ],
            2,
            0,
            0,
        ),
    ],
)
def test_engine_switches_are_asked_of_the_engines_own_policy(
    tmp_path: Path, entries: list[JournalEntry], same: int, shown: int, differing: int
) -> None:
    recorded = Recorded(config=config(two_tiers()))
    for load in (1, 30, 2):
        recorded.see(load, thresholds=ORDER, mode=Mode.AUTO)
    path = tmp_path / "a.specdeck"
    with SessionWriter.create(path, META) as writer:
        for given in recorded.inputs:
            writer.add_input(given)
        for tick in recorded.ticks:
            writer.add_tick(tick)
        for entry in entries:
            seen = recorded.ticks[-1].observation.at_utc_ms
            switch = EngineSwitch(engine_id=ENGINE, boot_id="boot-1", seen_utc_ms=seen, entry=entry)
            writer.add_record(switch)
    with SessionFile.open(path) as session:
        found = verify(session)
    assert (found.switches_same, found.switches_as_recorded) == (same, shown)
    assert len(found.switches_differing) == differing
