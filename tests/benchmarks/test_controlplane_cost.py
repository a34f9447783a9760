"""What the whole control-plane process costs: CPU share and memory with one engine at 2 Hz."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import psutil
import pytest

from tests.controlplane_rig import ENGINE, deck, embedded_engine

pytestmark = pytest.mark.benchmark
SETTLE_S = 5.0
MEASURE_S = 30.0


@pytest.mark.parametrize("readers", [0, 1])
async def test_one_engine_at_2_hz_costs_less_than_3_percent_and_120_mb(
    tmp_path: Path, readers: int
) -> None:
    from controlplane.client import ControlPlaneClient

    config = tmp_path / "deck.toml"
    config.write_text(
        f'database = "{tmp_path / "deck.sqlite3"}"\n'
        f'[[engines]]\nid = "{ENGINE}"\nurl = "%s"\nstance = "active"\npoll_s = 0.5\n'
    )
    with embedded_engine("--tiers", "off,s1k1d2,s3k1d4") as engine:
        config.write_text(config.read_text() % engine.url)
        engine.load(8, tokens=256)
        with deck(["--config", str(config)], os.environ) as running:

            async def read(client: ControlPlaneClient) -> None:
                async for _ in client.events():
                    pass

            async with ControlPlaneClient(running.url) as client:
                reading = [asyncio.create_task(read(client)) for _ in range(readers)]
                process = psutil.Process(running.process.pid)
                await asyncio.sleep(SETTLE_S)
                before, begun = process.cpu_times(), time.monotonic()
                await asyncio.sleep(MEASURE_S)
                after, took = process.cpu_times(), time.monotonic() - begun
                polls = len(await client.ticks(ENGINE, limit=10_000))
                for task in reading:
                    task.cancel()
                await asyncio.gather(*reading, return_exceptions=True)
            share = (after.user + after.system - before.user - before.system) / took
            memory = process.memory_info().rss
    print(
        f"\none embedded engine at 2 Hz, 8 requests running, {readers} event stream(s), "
        f"{polls} ticks: {100 * share:.2f} % of one core, {memory / 1e6:.1f} MB resident"
    )
    assert share < 0.03
    assert memory < 120e6
