"""The page about sessions: its walk-through is true, and nothing of the file is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from controlplane.replay_verify import verify
from controlplane.sessions_cli import run_what_if
from controlplane.sessions_inputs import CHECKPOINT_STEPS
from controlplane.sessions_messages import ReplayRequest
from store.records import InputKind
from store.session_reader import SessionFile
from store.session_schema import APPLICATION_ID, DDL
from store.session_track import BLOCK
from store.session_writer import KINDS

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "sessions.md").read_text()
EXAMPLE = ROOT / "docs" / "examples" / "cpu-engine.specdeck"


def test_the_example_of_a_real_engine_verifies() -> None:
    with SessionFile.open(EXAMPLE) as session:
        found = verify(session)
        assert (found.verified, found.differing) == (221, 0)
        assert f"{found.verified} of {found.ticks} verdicts" in PAGE
        assert f"('cpu-engine', {session.count()})" in PAGE
        track = session.track()
        assert max(load for load in track["concurrency"] if load is not None) == 12
        for one in session.decisions()[:3]:
            line = f"# {one.from_tier} -> {one.to_tier} | {one.text} | {one.outcome.value}"
            assert line in PAGE


def test_the_example_names_no_machine_and_no_person() -> None:
    body = EXAMPLE.read_bytes()
    with SessionFile.open(EXAMPLE) as session:
        assert session.meta["redacted"] == "1"
        text = "".join(one.text for one in session.scrapes())
        text += "".join(tick.model_dump_json() for tick in session.ticks())
        text += "".join(one.body for one in session.inputs())
    for hint in ("127.0.0.1", "localhost", "http:", "/work", "/tmp/", "/home/", "/root"):
        assert hint not in text
        assert hint.encode() not in body
    assert EXAMPLE.stat().st_size < 500_000


def test_the_what_if_of_the_page_comes_out_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_what_if([str(EXAMPLE), "--set", "boundaries.0.up_at=6"]) == 0
    told = capsys.readouterr().out
    for line in re.findall(r"^(?:switches|time in|tok/s where).*$", PAGE, re.MULTILINE):
        assert line in told


def test_every_table_record_and_input_is_explained() -> None:
    tables = [re.search(r"TABLE (\w+)", one) for one in DDL]
    names = [one.group(1) for one in tables if one is not None]
    assert len(names) == 8
    for name in (*names, *KINDS.values(), *InputKind):
        assert f"`{name}`" in PAGE
    assert f"0x{APPLICATION_ID:x}" in PAGE
    assert f"every {CHECKPOINT_STEPS} steps" in PAGE
    assert f"columns of {BLOCK} ticks" in PAGE
    for field in ReplayRequest.model_fields:
        assert f'"{field}"' in PAGE
