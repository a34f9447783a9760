"""Retention and down-sampling never touch what must stay, and come to the same in any steps."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine_patch.contract import JournalEntry
from engine_patch.contract_words import SwitchReason
from store import pruning
from store.db import Record, Store
from store.marks import DOWNSAMPLED
from store.pruning import Pruned
from store.records import (
    ControlInput,
    EngineSwitch,
    InputKind,
    Marker,
    Outcome,
    RawScrape,
    SessionRecord,
)
from store.retention import FOR_EVER, Retention, Sessions
from tests.store_place import Place
from tests.store_records import a_decision, a_policy, a_tick, an_audit_entry, an_override

START = 1_795_000_000_000
TABLES = (
    "ticks",
    "tick_templates",
    "scrapes",
    "inputs",
    "decisions",
    "switches",
    "overrides",
    "policies",
    "audit",
    "markers",
    "sessions",
)


def _input(engine_id: str, seq: int, at: int, kind: InputKind) -> ControlInput:
    return ControlInput(engine_id=engine_id, after_seq=seq, kind=kind, at_utc_ms=at, body="{}")


def _session(engine_id: str, first: int, last: int | None) -> SessionRecord:
    return SessionRecord(
        engine_id=engine_id,
        name=f"s{first}",
        started_utc_ms=START,
        ended_utc_ms=None if last is None else START,
        first_seq=first,
        last_seq=last,
    )


def _day(engine_id: str, count: int, *, every: int = 500, decided: int = 0) -> list[Record]:
    """Ticks, checkpoints every 20 and a scrape every 10 of them; a decision now and then."""
    records: list[Record] = [_input(engine_id, 0, START, InputKind.CONFIG)]
    for seq in range(1, count + 1):
        at = START + every * seq
        records.append(a_tick(engine_id, seq, at_utc_ms=at))
        if decided and seq % decided == 0:
            done = Outcome.CONFIRMED
            records.append(a_decision(engine_id, seq, at_utc_ms=at, outcome=done))
        if seq % 20 == 0:
            records.append(_input(engine_id, seq, at, InputKind.CHECKPOINT))
        if seq % 10 == 0:
            scrape = RawScrape(engine_id=engine_id, seq=seq, at_utc_ms=at, path="/m", text="x")
            records.append(scrape)
    return records


def _seqs(store: Store, engine_id: str = "e1") -> list[int]:
    return [tick.observation.seq for tick in store.ticks(engine_id, after_id=0, limit=10_000)]


def _marks(store: Store, engine_id: str = "e1") -> list[tuple[int, int]]:
    return [
        (one.seq, one.last_seq or 0) for one in store.markers(engine_id) if one.kind == DOWNSAMPLED
    ]


def test_of_old_ticks_one_in_a_stretch_stays_and_the_range_is_marked(place: Place) -> None:
    with Store.open(place.location) as store:
        store.write(_day("e1", 100)).result(timeout=20)
        old = START + 500 * 70  # observation 70; the last checkpoint before it is at 60
        found = store.prune(Retention(downsample=old, every_ms=5000)).result(timeout=20)
        assert _seqs(store) == [1, 10, 20, 30, 40, 50, 60, *range(61, 101)]
        assert found == Pruned(downsampled=53)
        assert _marks(store) == [(1, 60)]
        (marker,) = store.markers("e1")
        assert marker.text == "down-sampled: one tick per 5 s is kept"
        kinds = [(one.kind, one.after_seq) for one in store.inputs("e1")]
        assert kinds == [(InputKind.CONFIG, 0)] + [
            (InputKind.CHECKPOINT, seq) for seq in (60, 80, 100)
        ]
        assert len(store.scrapes("e1", 0, 1000)) == 10


def test_a_later_run_goes_on_where_the_one_before_ended(place: Place) -> None:
    with Store.open(place.location) as store:
        store.write(_day("e1", 100)).result(timeout=20)
        for seq in (30, 50, 90):
            wanted = Retention(downsample=START + 500 * seq, every_ms=5000)
            store.prune(wanted).result(timeout=20)
        assert _seqs(store) == [1, 10, 20, 30, 40, 50, 60, 70, 80, *range(81, 101)]
        assert _marks(store) == [(1, 80)]
        assert store.prune(wanted).result(timeout=20) == Pruned()


def test_ticks_at_which_something_was_decided_stay(place: Place) -> None:
    with Store.open(place.location) as store:
        store.write(_day("e1", 60, decided=13)).result(timeout=20)
        store.prune(Retention(downsample=START * 2, every_ms=10_000)).result(timeout=20)
        assert _seqs(store) == [1, 13, 20, 26, 39, 40, 52, 60]


def test_a_named_session_stays_whole_with_the_checkpoint_it_begins_at(place: Place) -> None:
    with Store.open(place.location) as store:
        store.write(_day("e1", 200)).result(timeout=20)
        store.write([_session("e1", 95, 120), _session("e1", 150, 155)]).result(timeout=20)
        everything = Retention(downsample=START * 2, every_ms=5000)
        store.prune(everything).result(timeout=20)
        whole = {*range(80, 121), *range(140, 156)}
        assert whole <= set(_seqs(store))
        assert _marks(store) == [(1, 79), (121, 139), (156, 200)]
        assert {one.after_seq for one in store.inputs("e1", kind=InputKind.CHECKPOINT)} == {
            80,
            100,
            120,
            140,
            200,
        }
        everything = Retention(START * 2, START * 2, START * 2, START * 2)
        store.prune(everything).result(timeout=20)
        assert set(_seqs(store)) == whole | {200}
        scrapes = [one.seq for one in store.scrapes("e1", 0, 1000)]
        assert scrapes == [80, 90, 100, 110, 120, 140, 150]


def test_a_session_that_is_still_recorded_keeps_everything_from_its_beginning(place: Place) -> None:
    with Store.open(place.location) as store:
        store.write([*_day("e1", 100), _session("e1", 50, None)]).result(timeout=20)
        store.prune(Retention(START * 2, START * 2, START * 2, START * 2)).result(timeout=20)
        assert _seqs(store) == list(range(40, 101))


def test_history_goes_only_when_it_is_told_to_and_settled(place: Place) -> None:
    def switch(number: int) -> EngineSwitch:
        entry = JournalEntry(
            seq=number,
            from_tier="off",
            to_tier="s3k1d4",
            reason=SwitchReason.COMMAND,
            step=1,
            batch=1,
        )
        return EngineSwitch(engine_id="e1", boot_id="b", seen_utc_ms=number, entry=entry)

    with Store.open(place.location) as store:
        store.write(
            [
                a_tick(),
                a_decision(seq=1, at_utc_ms=1, outcome=Outcome.CONFIRMED),
                a_decision(seq=2, at_utc_ms=1, outcome=Outcome.REQUESTED),
                an_override(ended_utc_ms=2, ended_by="expired"),
                an_override(),
                a_policy(),
                an_audit_entry(),
                *(switch(number) for number in range(1, 6)),
            ]
        ).result(timeout=20)
        assert store.prune(Retention(FOR_EVER, FOR_EVER)).result(timeout=20) == Pruned()
        assert store.prune(Retention(history=FOR_EVER)).result(timeout=20).history == 2
        assert [one.seq for one in store.decisions()] == [2]
        assert [one.ended_utc_ms for one in store.overrides()] == [None]
        assert len(store.switches("e1")) == 5  # a restart goes on from the newest of them
        assert len(store.audit()) == 1
        assert not store.check_audit().broken
        assert store.policy("e1") == a_policy()


def test_engine_switches_beyond_those_a_restart_reads_go(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "JOURNAL_KEPT", 2)
    with Store.open(place.location) as store:
        entries = [
            JournalEntry(
                seq=n,
                from_tier="off",
                to_tier="s3k1d4",
                reason=SwitchReason.COMMAND,
                step=1,
                batch=1,
            )
            for n in range(1, 6)
        ]
        store.write(
            [EngineSwitch(engine_id="e1", boot_id="b", seen_utc_ms=1, entry=one) for one in entries]
        ).result(timeout=20)
        store.prune(Retention(history=FOR_EVER)).result(timeout=20)
        assert [one.entry.seq for one in store.switches("e1")] == [5, 4]


def test_a_quick_look_ends_at_young_rows_and_a_whole_one_does_not(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "STEP_ROWS", 3)
    old, young = START, START + 10_000
    times = [old] * 4 + [young] * 6 + [old] * 2 + [young]
    with Store.open(place.location) as store:
        store.write([a_tick(seq=seq, at_utc_ms=at) for seq, at in enumerate(times, start=1)])
        quick = Retention(ticks=young, whole=False)
        assert store.prune(quick).result(timeout=20).ticks == 4
        assert store.prune(Retention(ticks=young)).result(timeout=20).ticks == 2
        assert _seqs(store) == [*range(5, 11), 13]


def test_an_engine_without_checkpoints_is_down_sampled_by_time_alone(place: Place) -> None:
    with Store.open(place.location) as store:
        store.write([a_tick(seq=seq, at_utc_ms=START + 500 * seq) for seq in range(1, 61)])
        wanted = Retention(downsample=START + 500 * 41, every_ms=10_000)
        store.prune(wanted).result(timeout=20)
        assert _seqs(store) == [1, 20, 40, *range(41, 61)]
        assert _marks(store) == [(1, 40)]


def test_a_run_that_was_cut_short_by_the_end_is_finished_by_the_next(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "STEP_ROWS", 1)
    wanted = Retention(downsample=START * 2, every_ms=5000)
    store = Store.open(place.location)
    store.write(_day("e1", 200)).result(timeout=60)
    cut = store.prune(wanted)
    store.close()
    assert cut.result(timeout=0).downsampled < 180
    with Store.open(place.location) as store:
        store.prune(wanted).result(timeout=60)
        assert _seqs(store) == [1, *range(10, 201, 10)]
        assert _marks(store) == [(1, 200)]


def test_a_tick_whose_decision_is_gone_is_like_any_other(place: Place) -> None:
    with Store.open(place.location) as store:
        store.write(_day("e1", 60, decided=13)).result(timeout=60)
        everything = Retention(history=START * 2, downsample=START * 2, every_ms=10_000)
        store.prune(everything).result(timeout=60)
        assert store.decisions() == []
        assert _seqs(store) == [1, 20, 40, 60]


# -- properties -------------------------------------------------------------------------------

_STEP = st.sampled_from((0, 1, 250, 500, 500, 500, 4000, 20_000))


@st.composite
def _histories(draw: st.DrawFn) -> list[Record]:
    records: list[Record] = []
    for engine_id in ("e1", "e2"):
        backwards = draw(st.booleans())
        seq, at = 0, START
        for step in draw(st.lists(_STEP, max_size=60)):
            seq += draw(st.sampled_from((1, 1, 1, 3)))
            at += -step if backwards and draw(st.integers(0, 9)) == 0 else step
            records.append(a_tick(engine_id, seq, at_utc_ms=at))
            what = draw(st.integers(0, 19))
            if what == 0:
                outcome = draw(st.sampled_from((Outcome.CONFIRMED, Outcome.REQUESTED)))
                records.append(a_decision(engine_id, seq, at_utc_ms=at, outcome=outcome))
            elif what < 4:
                kind = draw(st.sampled_from(tuple(InputKind)))
                records.append(_input(engine_id, seq, at, kind))
            elif what == 4:
                scrape = RawScrape(engine_id=engine_id, seq=seq, at_utc_ms=at, path="/m", text="x")
                records.append(scrape)
        for _ in range(draw(st.integers(0, 2))):
            first = draw(st.integers(0, 80))
            last = draw(st.one_of(st.none(), st.integers(first, 90)))
            records.append(_session(engine_id, first, last))
    records += [an_audit_entry(), a_policy(), an_override(), an_override(ended_utc_ms=5)]
    records.append(Marker(engine_id="e1", at_utc_ms=1, seq=1, kind="k", author="a", text="t"))
    return records


_CUT = st.one_of(st.none(), st.integers(-1000, 200_000).map(lambda after: START + after))
_RETENTIONS = st.builds(
    Retention,
    ticks=_CUT,
    scrapes=_CUT,
    history=_CUT,
    downsample=_CUT,
    every_ms=st.sampled_from((1, 999, 2000, 10_000)),
)


def _rows(path: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(path)) as raw:
        return {name: raw.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall() for name in TABLES}


def _prune(path: Path, rows: int, *wanted: Retention) -> list[Pruned]:
    with pytest.MonkeyPatch.context() as patch, Store.open(path) as store:
        patch.setattr(pruning, "STEP_ROWS", rows)
        return [store.prune(one).result(timeout=60) for one in wanted]


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(_histories(), _RETENTIONS, st.integers(1, 7))
def test_what_must_stay_stays_and_steps_do_not_matter(
    records: list[Record], wanted: Retention, rows: int
) -> None:
    with tempfile.TemporaryDirectory() as place:
        path, other = Path(place) / "s.db", Path(place) / "other.db"
        with Store.open(path) as store:
            store.write(records).result(timeout=60)
        before = _rows(path)
        shutil.copy(path, other)

        first, again = _prune(path, 2000, wanted, wanted)
        after = _rows(path)
        assert again == Pruned()
        assert _prune(other, rows, wanted) == [first]
        assert _rows(other) == after

        _check(path, before, after, wanted)


def _check(
    path: Path, before: dict[str, list[Any]], after: dict[str, list[Any]], wanted: Retention
) -> None:
    for name in ("policies", "audit", "sessions"):
        assert after[name] == before[name]
    assert after["markers"][: len(before["markers"])] == before["markers"]
    with Store.open(path, read_only=True) as store:
        with store._reading() as connection:
            sessions = Sessions.read(connection)
            refs = sessions._refs
        gone = [row for row in before["ticks"] if row not in after["ticks"]]
        newest = {ref: max(row[0] for row in rows) for ref, rows in _by_engine(before["ticks"])}
        # A decision that history has let go keeps its tick no longer.
        decided = {(refs.get(row[1], 0), row[2]) for row in after["decisions"]}
        marks = {ref: _marks(store, name) for name, ref in refs.items()}
    for row_id, ref, seq, at, *_ in gone:
        assert not sessions.keep(ref, seq)
        assert row_id != newest[ref]
        aged = wanted.ticks is not None and at < wanted.ticks
        thinned = wanted.downsample is not None and at < wanted.downsample
        assert aged or thinned
        if not aged:
            assert (ref, seq) not in decided
            assert any(first <= seq <= last for first, last in marks[ref])
    for ref, ranges in marks.items():
        assert all(first <= last for first, last in ranges)
        assert all(one[1] < other[0] for one, other in itertools.pairwise(ranges))
        for row in before["ticks"]:
            if row[1] == ref and sessions.keep(ref, row[2]):
                assert not any(first <= row[2] <= last for first, last in ranges)
    for row in before["inputs"]:
        if row not in after["inputs"]:
            assert row[3] != InputKind.CONFIG
            assert not sessions.keep(row[1], row[2])
    for row in before["decisions"]:
        if row not in after["decisions"]:
            assert row[5] != Outcome.REQUESTED
            assert wanted.history is not None
            assert row[3] < wanted.history
    for row in before["overrides"]:
        if row not in after["overrides"]:
            assert row[4] is not None


def _by_engine(ticks: list[Any]) -> list[tuple[int, list[Any]]]:
    ordered = sorted(ticks, key=lambda row: row[1])
    return [(ref, list(rows)) for ref, rows in itertools.groupby(ordered, lambda row: row[1])]


@settings(deadline=None, max_examples=8)
@given(
    st.lists(st.integers(0, 200), min_size=1, max_size=5).map(sorted),
    st.integers(1, 7),
    st.sampled_from((1, 999, 5000)),
)
def test_many_runs_as_time_goes_come_to_what_one_run_comes_to(
    cuts: list[int], rows: int, every_ms: int
) -> None:
    with tempfile.TemporaryDirectory() as place:
        path, other = Path(place) / "s.db", Path(place) / "other.db"
        with Store.open(path) as store:
            store.write([*_day("e1", 150, decided=17), _session("e1", 70, 90)]).result(timeout=60)
        shutil.copy(path, other)
        runs = [Retention(downsample=START + 500 * cut, every_ms=every_ms) for cut in cuts]
        _prune(path, rows, *runs)
        _prune(other, 2000, runs[-1])
        assert _rows(path) == _rows(other)
