"""Reading and writing: order, paging, what may change and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine_patch.contract import JournalEntry
from engine_patch.contract_words import SwitchReason
from engine_patch.costs import StepCost
from store.db import Record, Store
from store.errors import StoreClosed, StoreCorrupt, StoreRefused, StoreUnwritable
from store.measurements import CostTable
from store.observations import Gap, GapReason
from store.records import (
    EngineRecord,
    EngineSwitch,
    Marker,
    Outcome,
    RawScrape,
    SessionRecord,
    Tick,
)
from store.retention import Retention
from tests.store_place import Place
from tests.store_records import a_decision, a_policy, a_tick, an_audit_entry, an_override, busy_day


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    with Store.open(place.location) as opened:
        yield opened


def _put(store: Store, *records: Record) -> list[Record]:
    return store.write(records).result(timeout=10)


def _refused(store: Store, *records: Record) -> str:
    with pytest.raises(StoreRefused) as caught:
        _put(store, *records)
    return str(caught.value)


def _seqs(ticks: list[Tick]) -> list[int]:
    return [tick.observation.seq for tick in ticks]


def test_records_of_one_write_come_back_in_order_with_their_ids(store: Store) -> None:
    given = [a_tick(seq=1), a_decision(seq=1), an_override(), a_tick(seq=2)]
    written = _put(store, *given)
    assert [type(r) for r in written] == [type(r) for r in given]
    assert [r.id for r in written] == [1, 1, 1, 2]


def test_ids_of_ticks_rise_over_all_engines(store: Store) -> None:
    for seq in range(1, 4):
        _put(store, a_tick("a", seq), a_tick("b", seq))
    assert [tick.id for tick in store.ticks_after(0, 10)] == [1, 2, 3, 4, 5, 6]
    assert [tick.engine_id for tick in store.ticks_after(2, 2)] == ["a", "b"]
    assert store.ticks_after(6, 10) == []


def test_ticks_are_ordered_by_sequence_and_not_by_a_clock_that_steps_back(store: Store) -> None:
    times = [5000, 1000, 9000, 2000]
    _put(store, *(a_tick(seq=seq, at_utc_ms=at) for seq, at in enumerate(times, start=1)))
    assert _seqs(store.ticks("e1")) == [1, 2, 3, 4]
    assert [t.observation.at_utc_ms for t in store.ticks("e1")] == times


def test_the_newest_ticks_are_given_unless_a_start_is_named(store: Store) -> None:
    _put(store, *(a_tick(seq=seq) for seq in range(1, 11)))
    _put(store, a_tick("other", 1))
    assert _seqs(store.ticks("e1", limit=3)) == [8, 9, 10]
    assert _seqs(store.ticks("e1", before_id=8, limit=3)) == [5, 6, 7]
    assert _seqs(store.ticks("e1", after_id=0, limit=3)) == [1, 2, 3]
    assert _seqs(store.ticks("e1", after_id=3, limit=3)) == [4, 5, 6]
    assert _seqs(store.ticks("e1", after_id=3, before_id=6)) == [4, 5]
    assert store.ticks("nobody") == []
    with pytest.raises(ValueError, match="at least 1"):
        store.ticks("e1", limit=0)


def test_paging_forward_sees_each_tick_once(store: Store) -> None:
    written = _put(store, *busy_day(700))
    pages, after = [], 0
    while page := store.ticks("h200-0", after_id=after, limit=300):
        pages += page
        after = page[-1].id
    assert pages == written


def test_the_last_tick_may_be_a_gap(store: Store) -> None:
    assert store.last_tick("e1") is None
    gap = Gap(
        engine_id="e1",
        seq=2,
        at_utc_ms=2,
        at_mono_ms=2,
        clock_id="c",
        reason=GapReason.TIMEOUT,
        message="no answer within 2 s",
    )
    _put(store, a_tick(seq=1), a_tick(seq=2).model_copy(update={"observation": gap}))
    last = store.last_tick("e1")
    assert last is not None
    assert last.observation == gap


def test_a_tick_is_stored_once_and_in_order(store: Store) -> None:
    _put(store, a_tick(seq=5))
    assert "does not follow 5" in _refused(store, a_tick(seq=5))
    assert "does not follow 5" in _refused(store, a_tick(seq=4))
    _put(store, a_tick(seq=9), a_tick("other", 1))
    assert _seqs(store.ticks("e1")) == [5, 9]


def test_the_last_sequence_number_counts_decisions_and_scrapes_too(store: Store) -> None:
    assert store.last_seq("e1") == 0
    _put(store, a_tick(seq=3))
    assert store.last_seq("e1") == 3
    _put(store, a_decision(seq=7))
    assert store.last_seq("e1") == 7
    _put(store, RawScrape(engine_id="e1", seq=8, at_utc_ms=1, path="/metrics", text="x"))
    assert store.last_seq("e1") == 8
    assert store.last_seq("other") == 0


def test_a_failed_write_stores_nothing_of_itself(store: Store) -> None:
    _put(store, a_tick(seq=1))
    _refused(store, a_decision(seq=2), a_tick("new engine", 1), a_tick(seq=1))
    assert store.decisions() == []
    assert store.ticks("new engine") == []
    _put(store, a_decision(seq=2), a_tick("new engine", 1), a_tick(seq=2))
    assert _seqs(store.ticks("new engine")) == [1]
    assert _seqs(store.ticks("e1")) == [1, 2]


def test_a_decision_is_settled_in_place(store: Store) -> None:
    (asked,) = _put(store, a_decision(seq=3))
    settled = a_decision(
        seq=3, outcome=Outcome.CONFIRMED, latency_ms=184.0, settled_utc_ms=9, attempts=1
    )
    (stored,) = _put(store, settled)
    assert stored.id == asked.id
    assert store.decisions("e1") == [settled.model_copy(update={"id": asked.id})]


def test_a_decision_never_turns_into_another_one(store: Store) -> None:
    (first,) = _put(store, a_decision(seq=3))
    assert "another decision" in _refused(store, a_decision(seq=3, to_tier="s1k1d2"))
    assert "another decision" in _refused(store, a_decision(seq=3, at_utc_ms=1))
    assert store.decisions() == [first]


def test_decisions_are_paged_newest_first(store: Store) -> None:
    _put(store, *(a_decision("ab"[seq % 2], seq) for seq in range(1, 9)))
    assert [d.seq for d in store.decisions(limit=3)] == [8, 7, 6]
    assert [d.seq for d in store.decisions("b", limit=2)] == [7, 5]
    assert [d.seq for d in store.decisions("b", before_id=5, limit=9)] == [3, 1]


def test_a_journal_entry_read_again_is_stored_once(store: Store) -> None:
    entry = JournalEntry(
        seq=1,
        from_tier="s3k1d4",
        to_tier="off",
        reason=SwitchReason.BATCH_UP,
        step=10,
        batch=17,
    )
    first = EngineSwitch(engine_id="e1", boot_id="b1", seen_utc_ms=5, entry=entry)
    again = first.model_copy(update={"seen_utc_ms": 99})
    (stored,) = _put(store, first)
    (repeated,) = _put(store, again)
    assert repeated.id == stored.id
    assert store.switches("e1") == [stored]
    others = [
        first.model_copy(update={"boot_id": "b2"}),
        first.model_copy(update={"entry": entry.model_copy(update={"dp_rank": 1})}),
        first.model_copy(update={"entry": entry.model_copy(update={"seq": 2})}),
    ]
    stored_others = _put(store, *others)
    assert store.switches("e1", limit=9) == [*reversed(stored_others), stored]


def test_an_override_is_extended_and_ended_in_place(store: Store) -> None:
    (set_,) = _put(store, an_override())
    longer = set_.model_copy(update={"expires_utc_ms": 91_000, "granted_s": 90.0})
    _put(store, longer)
    assert store.overrides("e1", in_force_only=True) == [longer]
    ended = longer.model_copy(update={"ended_utc_ms": 50_000, "ended_by": "released by op1"})
    _put(store, ended)
    _put(store, ended)
    assert store.overrides("e1", in_force_only=True) == []
    assert store.overrides() == [ended]


def test_an_ended_override_is_history(store: Store) -> None:
    (ended,) = _put(store, an_override(ended_utc_ms=2000, ended_by="expired"))
    assert "has ended (expired)" in _refused(
        store, ended.model_copy(update={"ended_utc_ms": None, "ended_by": ""})
    )
    assert store.overrides() == [ended]


def test_an_override_cannot_become_another_one(store: Store) -> None:
    (set_,) = _put(store, an_override())
    assert "engine_id" in _refused(store, set_.model_copy(update={"engine_id": "e2"}))
    assert "mode" in _refused(store, set_.model_copy(update={"mode": "on", "tier": "s3k1d4"}))
    assert "no override 77" in _refused(store, an_override(id=77))
    assert store.overrides() == [set_]


def test_each_policy_version_is_kept(store: Store) -> None:
    first, second = a_policy(version=1), a_policy(version=2, author="op2")
    _put(store, first)
    _put(store, second)
    _put(store, first)
    assert store.policy("e1") == second
    assert store.policies("e1") == [second, first]
    assert store.policy("other") is None
    assert "exists and differs" in _refused(store, a_policy(version=1, author="op3"))
    assert store.policies("e1") == [second, first]


def test_an_engine_has_one_row_and_the_newest_wins(store: Store) -> None:
    one = EngineRecord(engine_id="e1", url="http://127.0.0.1:1", added_utc_ms=2)
    two = EngineRecord(engine_id="e0", url="http://127.0.0.1:2", added_utc_ms=3)
    renamed = one.model_copy(update={"name": "h200"})
    _put(store, one, two)
    _put(store, renamed)
    assert store.engines() == [renamed, two]


def test_what_is_only_ever_added_is_not_added_twice(store: Store) -> None:
    marker = Marker(engine_id="e1", at_utc_ms=1, seq=4, kind="deploy", author="ci", text="0.5.23")
    for record in _put(store, an_audit_entry(), marker):
        assert "stored already" in _refused(store, record)
    assert len(store.audit()) == len(store.markers("e1")) == 1


def test_audit_entries_are_paged_newest_first(store: Store) -> None:
    _put(store, *(an_audit_entry(at) for at in (30, 10, 20)))
    assert [entry.at_utc_ms for entry in store.audit()] == [20, 10, 30]
    assert [entry.id for entry in store.audit(before_id=3, limit=1)] == [2]


def test_scrapes_are_read_by_range_and_keep_their_text(store: Store) -> None:
    text = 'sglang:num_running_reqs{model="é"} 3.0\n' * 500
    scrapes = [
        RawScrape(engine_id="e1", seq=seq, at_utc_ms=seq, path="/metrics", text=f"{seq}\n{text}")
        for seq in (1, 2, 2, 5)
    ]
    _put(store, *scrapes)
    assert store.scrapes("e1", 2, 5) == scrapes[1:]
    assert store.scrapes("e1", 3, 4) == []


def test_a_session_is_closed_in_place(store: Store) -> None:
    (open_,) = _put(store, SessionRecord(engine_id="e1", name="night", started_utc_ms=1))
    closed = open_.model_copy(update={"ended_utc_ms": 9, "last_seq": 40})
    _put(store, closed)
    assert store.sessions() == [closed]
    assert "no session 9" in _refused(store, open_.model_copy(update={"id": 9}))


def test_the_newest_cost_table_of_a_setup_counts(store: Store) -> None:
    costs = (StepCost(tier="off", bucket=8, samples=3, mean_ms=7.5),)
    old, new, foreign = _put(
        store,
        CostTable(setup_key="k", source="bench", created_utc_ms=1, costs=costs),
        CostTable(setup_key="k", source="bench again", created_utc_ms=2, costs=costs),
        CostTable(setup_key="other", source="bench", created_utc_ms=3, costs=costs),
    )
    assert store.cost_table("k") == new
    assert store.cost_table("other") == foreign
    assert store.cost_table("unknown") is None
    assert old.id != new.id


def test_something_that_is_no_record_is_refused(store: Store) -> None:
    assert "keeps no dict" in _refused(store, {"engine_id": "e1"})  # type: ignore[arg-type]


def test_a_damaged_tick_is_skipped_and_counted_once(store: Store, place: Place) -> None:
    _put(store, *(a_tick(seq=seq) for seq in range(1, 5)))
    place.run("UPDATE ticks SET body = substr(body, 1, 9) WHERE seq = 3")
    assert _seqs(store.ticks("e1")) == [1, 2, 4]
    assert _seqs(store.ticks_after(0, 10)) == [1, 2, 4]
    assert store.unreadable == 1


def test_a_damaged_override_is_an_error_and_not_silently_gone(store: Store, place: Place) -> None:
    _put(store, an_override())
    place.run("UPDATE overrides SET body = '{\"engine_id\": 3}'")
    with pytest.raises(StoreCorrupt, match="row 1 of table overrides"):
        store.overrides("e1")


def test_a_closed_store_says_so(place: Place) -> None:
    store = Store.open(place.location)
    store.close()
    store.close()
    with pytest.raises(StoreClosed, match="closed"):
        store.write([a_tick()]).result(timeout=5)
    with pytest.raises(StoreClosed, match="closed"):
        store.prune(Retention()).result(timeout=5)
    with pytest.raises(StoreClosed, match="closed"):
        store.engines()


def test_a_closed_store_leaves_one_complete_file(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        _put(store, a_tick())
        assert store.last_seq("e1") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.db", "s.db.lock"]


def test_readers_see_every_acknowledged_tick_while_writing_goes_on(place: Place) -> None:
    ticks = busy_day(250, ranks=1)
    with Store.open(place.location) as store, ThreadPoolExecutor(4) as pool:

        def read_until_the_end() -> int:
            reads = last = 0
            while last < len(ticks):
                known = store.last_seq("h200-0")
                seqs = _seqs(store.ticks("h200-0", limit=20))
                # Whole, in order, without a hole, and never older than what was known before.
                assert seqs == list(range(seqs[0], seqs[-1] + 1)) if seqs else known == 0
                now = seqs[-1] if seqs else 0
                assert now >= max(known, last)
                last, reads = now, reads + 1
            return reads

        readers = [pool.submit(read_until_the_end) for _ in range(4)]
        for tick in ticks:
            (written,) = store.write([tick]).result(timeout=10)
            newest = store.last_tick("h200-0") if tick.observation.seq % 50 == 0 else None
            assert newest in (None, written)
        assert all(reader.result(timeout=60) > 1 for reader in readers)


def test_a_read_only_store_reads_beside_the_writer_and_writes_nothing(
    store: Store, place: Place
) -> None:
    _put(store, a_tick(seq=1))
    with Store.open(place.location, read_only=True) as reader:
        assert _seqs(reader.ticks("e1")) == [1]
        _put(store, a_tick(seq=2))
        assert _seqs(reader.ticks("e1")) == [1, 2]
        with pytest.raises(StoreUnwritable, match="opened read-only"):
            reader.write([a_tick(seq=3)]).result(timeout=5)
    assert _seqs(store.ticks("e1")) == [1, 2]
