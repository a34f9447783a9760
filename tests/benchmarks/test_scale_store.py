"""5,000 observations a second into SQLite, each a write of its own, as engines' loops make them.

The ticks are real ones: those of an embedded engine with requests running, under other names.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import platform
import time
from collections.abc import Iterator
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path

import pytest

from store.db import Record, Store
from store.records import Tick
from tests.controlplane_rig import ENGINE, control_plane, embedded_engine, settings_of, until
from tests.fault_rig import precedence

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]
RESULTS = Path(__file__).parent / "results" / "scale_store.json"
RATE, SECONDS, ENGINES = 5000, 30, 500
SLICE_S = 0.02


async def real_ticks(tmp_path: Path, count: int) -> list[Tick]:
    """Ticks of a loaded embedded engine."""
    policy = {
        "kind": "hysteresis",
        "tiers": ["s3k1d4", "s1k1d2", "off"],
        "boundaries": [{"up_at": 8, "down_at": 6}, {"up_at": 24, "down_at": 16}],
    }
    with embedded_engine("--tiers", "off,s1k1d2,s3k1d4") as engine:
        engine.load(12, tokens=256)
        given = settings_of(tmp_path, engine.url, engine={"poll_s": 0.05, "policy": policy})
        async with control_plane(given) as one:
            await until(lambda: one.service.runners[ENGINE].counts.polls > count + 20, 120)
            return await asyncio.to_thread(one.service.store.ticks, ENGINE, limit=count)


def under_other_names(ticks: list[Tick], first_seq: int) -> Iterator[Tick]:
    """One second's ticks: each engine in turn, with numbers that rise."""
    for place in range(RATE):
        name, seq = f"e{place % ENGINES}", first_seq + place // ENGINES
        tick = ticks[(seq + 7 * (place % ENGINES)) % len(ticks)]
        seen = tick.observation.model_copy(update={"engine_id": name, "seq": seq})
        yield tick.model_copy(update={"id": 0, "engine_id": name, "observation": seen})


def test_5000_observations_a_second_are_sustained(tmp_path: Path) -> None:
    ticks = asyncio.run(real_ticks(tmp_path, 200))
    path = tmp_path / "scale.sqlite3"
    seconds = [
        list(under_other_names(ticks, 1 + RATE // ENGINES * second)) for second in range(SECONDS)
    ]
    # The prepared ticks are this test's alone: a collector that goes through them would be too.
    gc.collect()
    gc.freeze()
    last: list[Future[list[Record]]] = []
    most, cpu_s, begun = 0, time.process_time(), time.monotonic()
    with Store.open(path) as store:
        for second, made in enumerate(seconds):
            share = round(RATE * SLICE_S)
            written: list[Future[list[Record]]] = []
            for place in range(0, RATE, share):
                written += [store.write([tick]) for tick in made[place : place + share]]
                most = max(most, store.waiting)
                until_s = begun + second + (place + share) / RATE
                time.sleep(max(until_s - time.monotonic(), 0))
            for future in last:
                future.result()
            last = written
        offered_s = time.monotonic() - begun
        for future in last:
            future.result()
        took_s = time.monotonic() - begun
        cpu_s = time.process_time() - cpu_s
        size = sum(file.stat().st_size for file in tmp_path.glob("scale.sqlite3*"))
    gc.unfreeze()
    count = RATE * SECONDS
    told = {
        "date": datetime.now(UTC).date().isoformat(),
        "setup": f"{os.cpu_count()} cores shared with other work ({precedence()}), Python "
        f"{platform.python_version()}; {count} ticks of {ENGINES} "
        f"engines, offered at {RATE} a second, each a write of its own",
        "offered_s": round(offered_s, 2),
        "stored_after_s": round(took_s, 2),
        "stored_per_s": round(count / took_s),
        "most_writes_waiting": most,
        "refused": 0,
        "cpu_us_per_tick": round(1e6 * cpu_s / count, 1),
        "cpu_share_of_one_core": round(cpu_s / took_s, 3),
        "bytes_per_tick": round(size / count, 1),
        "json_bytes_per_tick": len(ticks[-1].model_dump_json()),
    }
    print(json.dumps(told, indent=1))
    RESULTS.write_text(json.dumps(told, indent=1) + "\n")
    assert took_s < 1.02 * SECONDS
