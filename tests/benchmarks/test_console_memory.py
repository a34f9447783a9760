"""A console that is open for a day keeps its memory: 24 hours of ticks in virtual time."""

from __future__ import annotations

import gc
import os

import psutil
import pytest

from console.messages import LookedUp, TickArrived
from console.places import Need
from tests.benchmarks.test_console_fleet_cost import keep
from tests.console_fleet_story import fleet, looked, row
from tests.console_pictures import Picture, opened
from tests.console_story import DEEP, ENGINE, NARROW, decision, sample, tick

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]
HOURS = 24
TICKS_PER_HOUR = 7200
AT_ONCE = 240


async def test_memory_is_flat_over_24_hours_of_virtual_time() -> None:
    process = psutil.Process(os.getpid())
    held: list[float] = []
    rows = [row(f"h200-{place:03d}") for place in range(200)]
    async with opened(Picture("any", size=(120, 40), looked=looked)) as (app, pilot):
        half = 242
        for hour in range(HOURS):
            for first in range(0, TICKS_PER_HOUR, AT_ONCE):
                for _ in range(AT_ONCE):
                    half += 1
                    second = half / 2
                    made = ()
                    if half % 600 == 0:
                        made = (decision(second, DEEP, NARROW),)
                    app.post_message(TickArrived(tick(sample(second), decisions=made)))
                app.clock.at_ms += AT_ONCE * 500  # type: ignore[attr-defined]
                app.post_message(LookedUp(Need.FLEET, ENGINE, fleet(*rows)))
                await pilot.press("123456"[(first // AT_ONCE) % 6])
                await pilot.pause()
            gc.collect()
            held.append(process.memory_info().rss / 1e6)
            print(f"{hour + 1:>3} h: {held[-1]:.1f} MB", flush=True)
        assert app.board is not None
        assert app.board.tick is not None
        assert app.board.tick.observation.seq == 1000 + half
    grown = held[-1] - held[1]
    keep(
        "memory over 24 h of virtual time",
        after_2_h_mb=held[1],
        after_24_h_mb=held[-1],
        grown_mb=grown,
    )
    assert grown < 10, held
