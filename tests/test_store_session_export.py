"""Out of a store into a file and back: ranges, names, redaction, other formats."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.replay_verify import verify
from engine_patch.contract_words import Mode
from store import session_formats
from store.db import Store
from store.errors import StoreError
from store.records import EngineRecord, Marker, RawScrape, SessionRecord
from store.session_export import Range, bring_in, export, range_of
from store.session_reader import SessionFile
from store.session_track import COLUMNS
from tests.controlplane_script import ENGINE, HOLDER, config, facts, override
from tests.session_parts import Recorded

URL = "http://gpu-7.example.org:30000"
SECRETS = ("gpu-7", "example.org", HOLDER, "op1", "llama8b", "10.1.2.3", "/models/")


def _story() -> Recorded:
    recorded = Recorded(config=config())
    for load in [1] * 300 + [40] * 60 + [2] * 100:
        recorded.see(load)
    recorded.person(override(Mode.OFF, at_utc_ms=recorded.utc_ms, length_s=8))
    for load in [2] * 40:
        recorded.see(load)
    recorded.gap()
    for load in [2] * 40:
        recorded.see(load)
    return recorded


STORY = _story()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "s.db") as opened:
        engine = EngineRecord(
            engine_id=ENGINE, url=URL, name="big box", facts=facts(), added_utc_ms=1
        )
        asked = override(Mode.OFF, at_utc_ms=STORY.utc_ms, length_s=8, number=0)
        opened.write([engine, STORY.config.policy, asked]).result()
        opened.write(STORY.inputs).result()
        opened.write(STORY.ticks).result()
        opened.write(list(STORY.decisions.values())).result()
        text = f'num{{model="{facts().identity.model}",host="10.1.2.3:80",url="{URL}/x"}} 1\n'  # type: ignore[union-attr]
        opened.write(
            [
                RawScrape(engine_id=ENGINE, seq=seq, at_utc_ms=1, path="/metrics", text=text)
                for seq in (5, 400)
            ]
        ).result()
        at = STORY.ticks[399].observation
        opened.write(
            [
                Marker(
                    engine_id=ENGINE,
                    at_utc_ms=at.at_utc_ms,
                    seq=at.seq,
                    kind="deploy",
                    author="op1",
                    text=f"by op1 at {URL}",
                ),
                SessionRecord(
                    engine_id=ENGINE,
                    name="load test",
                    started_utc_ms=1,
                    first_seq=350,
                    last_seq=480,
                ),
            ]
        ).result()
        yield opened


def test_everything_exported_replays_to_the_recorded_verdicts(store: Store, tmp_path: Path) -> None:
    done = export(store, Range(ENGINE, "all"), tmp_path / "all.specdeck")
    assert (done.ticks, done.skipped) == (len(STORY.ticks), 0)
    with SessionFile.open(tmp_path / "all.specdeck") as session:
        found = verify(session)
        assert found.identical
        assert found.verified == len(STORY.ticks)
        assert len(session.decisions()) == len(STORY.decisions)
        assert [one.seq for one in session.scrapes()] == [5, 400]
    assert not list(tmp_path.glob("*.part*"))


def test_a_named_range_begins_at_a_checkpoint_and_verifies_from_there(
    store: Store, tmp_path: Path
) -> None:
    export(store, range_of(store, "load test"), tmp_path / "part.specdeck")
    with SessionFile.open(tmp_path / "part.specdeck") as session:
        assert session.first_seq == 242  # after the checkpoint of observation 241
        assert session.last_seq == 480
        assert session.meta["wanted_first_seq"] == "350"
        found = verify(session)
        assert (found.verified, found.not_verifiable) == (239, ())
        assert [one.seq for one in session.markers()] == [400]


def test_redaction_takes_every_name_and_still_verifies(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "r.specdeck"
    export(store, Range(ENGINE, "night"), path, redact=True)
    with SessionFile.open(path) as session:
        assert session.meta["redacted"] == "1"
        found = verify(session)
        assert found.differences == ()
        assert found.verified == len(STORY.ticks)
        session_formats.write(session, tmp_path / "r.jsonl", "jsonl")
        assert [t.verdict.tier for t in session.ticks()] == [t.verdict.tier for t in STORY.ticks]
    text = (tmp_path / "r.jsonl").read_text()
    assert [secret for secret in SECRETS if secret in text] == []
    assert text.count("person-") > 40  # equal names stay equal
    raw = path.read_bytes()
    assert [secret for secret in SECRETS if secret.encode() in raw] == []


def test_an_import_brings_everything_under_a_new_id(store: Store, tmp_path: Path) -> None:
    export(store, Range(ENGINE, "night"), tmp_path / "a.specdeck")
    with (
        Store.open(tmp_path / "other.db") as other,
        SessionFile.open(tmp_path / "a.specdeck") as session,
    ):
        done = bring_in(other, session, "night")
        assert done.ticks == len(STORY.ticks)
        with pytest.raises(StoreError, match="choose another id"):
            bring_in(other, session, "night")
        assert [one.name for one in other.sessions()] == ["night"]
        export(other, Range("night", "again"), tmp_path / "again.specdeck")
    with SessionFile.open(tmp_path / "again.specdeck") as again:
        found = verify(again)
        assert (found.verified, found.differences) == (len(STORY.ticks), ())


def test_refusals_say_what_to_do(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="sessions are: load test"):
        range_of(store, "none")
    with pytest.raises(StoreError, match="nothing of engine"):
        export(store, Range("other", "x"), tmp_path / "x.specdeck")
    (tmp_path / "there.specdeck").write_text("")
    with pytest.raises(StoreError, match="exists: choose another name"):
        export(store, Range(ENGINE, "x"), tmp_path / "there.specdeck")
    assert not list(tmp_path.glob("*.part*"))


def test_rows_for_other_tools(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(store, Range(ENGINE, "night"), tmp_path / "a.specdeck")
    with SessionFile.open(tmp_path / "a.specdeck") as session:
        rows = session_formats.write(session, tmp_path / "a.csv", "csv")
        session_formats.write(session, tmp_path / "a.jsonl", "jsonl")
        with pytest.raises(StoreError, match="exists"):
            session_formats.write(session, tmp_path / "a.csv", "csv")
        with pytest.raises(StoreError, match="formats are: jsonl, csv, parquet"):
            session_formats.write(session, tmp_path / "a.xls", "xls")
        monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
        with pytest.raises(StoreError, match=r"pip install 'specdeck\[parquet\]'"):
            session_formats.write(session, tmp_path / "a.parquet", "parquet")
    with (tmp_path / "a.csv").open() as table:
        found = list(csv.DictReader(table))
    assert len(found) == rows == len(STORY.ticks)
    gap = next(row for row in found if row["gap"] == "1")
    assert gap["concurrency"] == ""  # unknown, never 0
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds[0] == "meta"
    assert {"tick", "decision", "override", "policy", "marker", "input", "scrape"} < set(kinds)


def test_parquet_holds_the_track_with_one_type_per_column(store: Store, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    export(store, Range(ENGINE, "night"), tmp_path / "a.specdeck")
    export(store, Range(ENGINE, "start", 1, 20), tmp_path / "b.specdeck")
    rows = {}
    for name in ("a", "b"):
        with SessionFile.open(tmp_path / f"{name}.specdeck") as session:
            rows[name] = session_formats.write(session, tmp_path / f"{name}.parquet", "parquet")
            with pytest.raises(StoreError, match="exists: choose another name"):
                session_formats.write(session, tmp_path / f"{name}.parquet", "parquet")
            track = session.track()
        table = parquet.read_table(tmp_path / f"{name}.parquet")
        assert table.num_rows == rows[name] == len(track["seq"])
        assert table.column_names == list(COLUMNS)
        for column in COLUMNS:
            assert table[column].to_pylist() == track[column], column
    whole, start = (parquet.read_table(tmp_path / f"{name}.parquet") for name in "ab")
    # What the short one knows nothing of has the type it has in the long one.
    assert start["override"].null_count == start.num_rows
    assert whole["override"].null_count < whole.num_rows
    assert whole.schema.equals(start.schema)
    assert whole.schema.metadata[b"specdeck.name"] == b"night"
    gap = whole["gap"].to_pylist().index(True)
    assert whole["concurrency"][gap].as_py() is None  # unknown, never 0


def test_parquet_that_cannot_be_written_leaves_nothing(store: Store, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    export(store, Range(ENGINE, "night"), tmp_path / "a.specdeck")
    with (
        SessionFile.open(tmp_path / "a.specdeck") as session,
        pytest.raises(StoreError, match="cannot be written"),
    ):
        session_formats.write(session, tmp_path / "nowhere" / "a.parquet", "parquet")
    assert not (tmp_path / "nowhere").exists()
