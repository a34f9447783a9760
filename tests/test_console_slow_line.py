"""Over 200 ms of latency and 1 % loss the console is live, acts, and answers keys at once."""

from __future__ import annotations

import time
from datetime import UTC
from pathlib import Path

from console.app import Console, Options
from console.scene import LinkState
from controlplane.client import ControlPlaneClient
from tests.controlplane_rig import ENGINE, control_plane, embedded_engine, settings_of
from tests.slow_line import SlowLine
from tests.test_console_live import act, confirmed, fill_override, reads, shown


async def test_a_slow_and_lossy_line_slows_the_numbers_not_the_keys(tmp_path: Path) -> None:
    with embedded_engine("--tiers", "off,s1k1d2,s3k1d4") as engine:
        settings = settings_of(tmp_path, engine.url, engine={"poll_s": 0.5})
        async with (
            control_plane(settings) as running,
            SlowLine(running.url, one_way_s=0.1, loss=0.01) as line,
        ):
            options = Options(engine_id=ENGINE, author="op1", zone=UTC)
            app = Console(ControlPlaneClient(line.url), options)
            async with app.run_test(size=(100, 30), notifications=True) as pilot:
                await shown(pilot, lambda: app.link.state is LinkState.LIVE)
                await shown(pilot, lambda: confirmed(app) == "s3k1d4")
                await reads(pilot, "LIVE ●")
                # So slow that a key which waited for it would show on the busiest machine.
                line.one_way_s, taken = 1.0, []
                for place in range(20):
                    begun = time.perf_counter()
                    await pilot.press("123456"[place % 6])
                    taken.append(time.perf_counter() - begun)
                # Opening a screen never waits for the line; what it reads comes later.
                assert sorted(taken)[len(taken) // 2] < 1.0
                line.one_way_s = 0.1
                await pilot.press("2")
                await fill_override(pilot, mode="off", length="1m", reason="slow line")
                begun = time.monotonic()
                await act(pilot)
                await reads(pilot, "○ OFF", "engine confirms off")
                assert time.monotonic() - begun < 30
                for place, words in (("1", "1 engine"), ("4", "simulation table"), ("6", "op1")):
                    await pilot.press(place)
                    await reads(pilot, words)
