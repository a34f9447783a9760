"""The wall clock is stepped by an hour, either way, while a control plane looks after an engine.

The machine's clock cannot be set in a test; ``SystemClock`` is the one place where the control
plane reads it, so its wall time is stepped there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.clock import SystemClock
from controlplane.messages import OverrideRequest
from engine_patch.contract_words import Mode
from store.observations import Sample
from tests.controlplane_rig import (
    ENGINE,
    EmbeddedEngine,
    control_plane,
    embedded_engine,
    settings_of,
    until,
)

HOUR_MS = 3_600_000
STEPS = (HOUR_MS, -HOUR_MS)
POLICY = {
    "kind": "hysteresis",
    "tiers": ["s3k1d4", "off"],
    "boundaries": [{"up_at": 12, "down_at": 6}],
    "up_hold_s": 900.0,
    "down_hold_s": 900.0,
    "min_dwell_s": 0.5,
    "start_grace_s": 0.0,
}
"""Holds that do not end within a test: only a clock that runs an hour ahead would end them."""


class SteppedClock(SystemClock):
    """The machine's clocks, with wall time set by hand."""

    step_ms = 0

    def utc_ms(self) -> int:
        return super().utc_ms() + self.step_ms


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4") as running:
        yield running


def settings(tmp_path: Path, url: str) -> Any:
    engine = {"policy": POLICY, "poll_s": 0.05, "lease_s": 600, "group": "all"}
    return settings_of(tmp_path, url, engine=engine)


async def test_an_override_ends_when_its_length_is_over_whatever_the_wall_clock_does(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    clock = SteppedClock()
    async with control_plane(settings(tmp_path, engine.url), clock) as one, one.client() as client:
        runner = one.service.runners[ENGINE]
        await until(lambda: runner.pilot.facts is not None, 60)
        begun = time.monotonic()
        request = OverrideRequest(mode=Mode.OFF, length_s=2, author="alice", reason="a test")
        override = await client.set_override(ENGINE, request)
        assert override is not None
        for clock.step_ms in STEPS:
            polls = runner.counts.polls
            await until(lambda: runner.counts.polls > polls + 3, 60)  # noqa: B023 - awaited here
            left_s = runner.pilot.left_s(clock.mono_ms())
            assert 2 - (time.monotonic() - begun) - 0.1 < left_s < 2
            assert left_s < 0.1 or runner.pilot.override == override
        await until(lambda: runner.pilot.override is None, 60)
        assert time.monotonic() - begun >= 1.9
        await until(lambda: one.service.store.overrides(ENGINE)[0].ended_utc_ms is not None, 60)
        (kept,) = one.service.store.overrides(ENGINE)
        assert (kept.ended_by, kept.expires_utc_ms) == ("expired", override.expires_utc_ms)


async def test_a_step_switches_nothing_and_makes_no_burst(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    clock = SteppedClock()
    async with control_plane(settings(tmp_path, engine.url), clock) as one:
        runner, store = one.service.runners[ENGINE], one.service.store
        await until(lambda: runner.pilot.facts is not None, 60)
        # A load above the boundary: the hold runs, and may not end by a step.
        engine.load(20, tokens=256)
        try:

            def holds() -> bool:
                tick = runner.status().tick
                if tick is None or not isinstance(tick.observation, Sample):
                    return False
                loaded = (tick.observation.concurrency or 0) >= 12
                ours = tick.observation.claim_holder == "specdeck@test"
                return loaded and ours and tick.confirmed == "s3k1d4" and tick.pending is None

            await until(holds, 60)
            decided = len(store.decisions(ENGINE))
            order = engine.state()["generation"]
            for clock.step_ms in STEPS:
                polls, begun = runner.counts.polls, clock.mono_ms()
                await until(lambda: runner.counts.polls > polls + 10, 60)  # noqa: B023 - as above
                # Time went on by a second: slots of an hour were not made up for.
                slots = (clock.mono_ms() - begun) / 50
                assert runner.counts.polls - polls <= slots + 2
                assert len(store.decisions(ENGINE)) == decided
                assert engine.state()["generation"] == order
                tick = runner.status().tick
                assert tick is not None
                assert (tick.confirmed, tick.alarms) == ("s3k1d4", ())
                ticks = store.ticks(ENGINE, limit=5)
                monos = [one.observation.at_mono_ms for one in ticks]
                assert monos == sorted(monos)
                assert abs(ticks[-1].observation.at_utc_ms - clock.utc_ms()) < 60_000
        finally:
            engine.unload()


def test_the_control_plane_reads_wall_time_in_one_place_alone() -> None:
    """What a step can reach.  Reports and load runs stamp their files; they steer nothing."""
    stamps = {"clock.py", "load_run.py", "bench_files.py"}
    reads = re.compile(r"time\.time\(|time_ns\(|datetime\.now|utcnow|time\.localtime|time\.gmtime")
    folder = Path(__file__).parent.parent / "controlplane"
    found = {path.name for path in folder.glob("*.py") if reads.search(path.read_text())}
    assert found - stamps - {"load_clients.py"} == set()  # that one reads monotonic_ns alone
    assert "monotonic_ns" in (folder / "load_clients.py").read_text()


async def test_a_clock_that_went_back_over_a_restart_lengthens_no_override(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    clock, given = SteppedClock(), settings(tmp_path, engine.url)
    async with control_plane(given, clock) as one, one.client() as client:
        await until(lambda: one.service.runners[ENGINE].pilot.facts is not None, 60)
        request = OverrideRequest(mode=Mode.OFF, length_s=3, author="alice", reason="a test")
        begun = time.monotonic()
        await client.set_override(ENGINE, request, wait_s=60)
    earlier = SteppedClock()
    earlier.step_ms = -HOUR_MS
    async with control_plane(given, earlier) as one:
        runner = one.service.runners[ENGINE]
        await until(lambda: runner.counts.polls > 1, 60)
        # The engine's own lease, which ran on its clock, says when it ends.
        await until(lambda: runner.pilot.override is None, 60)
        assert time.monotonic() - begun < 60
