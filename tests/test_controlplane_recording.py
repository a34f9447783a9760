"""What an engine's loop writes: a bad record costs itself alone, what must not be lost is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from controlplane import recording
from controlplane.clock import SystemClock
from controlplane.hub import Event
from controlplane.recording import Recorder
from store import writer
from store.db import Store
from store.marks import NOT_RECORDED
from store.records import Tick
from tests.store_records import a_decision, a_policy, a_tick, an_override


@dataclass
class Desk:
    """A recorder and what it told."""

    recorder: Recorder
    published: list[Tick] = field(default_factory=list)
    lost: int = 0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "s.db") as opened:
        yield opened


def _desk(store: Store) -> Desk:
    def lost() -> None:
        desk.lost += 1

    published: list[Tick] = []
    recorder = Recorder("e1", store, SystemClock(), publish=published.append, lost=lost)
    desk = Desk(recorder, published)
    return desk


async def test_a_tick_that_is_stored_is_published_once_with_its_id(store: Store) -> None:
    desk = _desk(store)
    stored = await desk.recorder.record(a_tick(seq=1), [], [a_decision(seq=1)])
    assert stored.id == 1
    assert desk.published == [stored]
    assert (desk.recorder.trouble, desk.recorder.unrecorded, desk.lost) == ("", 0, 0)
    assert len(store.decisions()) == 1


async def test_a_record_that_contradicts_the_store_costs_itself_alone(store: Store) -> None:
    desk = _desk(store)
    await desk.recorder.record(a_tick(seq=1), [], [a_policy()])
    other = a_policy(author="somebody else")
    stored = await desk.recorder.record(a_tick(seq=2), [], [a_decision(seq=2), other])
    assert stored.id
    assert "is not recorded" in desk.recorder.trouble
    assert store.policies("e1") == [a_policy()]
    assert desk.published[-1] == stored
    await desk.recorder.record(a_tick(seq=3), [], [])
    assert desk.recorder.trouble == ""
    assert [one.seq for one in store.decisions()] == [2]
    assert desk.lost == 0


async def test_a_tick_that_contradicts_the_store_is_left_out_and_its_records_are_kept(
    store: Store,
) -> None:
    desk = _desk(store)
    await desk.recorder.record(a_tick(seq=5), [], [])
    tick = await desk.recorder.record(a_tick(seq=5), [], [a_decision(seq=5)])
    assert tick.id == 0
    assert (desk.recorder.unrecorded, desk.lost) == (1, 1)
    await desk.recorder.record(a_tick(seq=6), [], [])
    end = asyncio.get_running_loop().time() + 60
    while len(store.markers("e1")) != 1:
        assert asyncio.get_running_loop().time() < end
        await asyncio.sleep(0.01)
    (marker,) = store.markers("e1")
    assert (marker.kind, marker.seq) == (NOT_RECORDED, 6)
    assert "1 observations before this one (5 to 5)" in marker.text
    assert [one.seq for one in store.decisions()] == [5]


async def test_what_is_owed_is_bounded_and_counted_beyond(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "OWED_LIMIT", 2)
    monkeypatch.setattr(writer, "QUEUE_LIMIT", 0)
    monkeypatch.setattr(writer, "TICK_LIMIT", 0)
    desk = _desk(store)
    records = [a_decision(seq=seq) for seq in range(1, 6)]
    await desk.recorder.record(a_tick(seq=5), [], records)
    assert (desk.recorder.owed, desk.recorder.owed_lost) == (2, 3)
    monkeypatch.setattr(writer, "QUEUE_LIMIT", 100)
    monkeypatch.setattr(writer, "TICK_LIMIT", 100)
    await desk.recorder.record(a_tick(seq=6), [], [])
    end = asyncio.get_running_loop().time() + 60
    while len(store.decisions()) < 2:
        assert asyncio.get_running_loop().time() < end
        await asyncio.sleep(0.01)
    assert desk.recorder.owed == 0


async def test_records_that_must_not_be_lost_need_nobody_to_wait(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    desk = _desk(store)
    await desk.recorder.keep_soon([an_override(), a_policy()])
    assert len(store.overrides()) == 1
    await desk.recorder.keep_soon([a_policy(author="somebody else")])
    assert "not recorded" in caplog.text


def test_an_event_that_is_not_stored_has_no_id_and_is_never_behind() -> None:
    assert b"id:" not in Event(0, "e1", "{}").frame
    assert b"id: 7" in Event(7, "e1", "{}").frame
    assert Event(0, "e1", "{}").follows(99)
    assert not Event(7, "e1", "{}").follows(7)
