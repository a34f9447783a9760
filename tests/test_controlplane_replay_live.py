"""A recording of the running control plane replays to its own verdicts."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from controlplane.messages import ExtendRequest, OverrideRequest, ReleaseRequest, StanceRequest
from controlplane.replay_verify import verify
from engine_patch.contract_words import Mode
from store import sqlite
from store.db import Store
from store.policies import Stance
from store.session_export import Range, export
from store.session_reader import SessionFile
from tests.controlplane_rig import (
    BUSY,
    ENGINE,
    EmbeddedEngine,
    Running,
    control_plane,
    embedded_engine,
    settings_of,
    until,
)

POLICY = {
    "kind": "hysteresis",
    "tiers": ["s3k1d4", "off"],
    "boundaries": [{"up_at": 24, "down_at": 16}],
    "up_hold_s": 0.3,
    "down_hold_s": 0.3,
    "min_dwell_s": 0.5,
    "start_grace_s": 0.2,
}


@pytest.mark.timeout(60)
async def test_live_verdicts_are_identical_on_replay(tmp_path: Path) -> None:
    with embedded_engine() as engine:
        settings = settings_of(
            tmp_path, engine.url, engine={"policy": POLICY, "poll_s": 0.05}, scrape_every_s=1
        )
        for round_ in range(2):  # the second is a new process of the control plane
            async with control_plane(settings) as running:
                await _live(running, engine, round_)
        with Store.open(settings.database_location, read_only=True) as store:
            export(store, Range(ENGINE, "live"), tmp_path / "live.specdeck", redact=True)
    with SessionFile.open(tmp_path / "live.specdeck") as session:
        found = verify(session)
        assert found.differences == ()
        assert found.verified > 60
        assert found.ticks - found.verified <= 2  # before the first contact
        assert len(session.decisions()) >= 4
        assert len(list(session.scrapes())) >= 2


async def _live(running: Running, engine: EmbeddedEngine, round_: int) -> None:
    runner = running.service.runner(ENGINE)

    def tier(wanted: str) -> bool:
        return runner._tick is not None and runner._tick.confirmed == wanted

    if round_:
        await until(lambda: runner.pilot.override is not None and tier("off"), 10)
        await asyncio.sleep(0.2)
        await runner.desk.release_override(ReleaseRequest(author="op1"), "op1")
    await until(lambda: tier("s3k1d4"), 10)
    engine.load(BUSY)
    await until(lambda: tier("off"), 10)
    asked = OverrideRequest(
        mode=Mode.ON, tier="s3k1d4", length_s=30, author="op1", reason="load test"
    )
    await runner.desk.set_override(asked, "op1")
    await until(lambda: tier("s3k1d4"), 10)
    await runner.desk.extend_override(ExtendRequest(extra_s=5, author="op1"), "op1")
    await asyncio.sleep(0.3)
    await runner.desk.release_override(ReleaseRequest(author="op1"), "op1")
    await until(lambda: tier("off"), 10)
    await runner.desk.set_stance(StanceRequest(stance=Stance.SHADOW, author="op1"), "op1")
    await asyncio.sleep(0.3)
    await runner.desk.set_stance(StanceRequest(stance=Stance.ACTIVE, author="op1"), "op1")
    engine.unload()
    await until(lambda: tier("s3k1d4"), 10)
    if not round_:  # an override in force when the process ends is read back by the next one
        off = asked.model_copy(update={"mode": Mode.OFF, "tier": None})
        await runner.desk.set_override(off, "op1")
        await until(lambda: tier("off"), 10)


async def test_what_cannot_be_recorded_at_once_is_recorded_later_and_control_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_MS", 100)
    with embedded_engine() as engine:
        settings = settings_of(tmp_path, engine.url, engine={"policy": POLICY, "poll_s": 0.05})
        async with control_plane(settings) as running:
            runner = running.service.runner(ENGINE)
            await until(lambda: runner.counts.polls > 10)
            with closing(sqlite3.connect(settings.database_location)) as other:
                other.execute("BEGIN IMMEDIATE")  # as a full disk: nothing can be written
                engine.load(BUSY)
                await until(lambda: bool(runner.troubles()), 10)
                tick = runner.status().tick
                assert tick is not None
                assert "store_failed" in {alarm.code for alarm in tick.alarms}
                # The engine is switched all the same.
                await until(lambda: engine.state()["mode"] == "off", 10)
                other.rollback()
            await until(lambda: not runner.troubles(), 10)
            polls = runner.counts.polls
            await until(lambda: runner.counts.polls > polls + 20)
            engine.unload()
        with Store.open(settings.database_location, read_only=True) as store:
            export(store, Range(ENGINE, "delayed"), tmp_path / "delayed.specdeck")
    with SessionFile.open(tmp_path / "delayed.specdeck") as session:
        found = verify(session)
        assert found.differences == ()
        assert found.verified >= 20
        seqs = [tick.observation.seq for tick in session.ticks()]
    assert seqs == list(range(seqs[0], seqs[-1] + 1))
    assert sum(span.ticks for span in found.not_verifiable) <= 3
