"""``specdeck store``: a copy of a running control plane's database starts another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.store_cli import run
from store.db import Store
from tests.controlplane_rig import (
    ENGINE,
    EmbeddedEngine,
    control_plane,
    embedded_engine,
    settings_of,
    until,
)
from tests.store_records import a_tick, an_audit_entry


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4", "--table", "fa3") as running:
        yield running


async def test_a_backup_of_a_running_control_plane_starts_another(
    engine: EmbeddedEngine, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source, copy = tmp_path / "deck.sqlite3", tmp_path / "again" / "deck.sqlite3"
    copy.parent.mkdir()
    async with control_plane(settings_of(tmp_path, engine.url)) as one:
        runner = one.service.runners[ENGINE]
        await until(lambda: runner.counts.polls > 5, 60)
        arguments = ["backup", str(copy), "--database", str(source), "--json"]
        assert await asyncio.to_thread(run, arguments) == 0
        polls = runner.counts.polls
        await until(lambda: runner.counts.polls > polls + 2, 60)
    found = json.loads(capfd.readouterr().out)
    assert found["path"] == str(copy)
    assert found["engines"] == 1
    assert found["audit"]["broken"] == []
    with Store.open(source, read_only=True) as store:
        last = store.last_seq(ENGINE)
    async with control_plane(settings_of(copy.parent, engine.url)) as again:
        runner = again.service.runners[ENGINE]
        await until(lambda: runner.counts.polls > 3, 60)
        await until(lambda: bool(again.service.store.ticks(ENGINE)), 60)
        seqs = [tick.observation.seq for tick in again.service.store.ticks(ENGINE, after_id=0)]
        assert seqs == list(range(1, len(seqs) + 1))
        assert seqs[-1] > 5
        assert again.service.store.check_audit().intact
    assert last > 5


def test_a_database_is_checked_and_measured(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.db"
    with Store.open(path) as store:
        store.write([a_tick(), an_audit_entry()]).result(timeout=30)
        assert run(["check", str(path)]) == 0
        assert run(["stats", "--database", str(path)]) == 0
        told = capfd.readouterr().out
        assert "holds together" in told
        assert "ticks                            1 rows" in told
        assert run(["stats", "--database", str(path), "--json"]) == 0
        assert json.loads(capfd.readouterr().out)["rows"]["audit"] == 1


def test_the_settings_name_the_database(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, config = tmp_path / "s.db", tmp_path / "deck.toml"
    with Store.open(path) as store:
        store.write([a_tick()]).result(timeout=30)
    config.write_text(f'database = "{path}"\n')
    assert run(["check", "--config", str(config)]) == 0
    assert str(path) in capfd.readouterr().out


def test_what_cannot_be_done_has_a_code_and_a_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.db"
    with Store.open(path) as store:
        store.write([a_tick()]).result(timeout=30)
    assert run(["backup", str(path), "--database", str(path)]) == 5
    assert "exists: choose another name" in capfd.readouterr().err
    assert run(["check", str(tmp_path / "none.db")]) == 5
    assert "does not exist" in capfd.readouterr().err
