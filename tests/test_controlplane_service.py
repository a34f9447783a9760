"""The running service: killed and restarted, refused by the store, restarted engines, policies."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.messages import OverrideRequest, ReleaseRequest, StanceRequest
from engine_patch.contract_words import Mode
from store.db import Store
from store.policies import Stance
from store.records import Outcome
from tests.controlplane_rig import (
    BUSY,
    ENGINE,
    Deck,
    EmbeddedEngine,
    control_plane,
    deck,
    embedded_engine,
    settings_of,
    until,
)


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4", "--table", "fa3") as running:
        yield running


def wanted(length_s: float, mode: Mode = Mode.OFF) -> OverrideRequest:
    return OverrideRequest(mode=mode, length_s=length_s, author="alice", reason="a test")


def toml(tmp_path: Path, url: str) -> list[str]:
    """Arguments of a process that looks after the engine."""
    path = tmp_path / "deck.toml"
    path.write_text(
        f'database = "{tmp_path / "deck.sqlite3"}"\nholder = "specdeck@test"\n'
        f'[[engines]]\nid = "{ENGINE}"\nurl = "{url}"\nstance = "active"\npoll_s = 0.1\n'
    )
    return ["--config", str(path)]


async def confirmed(running: Deck, tier: str, seconds: float = 5.0) -> None:
    from controlplane.client import ControlPlaneClient

    async with ControlPlaneClient(running.url) as client:
        end = time.monotonic() + seconds
        while True:
            tick = (await client.engine(ENGINE)).tick
            if tick is not None and tick.confirmed == tier:
                return
            assert time.monotonic() < end, f"{tier} not confirmed: {tick}"
            await asyncio.sleep(0.02)


async def test_an_override_survives_a_kill_with_its_original_end(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    from controlplane.client import ControlPlaneClient

    arguments = toml(tmp_path, engine.url)
    with deck(arguments, os.environ) as first:
        async with ControlPlaneClient(first.url) as client:
            await confirmed(first, "s3k1d4")
            override = await client.set_override(ENGINE, wanted(600), wait_s=5)
            assert override is not None
            last = (await client.ticks(ENGINE, limit=1))[0]
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
    with deck(arguments, os.environ) as second:
        async with ControlPlaneClient(second.url) as client:
            await confirmed(second, "off")
            assert await client.override(ENGINE) == override
            ticks = await client.ticks(ENGINE, after_id=last.id, limit=1)
            assert ticks[0].observation.seq > last.observation.seq
            assert (await client.ticks(ENGINE, after_id=last.id - 1, limit=1))[0] == last
            newest = (await client.engine(ENGINE)).tick
            assert newest is not None
            assert newest.override_left_s is not None
            left_s = (override.expires_utc_ms - newest.observation.at_utc_ms) / 1000
            assert abs(newest.override_left_s - left_s) < 0.1
        code, errors, took = second.end(signal.SIGTERM)
    assert (code, "Traceback" in errors) == (0, False)
    assert took < 10
    with Store.open(tmp_path / "deck.sqlite3", read_only=True) as store:
        (kept,) = store.overrides(ENGINE)
        assert kept == override
        actions = [entry.action for entry in reversed(store.audit())]
        assert actions == ["service.start", "override.set", "service.start", "service.stop"]


async def test_an_override_ends_after_a_restart_when_it_was_to_end(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, engine.url)
    async with control_plane(settings) as one, one.client() as client:
        await until(lambda: one.service.runners[ENGINE].pilot.facts is not None)
        override = await client.set_override(ENGINE, wanted(2.5), wait_s=2)
        assert override is not None
    async with control_plane(settings) as one:
        runner, store = one.service.runners[ENGINE], one.service.store
        await until(lambda: runner.pilot.override == override)
        await until(lambda: store.overrides(ENGINE)[0].ended_utc_ms is not None)
        (kept,) = store.overrides(ENGINE)
        assert kept.ended_by == "expired"
        assert kept.ended_utc_ms is not None
        assert -50 < kept.ended_utc_ms - override.expires_utc_ms < 1000
        # The tier it displaced comes back.
        await until(lambda: engine.state()["mode"] == "on")


async def test_an_override_that_ran_out_while_nobody_looked_is_ended_at_its_end(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, engine.url)
    async with control_plane(settings) as one, one.client() as client:
        await until(lambda: one.service.runners[ENGINE].pilot.facts is not None)
        override = await client.set_override(ENGINE, wanted(0.6))
        assert override is not None
    await asyncio.sleep(0.7)
    async with control_plane(settings) as one:
        await until(lambda: one.service.runners[ENGINE].counts.polls > 0)
        assert one.service.runners[ENGINE].pilot.override is None
        (kept,) = one.service.store.overrides(ENGINE)
        assert (kept.ended_by, kept.ended_utc_ms) == ("expired", override.expires_utc_ms)


async def test_load_switches_speculation_off_and_quiet_brings_it_back(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    policy = {
        "kind": "hysteresis",
        "tiers": ["s3k1d4", "off"],
        "boundaries": [{"up_at": 24, "down_at": 12}],
        "up_hold_s": 0.3,
        "down_hold_s": 0.3,
        "min_dwell_s": 0.5,
        "start_grace_s": 0.0,
    }
    settings = settings_of(tmp_path, engine.url, engine={"policy": policy})
    async with control_plane(settings) as one:
        runner, store = one.service.runners[ENGINE], one.service.store

        def runs(tier: str) -> bool:
            tick = runner.status().tick
            return tick is not None and tick.confirmed == tier

        await until(lambda: runs("s3k1d4"))
        await asyncio.to_thread(engine.load, BUSY)
        await until(lambda: runs("off"))
        await asyncio.to_thread(engine.unload)
        await until(lambda: runs("s3k1d4"))
        await until(lambda: all(d.outcome is Outcome.CONFIRMED for d in store.decisions(ENGINE)))
        back, away = store.decisions(ENGINE)
        assert (away.from_tier, away.to_tier, back.to_tier) == ("s3k1d4", "off", "s3k1d4")
        assert away.clauses
        assert away.latency_ms is not None
        assert away.latency_ms < 1000
        # The engine's own journal tells of the same two changes.
        await until(lambda: len(store.switches(ENGINE)) >= 2)
        switches = store.switches(ENGINE)
        assert [s.entry.to_tier for s in switches[:2]] == ["s3k1d4", "off"]
        assert store.scrapes(ENGINE, away.seq, away.seq + 3)


async def test_a_restarted_engine_gets_the_override_again(tmp_path: Path) -> None:
    with embedded_engine("--tiers", "off,s3k1d4") as engine:
        settings = settings_of(tmp_path, engine.url)
        async with control_plane(settings) as one, one.client() as client:
            runner = one.service.runners[ENGINE]
            await until(lambda: runner.pilot.facts is not None)
            await client.set_override(ENGINE, wanted(60), wait_s=2)
            boot = engine.state()["boot_id"]
            engine.fault(restart=True)

            def again() -> bool:
                tick, facts = runner.status().tick, runner.pilot.facts
                new = facts is not None and facts.boot_id != boot
                return new and tick is not None and tick.confirmed == "off"

            await until(again)
            await client.release_override(ENGINE, ReleaseRequest(author="alice"))


async def test_settings_make_a_version_only_when_they_say_something_new(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, engine.url)

    async def version_of(**more: object) -> tuple[int, Stance, str]:
        async with control_plane(settings_of(tmp_path, engine.url, engine=more)) as one:
            await until(lambda: one.service.runners[ENGINE].pilot.policy is not None)
            policy = one.service.runners[ENGINE].pilot.policy
            assert policy is not None
            return policy.version, policy.stance, policy.author

    assert await version_of() == (1, Stance.ACTIVE, "settings")
    assert await version_of() == (1, Stance.ACTIVE, "settings")
    async with control_plane(settings) as one, one.client() as client:
        await until(lambda: one.service.runners[ENGINE].pilot.policy is not None)
        await client.set_stance(ENGINE, StanceRequest(stance=Stance.PAUSED, author="bob"))
    # What a person set stays, as long as the settings say what they said before.
    assert await version_of() == (2, Stance.PAUSED, "bob")
    assert await version_of(lease_s=20) == (3, Stance.PAUSED, "settings")
    assert await version_of(lease_s=20, stance="shadow") == (4, Stance.SHADOW, "settings")


async def test_a_store_that_fails_stops_no_control_and_is_said_loudly(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    async with control_plane(settings_of(tmp_path, engine.url)) as one, one.client() as client:
        runner = one.service.runners[ENGINE]
        await until(lambda: runner.pilot.facts is not None)
        await client.set_override(ENGINE, wanted(60), wait_s=2)
        one.service.store.close()
        polls = runner.counts.polls
        await until(lambda: runner.counts.polls > polls + 3)
        tick = runner.status().tick
        assert tick is not None
        assert any(alarm.code == "store_failed" for alarm in tick.alarms)
        assert one.service.troubles()
        assert engine.state()["mode"] == "off"


async def test_a_loop_that_fails_is_started_again_and_told(
    engine: EmbeddedEngine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_of(tmp_path, engine.url)
    async with control_plane(settings) as one:
        runner = one.service.runners[ENGINE]
        await until(lambda: runner.counts.polls > 2)
        step, failures = runner.pilot.step, 3

        def broken(observation: object) -> object:
            nonlocal failures
            if failures:
                failures -= 1
                raise RuntimeError("a defect")
            return step(observation)  # type: ignore[arg-type]

        runner.pilot.step = broken  # type: ignore[assignment, method-assign]
        await until(lambda: runner.counts.failures > 0)
        assert any("a defect" in text for text in one.service.troubles())
        await until(lambda: failures == 0)
        await until(lambda: not one.service.troubles())
        assert runner.counts.failures == 3
    # Once with its context, not three times.
    assert [r.levelname for r in caplog.records if r.name == "specdeck.engine"] == ["ERROR"]


async def test_ticks_older_than_the_retention_go_and_newer_ones_stay(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, engine.url, storage={"ticks_days": 1})
    async with control_plane(settings) as one:
        await until(lambda: one.service.runners[ENGINE].counts.polls > 3)
        kept = one.service.store.ticks(ENGINE, after_id=0, limit=3)
    with Store.open(tmp_path / "deck.sqlite3") as store:
        two_days_ago = kept[0].observation.at_utc_ms - 2 * 86_400_000
        last = store.last_seq(ENGINE)
        for seq in range(last + 1, last + 4):
            old = kept[0].observation.model_copy(update={"seq": seq, "at_utc_ms": two_days_ago})
            store.write([kept[0].model_copy(update={"id": 0, "observation": old})]).result()
        old_ids = [tick.id for tick in store.ticks(ENGINE, limit=3)]
    async with control_plane(settings) as one:
        store = one.service.store

        def pruned() -> bool:
            ids = [tick.id for tick in store.ticks(ENGINE, after_id=0, limit=10_000)]
            # The newest tick of an engine is never removed: numbering goes on from it.
            return not set(old_ids[:2]) & set(ids)

        await until(pruned)
        assert store.ticks(ENGINE, after_id=0, limit=3) == kept
