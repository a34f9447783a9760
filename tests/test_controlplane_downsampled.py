"""What down-sampling leaves says of itself that it cannot be verified; the rest still can be."""

from __future__ import annotations

from pathlib import Path

from controlplane.replay_verify import verify
from controlplane.sessions_inputs import CHECKPOINT_STEPS
from controlplane.sessions_text import verification_text
from controlplane.whatif_answer import answer, subject_of, with_policy
from controlplane.whatif_estimate import LoadModel
from engine_patch.tier import OFF
from store.db import Store
from store.marks import DOWNSAMPLED
from store.policies import FixedPolicy
from store.records import SessionRecord
from store.retention import Retention
from store.session_export import Range, bring_in, export, range_of
from store.session_reader import SessionFile
from tests.controlplane_script import ENGINE, config
from tests.session_parts import Recorded

ROUNDS = 4


def _store(path: Path) -> tuple[Store, Recorded]:
    """Four stretches between checkpoints, with a named session in the second."""
    recorded = Recorded(config=config())
    for step in range(ROUNDS * CHECKPOINT_STEPS + 10):
        recorded.see(1 if step // 50 % 2 else 40)
    store = Store.open(path)
    store.write([*recorded.inputs, *recorded.intake.take(), config().policy]).result(timeout=30)
    for tick in recorded.ticks:
        store.write([tick, *tick.decisions])
    session = SessionRecord(
        engine_id=ENGINE,
        name="kept",
        started_utc_ms=recorded.ticks[0].observation.at_utc_ms,
        ended_utc_ms=recorded.ticks[-1].observation.at_utc_ms,
        first_seq=CHECKPOINT_STEPS + 100,
        last_seq=CHECKPOINT_STEPS + 150,
    )
    store.write([session]).result(timeout=30)
    old = recorded.ticks[3 * CHECKPOINT_STEPS + 20].observation.at_utc_ms
    pruned = store.prune(Retention(downsample=old, every_ms=10_000)).result(timeout=30)
    assert pruned.downsampled > CHECKPOINT_STEPS
    return store, recorded


def test_down_sampled_ranges_are_not_verifiable_and_everything_else_is(tmp_path: Path) -> None:
    store, recorded = _store(tmp_path / "s.db")
    with store:
        export(store, Range(ENGINE, "all"), tmp_path / "all.specdeck")
    with SessionFile.open(tmp_path / "all.specdeck") as session:
        found = verify(session)
        marks = [(one.seq, one.last_seq) for one in session.markers() if one.kind == DOWNSAMPLED]
    assert found.identical
    assert found.verified > CHECKPOINT_STEPS
    whole = recorded.seq - 3 * CHECKPOINT_STEPS - 1
    inside = [span for span in found.not_verifiable if "down-sampled" in span.why]
    assert len(inside) == len(marks) == 2
    for span, (first, last) in zip(inside, marks, strict=True):
        assert span.why == "down-sampled: one tick per 10 s is kept"
        assert first <= span.first_seq <= span.last_seq <= (last or 0)
    # From the checkpoint on everything is verified, and so is the named session.
    assert found.verified >= whole + 51
    assert found.ticks == found.verified + sum(span.ticks for span in found.not_verifiable)
    assert "not verifiable: " in verification_text(found)
    assert "one tick per 10 s is kept" in verification_text(found)


def test_a_named_session_is_exported_and_verified_whole(tmp_path: Path) -> None:
    store, _ = _store(tmp_path / "s.db")
    with store:
        wanted = range_of(store, "kept")
        export(store, wanted, tmp_path / "kept.specdeck")
    with SessionFile.open(tmp_path / "kept.specdeck") as session:
        found = verify(session)
        assert session.markers() == []
    assert found.not_verifiable == ()
    assert found.verified == found.ticks >= 51


def test_a_part_of_a_down_sampled_range_carries_its_mark(tmp_path: Path) -> None:
    store, _ = _store(tmp_path / "s.db")
    with store:
        export(store, Range(ENGINE, "part", 50, 150), tmp_path / "part.specdeck")
    with SessionFile.open(tmp_path / "part.specdeck") as session:
        (mark,) = session.markers()
        assert mark.kind == DOWNSAMPLED
        assert mark.seq < 50 < 150 < (mark.last_seq or 0)
        found = verify(session)
        assert found.verified == 0
        assert {span.why for span in found.not_verifiable} == {mark.text}
        with Store.open(tmp_path / "other.db") as other:
            bring_in(other, session, "again")
            assert [one.last_seq for one in other.markers("again")] == [mark.last_seq]


def test_a_what_if_says_which_ranges_it_cannot_speak_of(tmp_path: Path) -> None:
    store, _ = _store(tmp_path / "s.db")
    with store:
        export(store, Range(ENGINE, "all"), tmp_path / "all.specdeck")
    with SessionFile.open(tmp_path / "all.specdeck") as session:
        subject = subject_of(session)
        policy = with_policy(subject.config, FixedPolicy(tier=OFF))
        found = answer(subject, policy, LoadModel.RECORDED)
    told = [text for text in found.cannot_know if "down-sampled" in text]
    assert len(told) == 2
    assert "cannot be verified" in told[0]
