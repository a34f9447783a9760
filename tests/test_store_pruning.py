"""Retention removes ticks and raw scrapes, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_patch.contract import JournalEntry
from engine_patch.contract_words import SwitchReason
from store import pruning
from store.db import Store
from store.pruning import Pruned
from store.records import EngineSwitch, Marker, RawScrape
from store.retention import Retention
from tests.store_place import Place
from tests.store_records import (
    a_decision,
    a_policy,
    a_tick,
    an_audit_entry,
    an_override,
    busy_day,
)

NEVER = 2**60


def before(utc_ms: int) -> Retention:
    return Retention(ticks=utc_ms, scrapes=utc_ms)


def _seqs(store: Store, engine_id: str = "e1") -> list[int]:
    return [tick.observation.seq for tick in store.ticks(engine_id, after_id=0)]


def test_old_ticks_and_scrapes_go_and_the_rest_stays(place: Place) -> None:
    scrapes = [
        RawScrape(engine_id="e1", seq=seq, at_utc_ms=1000 * seq, path="/metrics", text="x")
        for seq in range(1, 7)
    ]
    with Store.open(place.location) as store:
        store.write([a_tick(seq=seq, at_utc_ms=1000 * seq) for seq in range(1, 7)])
        store.write(scrapes).result(timeout=10)
        assert store.prune(before(4000)).result(timeout=10) == Pruned(ticks=3, scrapes=3)
        assert _seqs(store) == [4, 5, 6]
        assert store.scrapes("e1", 0, 9) == scrapes[3:]
        assert store.prune(before(4000)).result(timeout=10) == Pruned(ticks=0, scrapes=0)


def test_history_and_audit_outlive_every_retention(place: Place) -> None:
    entry = JournalEntry(
        seq=1, from_tier="off", to_tier="s3k1d4", reason=SwitchReason.COMMAND, step=1, batch=1
    )
    with Store.open(place.location) as store:
        store.write(
            [
                a_tick(at_utc_ms=1),
                a_decision(at_utc_ms=1),
                an_override(ended_utc_ms=2, ended_by="expired"),
                a_policy(),
                an_audit_entry(),
                EngineSwitch(engine_id="e1", boot_id="b", seen_utc_ms=1, entry=entry),
                Marker(engine_id="e1", at_utc_ms=1, seq=1, kind="k", author="a", text="t"),
            ]
        )
        store.prune(before(NEVER)).result(timeout=10)
        assert len(store.decisions()) == len(store.overrides()) == len(store.audit()) == 1
        assert len(store.switches("e1")) == len(store.markers("e1")) == 1
        assert store.policy("e1") == a_policy()


def test_the_newest_tick_of_each_engine_stays_so_that_numbers_go_on(place: Place) -> None:
    with Store.open(place.location) as store:
        store.write([a_tick("a", seq) for seq in range(1, 6)])
        store.write([a_tick("b", seq) for seq in range(1, 9)])
        assert store.prune(before(NEVER)).result(timeout=10) == Pruned(ticks=11, scrapes=0)
        assert (_seqs(store, "a"), _seqs(store, "b")) == ([5], [8])
        assert (store.last_seq("a"), store.last_seq("b")) == (5, 8)
        (next_,) = store.write([a_tick("a", 6)]).result(timeout=10)
        assert next_.id == 14


def test_a_clock_that_was_wrong_for_a_while_does_not_stop_the_pruning(place: Place) -> None:
    times = [NEVER, 1000, 2000, NEVER, 3000, 9000]
    with Store.open(place.location) as store:
        store.write([a_tick(seq=seq, at_utc_ms=at) for seq, at in enumerate(times, start=1)])
        assert store.prune(before(9000)).result(timeout=10).ticks == 3
        assert _seqs(store) == [1, 4, 6]


def test_writes_come_between_the_steps_of_a_long_pruning(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "STEP_ROWS", 50)
    with Store.open(place.location) as store:
        store.write(busy_day(2000, ranks=1)).result(timeout=20)
        order: list[str] = []
        pruned = store.prune(before(NEVER))
        pruned.add_done_callback(lambda _: order.append("pruned"))
        written = store.write([a_tick("other")])
        written.add_done_callback(lambda _: order.append("written"))
        assert pruned.result(timeout=20).ticks == 1999
        written.result(timeout=20)
    assert order == ["written", "pruned"]


def test_closing_ends_a_pruning_early_and_keeps_what_was_queued(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "STEP_ROWS", 1)
    store = Store.open(place.location)
    store.write(busy_day(2000, ranks=1)).result(timeout=20)
    pruned = store.prune(before(NEVER))
    written = store.write([a_tick("other")])
    store.close()
    assert pruned.result(timeout=0).ticks < 1999
    assert written.result(timeout=0)
    with Store.open(place.location) as again:
        assert again.last_seq("other") == 1


def test_remaining_ticks_are_readable_and_unused_templates_go(place: Place) -> None:
    ticks = busy_day(1500, ranks=2)
    with Store.open(place.location) as store:
        written = store.write(ticks).result(timeout=20)
        middle = ticks[1000].observation.at_utc_ms
        store.prune(before(middle)).result(timeout=20)
        kept = [tick for tick in written if tick.observation.at_utc_ms >= middle]
        assert store.ticks("h200-0", after_id=0, limit=2000) == kept
    with Store.open(place.location, read_only=True) as fresh:
        assert fresh.ticks("h200-0", after_id=0, limit=2000) == kept
        used = place.run("SELECT DISTINCT template_id FROM ticks ORDER BY 1")
        assert place.run("SELECT id FROM tick_templates ORDER BY 1") == used
        assert len(used) == 3


def test_a_pruned_file_gets_smaller(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with Store.open(path) as store:
        store.write(busy_day(3000, ranks=8)).result(timeout=20)
    full = path.stat().st_size
    with Store.open(path) as store:
        store.prune(before(NEVER)).result(timeout=20)
    assert path.stat().st_size < full / 2
