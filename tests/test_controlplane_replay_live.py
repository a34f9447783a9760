"""A recording of the running control plane replays to its own verdicts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from controlplane.messages import ExtendRequest, OverrideRequest, ReleaseRequest, StanceRequest
from controlplane.replay_verify import verify
from engine_patch.contract import Mode
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
