"""The session file: what goes in comes out, whatever happens to the file meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store import session_schema, session_scrapes, session_track
from store.errors import (
    StoreCorrupt,
    StoreError,
    StoreForeign,
    StoreNewer,
    StoreRefused,
    StoreUnwritable,
)
from store.records import ControlInput, InputKind, Marker, RawScrape
from store.session_reader import LAST, SessionFile
from store.session_rows import tick_rows
from store.session_writer import SessionFull, SessionWriter
from store.tick_codec import text_of
from tests.store_records import a_decision, a_policy, a_tick, an_override, busy_day

META = {"engine_id": "h200-0", "name": "night"}
DAY = busy_day(700)


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("night") / "night.specdeck"
    with SessionWriter.create(path, META) as writer:
        for tick in DAY:
            writer.add_tick(tick)
            if tick.observation.seq % 100 == 0:
                writer.commit()
                writer.add_scrape(_scrape(tick.observation.seq))
    return path


def _scrape(seq: int) -> RawScrape:
    text = "".join(f'sglang:gen{{le="{n}"}} {n * (seq if n % 9 == 0 else 1)}\n' for n in range(400))
    return RawScrape(
        engine_id="h200-0", seq=seq, at_utc_ms=seq, path="/metrics", text=f"# HELP x\n{text}"
    )


def test_ticks_come_back_exactly_and_in_order(night: Path) -> None:
    with SessionFile.open(night) as session:
        found = session.ticks(limit=10_000)
        assert [tick.model_copy(update={"id": 0}) for tick in found] == DAY
        assert [tick.id for tick in found] == [tick.observation.seq for tick in DAY]
        assert (session.first_seq, session.last_seq, session.count()) == (1, 700, 700)
        assert session.complete
        assert session.unreadable == 0


def test_any_moment_can_be_sought(night: Path) -> None:
    with SessionFile.open(night) as session:
        found = session.tick(433)
        assert found is not None
        assert found.observation.seq == 433
        last = session.tick(10_000)
        assert last is not None
        assert last.observation.seq == 700
        assert session.tick(0) is None
        assert [t.observation.seq for t in session.ticks(5, 7)] == [5, 6, 7]


def test_scrapes_come_back_exactly(night: Path) -> None:
    with SessionFile.open(night) as session:
        found = list(session.scrapes(150, 420))
    assert found == [_scrape(seq) for seq in (200, 300, 400)]


def test_every_other_record_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "a.specdeck"
    marker = Marker(engine_id="e1", at_utc_ms=5, seq=3, kind="deploy", author="op1", text="v2")
    noted = ControlInput(
        engine_id="e1", after_seq=2, kind=InputKind.CONFIG, at_utc_ms=4, body='{"a":1}'
    )
    with SessionWriter.create(path, META | {"engine_id": "e1"}) as writer:
        writer.add_tick(a_tick())
        writer.add_input(noted)
        writer.add_record(a_decision(outcome="requested"))
        writer.add_record(a_decision(outcome="confirmed"))
        writer.add_record(a_policy())
        writer.add_record(an_override(id=7))
        writer.add_record(an_override(id=7, ended_utc_ms=9, ended_by="expired"))
        writer.add_record(marker)
    with SessionFile.open(path) as session:
        assert [one.outcome for one in session.decisions()] == ["confirmed"]
        assert session.policies() == [a_policy()]
        assert [one.ended_by for one in session.overrides()] == ["expired"]
        assert session.markers() == [marker]
        assert [one.model_copy(update={"id": 0}) for one in session.inputs()] == [noted]
        assert session.inputs(kind=InputKind.START) == []
        assert session.switches() == []


def test_a_finished_file_has_no_log_beside_it(night: Path) -> None:
    assert [one.name for one in night.parent.iterdir()] == [night.name]


def test_the_track_says_what_the_ticks_say(night: Path, tmp_path: Path) -> None:
    with SessionFile.open(night) as session:
        track = session.track()
    rows = [
        session_track.row(
            t.observation.seq, t.observation.at_utc_ms, False, t.model_dump(mode="json")
        )
        for t in DAY
    ]
    assert track == session_track.from_rows(rows)
    without = tmp_path / "without.specdeck"
    shutil.copy(night, without)
    with closing(sqlite3.connect(without)) as connection:
        connection.execute("DROP TABLE tracks")
        connection.commit()
    with SessionFile.open(without) as session:  # as a file of an older schema
        assert session.track() == track


def test_sequence_numbers_must_rise(tmp_path: Path) -> None:
    with SessionWriter.create(tmp_path / "a.specdeck", META) as writer:
        writer.add_tick(a_tick(seq=2))
        with pytest.raises(StoreRefused, match="tick 2 does not follow 2"):
            writer.add_tick(a_tick(seq=2))


def test_a_newer_file_is_refused_with_the_release_it_needs(night: Path, tmp_path: Path) -> None:
    newer = tmp_path / "newer.specdeck"
    shutil.copy(night, newer)
    with closing(sqlite3.connect(newer)) as connection:
        connection.execute("UPDATE meta SET value = '7.1.0' WHERE key = 'needs_specdeck'")
        connection.execute("PRAGMA user_version = 99")
        connection.commit()
    before = newer.read_bytes()
    with pytest.raises(StoreNewer, match=r"session schema 99.*specdeck 7\.1\.0 or newer"):
        SessionFile.open(newer)
    assert newer.read_bytes() == before


def test_an_older_file_is_read(night: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_schema, "SCHEMA", session_schema.SCHEMA + 1)
    with SessionFile.open(night) as session:
        assert session.count() == 700


def test_other_files_are_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database " * 100)
    with closing(sqlite3.connect(tmp_path / "foreign")) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.commit()
    with pytest.raises(StoreForeign, match="no session file"):
        SessionFile.open(tmp_path / "foreign")
    with pytest.raises(StoreCorrupt, match="Nothing was changed"):
        SessionFile.open(tmp_path / "text")
    with pytest.raises(StoreError, match="does not exist"):
        SessionFile.open(tmp_path / "none")
    with pytest.raises(StoreUnwritable, match="exists"):
        SessionWriter.create(tmp_path / "text", META)
    with pytest.raises(StoreUnwritable):
        SessionWriter.create(tmp_path / "no" / "folder", META)


def test_damaged_rows_are_skipped_and_counted(night: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.specdeck"
    shutil.copy(night, damaged)
    with closing(sqlite3.connect(damaged)) as connection:
        connection.execute("UPDATE ticks SET body = x'00ff' WHERE seq = 10")
        connection.execute("UPDATE ticks SET body = zeroblob(20) WHERE seq = 20")
        connection.execute("UPDATE tracks SET body = x'12' WHERE first_seq = 1")
        connection.execute("UPDATE scrapes SET body = x'00' WHERE seq = 100")
        connection.execute(
            "INSERT INTO records (kind, seq, at_utc_ms, body) VALUES ('marker', 1, 1, '{')"
        )
        connection.commit()
    with SessionFile.open(damaged) as session:
        seqs = [tick.observation.seq for tick in session.ticks(limit=1000)]
        assert seqs == [seq for seq in range(1, 701) if seq not in (10, 20)]
        assert session.unreadable == 2
        assert session.markers() == []
        assert [one.seq for one in session.scrapes()] == list(range(200, 701, 100))
        assert session.track()["seq"] == seqs
        assert session.unreadable == 5


@pytest.mark.parametrize("leaf_of", ["first", "middle", "last"])
def test_a_number_damaged_to_a_huge_one_is_no_endless_search(
    leaf_of: str, night: Path, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged.specdeck"
    shutil.copy(night, damaged)
    with closing(sqlite3.connect(damaged)) as connection:
        connection.execute("UPDATE ticks SET seq = 4611686018427387904 WHERE seq = 700")
        connection.commit()
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        # A leaf page of the table in the middle of the file, and all rows on it.
        root = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'ticks'"
        ).fetchone()[0]
    body = bytearray(damaged.read_bytes())
    top = body[(root - 1) * size : root * size]
    cells = int.from_bytes(top[3:5], "big")
    cell = {"first": 0, "middle": cells // 2, "last": cells - 1}[leaf_of]
    place = int.from_bytes(top[12 + 2 * cell :][:2], "big")
    leaf = int.from_bytes(top[place : place + 4], "big")
    body[(leaf - 1) * size : leaf * size] = b"\xff" * size
    damaged.write_bytes(body)
    with SessionFile.open(damaged) as session:
        seqs = [tick.observation.seq for tick in session.ticks(limit=1000)]
        assert seqs == sorted(seqs)
        assert 300 < len(seqs) < 700
        assert session.unreadable > 0
        assert set(session.track()["seq"]) >= set(range(1, 700)) & set(seqs)


def test_a_bad_row_behind_a_damaged_page_hides_nothing_after_it() -> None:
    def ask(query: str, first: int, last: int, limit: int) -> list[tuple[object, ...]]:
        if (first <= 2 and limit > 1) or first == 2:
            raise StoreCorrupt("a damaged page")
        rows = [(seq, "x" if seq == 3 else seq, 0, None, b"") for seq in range(first, 8)]
        return list(rows[:limit])

    skipped: list[int] = []
    read = tick_rows(ask, lambda seq, _: skipped.append(seq), 1, LAST, LAST)
    assert [row[0] for row in read] == [1, 4, 5, 6, 7]
    assert skipped == [2, 3]


def test_a_schema_that_is_no_text_is_called_damaged(night: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.specdeck"
    body = night.read_bytes()
    place = body.index(b"tabletrackstracks") + len("table")
    damaged.write_bytes(body[:place] + b"\x80" + body[place + 1 :])
    with pytest.raises(StoreCorrupt, match="Nothing was changed"):
        SessionFile.open(damaged)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(at=st.integers(0, 2**20), junk=st.binary(min_size=1, max_size=600))
def test_bytes_overwritten_anywhere_never_end_in_a_traceback(
    night: Path, tmp_path: Path, at: int, junk: bytes
) -> None:
    broken = tmp_path / "broken.specdeck"
    body = bytearray(night.read_bytes())
    at %= len(body) - len(junk)
    body[at : at + len(junk)] = junk
    broken.write_bytes(body)
    seqs: list[int] = []
    with suppress(StoreError), SessionFile.open(broken) as session:
        seqs = [tick.observation.seq for tick in session.ticks(limit=10_000)]
        session.track()
        list(session.scrapes())
    assert seqs == sorted(set(seqs))


_WRITE_FOR_EVER = """
import sys
from pathlib import Path
from store.session_writer import SessionWriter
from tests.store_records import a_tick
writer = SessionWriter.create(Path(sys.argv[1]), {"engine_id": "e1"})
seq = 0
while True:
    for _ in range(20):
        seq += 1
        writer.add_tick(a_tick(seq=seq))
    writer.commit()
    print(seq, flush=True)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    path = tmp_path_factory.mktemp("killed") / "killed.specdeck"
    command = [sys.executable, "-c", _WRITE_FOR_EVER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = 0
        until = time.monotonic() + 10
        while told < 300 and time.monotonic() < until:
            told = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        told = max([told, *(int(line) for line in process.stdout.read().split())])
    return path, told


def test_a_file_killed_mid_write_opens_whole_up_to_the_last_commit(
    killed: tuple[Path, int],
) -> None:
    path, told = killed
    with SessionFile.open(path) as session:
        seqs = [tick.observation.seq for tick in session.ticks(limit=100_000)]
        assert not session.complete
        assert session.unreadable == 0
    assert seqs == list(range(1, len(seqs) + 1))
    assert len(seqs) >= told - 20


def test_without_its_log_it_opens_with_what_is_in_the_file(
    killed: tuple[Path, int], tmp_path: Path
) -> None:
    alone = tmp_path / "alone.specdeck"
    shutil.copy(killed[0], alone)
    try:
        with SessionFile.open(alone) as session:
            assert session.unreadable == 0
            assert session.count() <= killed[1] + 20
    except StoreForeign:
        assert alone.stat().st_size <= 4096  # everything was still in the log


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_it_opens_on_a_read_only_disk(night: Path, tmp_path: Path) -> None:
    folder = tmp_path / "ro"
    folder.mkdir()
    shutil.copy(night, folder / "n.specdeck")
    folder.chmod(0o500)
    try:
        with SessionFile.open(folder / "n.specdeck") as session:
            assert session.count() == 700
    finally:
        folder.chmod(0o700)


def test_opening_changes_not_a_byte(night: Path) -> None:
    before = (night.read_bytes(), night.stat().st_mtime_ns)
    with SessionFile.open(night) as session:
        session.track()
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            session._db.execute("DELETE FROM ticks")
    assert (night.read_bytes(), night.stat().st_mtime_ns) == before


def test_a_bound_stops_the_recording_and_keeps_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "small.specdeck"
    writer = SessionWriter.create(path, META, max_bytes=120_000)
    count, told = 0, ""
    while not told:
        for tick in DAY[count : count + 50]:
            writer.add_tick(tick)
            count += 1
        try:
            writer.commit()
        except SessionFull as full:
            told = str(full)
    assert "0 MB, the most it may take" in told
    writer.finish()
    with SessionFile.open(path) as session:
        assert session.count() == count
        assert session.complete
    assert path.stat().st_size < 160_000


def test_a_full_disk_ends_the_recording_and_keeps_what_was_committed(tmp_path: Path) -> None:
    path = tmp_path / "full.specdeck"
    writer = SessionWriter.create(path, META)
    # SQLite's own limit gives the very error of a disk without room.
    pages = writer._db.execute("PRAGMA page_count").fetchone()[0]
    writer._db.execute(f"PRAGMA max_page_count = {pages + 12}")
    safe, told = 0, ""
    for tick in DAY:
        try:
            writer.add_tick(tick)
            if tick.observation.seq % 20 == 0:
                writer.commit()
                safe = tick.observation.seq
        except StoreUnwritable as full:
            told = str(full)
            break
    assert "full.specdeck cannot grow: the disk is full" in told
    assert 0 < safe < len(DAY)
    writer.close()
    with SessionFile.open(path) as session:
        assert session.ticks(limit=10_000)[-1].observation.seq == safe
        assert session.count() == safe
        assert not session.complete


@given(
    lines=st.lists(st.text(max_size=10), max_size=30),
    edits=st.dictionaries(st.integers(0, 29), st.text(max_size=10), max_size=5),
    json_like=st.booleans(),
)
def test_a_scrape_is_exact_for_any_text(
    lines: list[str], edits: dict[int, str], json_like: bool
) -> None:
    joint = "," if json_like else "\n"
    changed = [edits.get(index, line) for index, line in enumerate(lines)]
    one, other = joint.join(lines), joint.join(changed)
    assert session_scrapes.unpack(session_scrapes.pack(other, one), one) == other
    assert session_scrapes.unpack(session_scrapes.pack(one, None), None) == one


def test_a_tick_text_can_be_copied_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "a.specdeck"
    tick = a_tick(seq=4)
    with SessionWriter.create(path, META) as writer:
        writer.add_text(4, tick.observation.at_utc_ms, False, text_of(tick))
    with SessionFile.open(path) as session:
        assert session.ticks() == [tick.model_copy(update={"id": 4})]
