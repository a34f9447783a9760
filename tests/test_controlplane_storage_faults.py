"""A database that cannot be written stops the recording, loudly, and never the control."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane import recording
from controlplane.client import ControlPlaneError
from controlplane.messages import OverrideRequest
from controlplane.metrics_page import Page
from controlplane.runner import Runner
from engine_patch.contract_words import Mode
from engine_patch.tier import OFF
from store import backlog, sqlite, writer
from store.db import Store
from store.marks import NOT_RECORDED
from store.policies import FixedPolicy
from store.records import Outcome, Reason, Tick
from tests.controlplane_rig import (
    ENGINE,
    EmbeddedEngine,
    Running,
    control_plane,
    embedded_engine,
    settings_of,
    until,
)

HOLDER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
db.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""
LONG_S = 60.0


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4", "--table", "fa3") as running:
        yield running


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for locks and for the store only as long as a test needs."""
    monkeypatch.setattr(sqlite, "BUSY_MS", 50)
    monkeypatch.setattr(backlog, "RETRY_S", 0.05)
    monkeypatch.setattr(writer, "RETRY_S", 0.05)
    monkeypatch.setattr(recording, "WAIT_S", 0.3)


def wanted(length_s: float, mode: Mode = Mode.OFF) -> OverrideRequest:
    return OverrideRequest(mode=mode, length_s=length_s, author="alice", reason="a test")


@asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    """Another process inside ``BEGIN EXCLUSIVE``."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        HOLDER,
        str(path),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"held\n"
        yield
    finally:
        process.stdin.close()
        await process.wait()


@contextmanager
def full(store: Store) -> Iterator[None]:
    """The real SQLITE_FULL: the file may not grow by a page."""
    driver = _driver(store)
    pages = driver.execute("PRAGMA page_count").fetchone()[0]
    driver.execute(f"PRAGMA max_page_count = {pages}")
    try:
        yield
    finally:
        driver.execute("PRAGMA max_page_count = 4294967294")


def _driver(store: Store) -> sqlite3.Connection:
    assert store._writer is not None
    driver: Any = store._writer._line.connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


async def _control_goes_on(one: Running, engine: EmbeddedEngine) -> None:
    """While nothing is recorded: an override ends at its time and automation commands again."""
    runner = one.service.runners[ENGINE]
    await until(lambda: bool(one.service.store.state.trouble), LONG_S)
    polls, sent = runner.counts.polls, runner.counts.commands["accepted"]
    await until(lambda: runner.counts.polls > polls + 5, LONG_S)
    await until(lambda: runner.pilot.override is None, LONG_S)
    await until(lambda: _confirmed(runner) == "s3k1d4", LONG_S)
    _want_off(runner)
    await until(lambda: _confirmed(runner) == OFF, LONG_S)
    assert runner.counts.commands["accepted"] > sent
    assert engine.state()["mode"] == "off"
    tick = _newest(runner)
    assert tick.id == 0
    assert "store_failed" in [alarm.code for alarm in tick.alarms]


def _want_off(runner: Runner) -> None:
    """Automation comes to another verdict."""
    policy = runner.pilot.policy
    assert policy is not None
    changes = {"policy": FixedPolicy(tier=OFF), "version": policy.version + 1}
    runner.pilot.set_policy(policy.model_copy(update=changes))


def _newest(runner: Runner) -> Tick:
    tick = runner.status().tick
    assert tick is not None
    return tick


def _confirmed(runner: Runner) -> str | None:
    return _newest(runner).confirmed


async def _told_everywhere(one: Running) -> None:
    async with one.client() as client, httpx.AsyncClient(base_url=one.url, trust_env=False) as web:
        ready = await web.get("/readyz")
        assert ready.status_code == 503
        assert [alarm.code for alarm in (await client.about()).alarms] == ["not_recording"]
        assert "specdeck_store_recording 0.0" in Page(one.service).text().decode()
        with pytest.raises(ControlPlaneError, match="cannot be recorded"):
            await client.set_override(ENGINE, wanted(60))


async def _everything_is_there(one: Running, path: Path) -> None:
    """Once the database is written again: no observation and no decision is missing."""
    store, runner = one.service.store, one.service.runners[ENGINE]
    await until(lambda: not store.state.trouble, LONG_S)
    await until(lambda: _newest(runner).id > 0, LONG_S)
    await until(lambda: not runner.troubles(), LONG_S)
    with Store.open(path, read_only=True) as reader:
        seqs = [tick.observation.seq for tick in reader.ticks(ENGINE, after_id=0, limit=10_000)]
        assert seqs == list(range(1, seqs[-1] + 1))
        assert [one.ended_by for one in reader.overrides(ENGINE)] == ["expired"]
        made = [one for one in reader.decisions(ENGINE) if one.reason is not Reason.OVERRIDE]
        assert [(one.to_tier, one.outcome) for one in made][:1] == [(OFF, Outcome.CONFIRMED)]
    assert runner.recorder.unrecorded == runner.recorder.owed == runner.recorder.owed_lost == 0
    async with httpx.AsyncClient(base_url=one.url, trust_env=False) as web:
        assert (await web.get("/readyz")).status_code == 200


async def test_another_process_that_holds_the_database_stops_no_control_and_costs_no_record(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    path = tmp_path / "deck.sqlite3"
    async with control_plane(settings_of(tmp_path, engine.url)) as one, one.client() as client:
        await until(lambda: one.service.runners[ENGINE].pilot.facts is not None, LONG_S)
        heard: list[Tick] = []

        async def hear() -> None:
            async for tick in client.events(ENGINE, 0):
                heard.append(tick)  # noqa: PERF401 (it never ends)

        hearing = asyncio.create_task(hear())
        await client.set_override(ENGINE, wanted(2))
        async with locked(path):
            await _control_goes_on(one, engine)
            await _told_everywhere(one)
            await until(lambda: any(not tick.id for tick in heard), LONG_S)
        await _everything_is_there(one, path)
        stored = [tick.id for tick in one.service.store.ticks(ENGINE, after_id=0, limit=10_000)]
        await until(lambda: {tick.id for tick in heard} >= set(stored), LONG_S)
        hearing.cancel()
    ids = [tick.id for tick in heard if tick.id]
    assert ids == sorted(set(ids))


async def test_a_full_disk_stops_no_control_and_space_brings_the_record_back(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    path = tmp_path / "deck.sqlite3"
    async with control_plane(settings_of(tmp_path, engine.url)) as one, one.client() as client:
        await until(lambda: one.service.runners[ENGINE].pilot.facts is not None, LONG_S)
        await client.set_override(ENGINE, wanted(2))
        with full(one.service.store):
            await _control_goes_on(one, engine)
            assert "the disk is full" in one.service.store.state.trouble
            await _told_everywhere(one)
        await _everything_is_there(one, path)


async def test_what_cannot_wait_is_counted_and_marked_and_decisions_are_kept(
    engine: EmbeddedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "TICK_LIMIT", 5)
    monkeypatch.setattr(writer, "QUEUE_LIMIT", 5)
    path = tmp_path / "deck.sqlite3"
    async with control_plane(settings_of(tmp_path, engine.url)) as one, one.client() as client:
        runner, store = one.service.runners[ENGINE], one.service.store
        await until(lambda: runner.pilot.facts is not None, LONG_S)
        await client.set_override(ENGINE, wanted(2))
        async with locked(path):
            await until(lambda: runner.recorder.unrecorded > 3, LONG_S)
            await until(lambda: runner.pilot.override is None, LONG_S)
            await until(lambda: _confirmed(runner) == "s3k1d4", LONG_S)
            _want_off(runner)
            await until(lambda: _confirmed(runner) == OFF, LONG_S)
            await until(lambda: runner.recorder.owed > 0, LONG_S)
            assert store.state.refused > 3
        await until(lambda: not runner.troubles() and not runner.recorder.owed, LONG_S)
        await until(lambda: bool(store.markers(ENGINE)), LONG_S)
        await until(lambda: not store.overrides(ENGINE, in_force_only=True), LONG_S)
        (marker,) = [one for one in store.markers(ENGINE) if one.kind == NOT_RECORDED]
        seqs = [tick.observation.seq for tick in store.ticks(ENGINE, after_id=0, limit=10_000)]
        missing = set(range(1, seqs[-1])) - set(seqs)
        assert len(missing) == runner.recorder.unrecorded
        assert f"{len(missing)} observations before this one" in marker.text
        assert marker.seq == max(missing) + 1
        told = [one for one in store.decisions(ENGINE) if one.seq in missing]
        assert told, "the decision made while nothing was recorded is kept"
        assert runner.recorder.owed_lost == 0
