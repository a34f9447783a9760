"""10,000 reconnects to the event stream of a control plane in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import random
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from store.db import Store
from tests.controlplane_rig import deck
from tests.fault_readers import Reader, come_back

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]
RESULTS = Path(__file__).parent / "results" / "faults_events.json"
ENGINES, READERS, TIMES, ROUNDS = 8, 50, 40, 5
"""50 readers come back 40 times in each of 5 rounds."""


async def at_rest(url: str, process: psutil.Process) -> dict[str, Any]:
    """What the process holds when nobody reads."""
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        end = time.monotonic() + 60
        while True:
            text = (await http.get(f"{url}/metrics")).text
            values = dict(
                line.split(" ", 1) for line in text.splitlines() if not line.startswith("#")
            )
            if float(values["specdeck_sse_clients"]) == 0:
                break
            assert time.monotonic() < end
            await asyncio.sleep(0.2)
    await asyncio.sleep(2)
    return {
        "resident_mb": round(process.memory_info().rss / 1e6, 1),
        "files": process.num_fds(),
        "threads": process.num_threads(),
        "dropped": float(values["specdeck_sse_dropped_total"]),
        "cpu_s": round(sum(process.cpu_times()[:2]), 2),
    }


async def test_10000_reconnects_lose_and_repeat_nothing_and_leak_nothing(tmp_path: Path) -> None:
    config = tmp_path / "deck.toml"
    config.write_text(
        f'database = "{tmp_path / "deck.sqlite3"}"\n'
        + "".join(
            # Refused at once, so that each poll is a tick.
            f'[[engines]]\nid = "e{place}"\nurl = "http://127.0.0.1:1/{place}"\npoll_s = 0.05\n'
            for place in range(ENGINES)
        )
    )
    rounds = []
    begun = time.monotonic()
    with deck(["--config", str(config)], os.environ) as running:
        process = psutil.Process(running.process.pid)
        port = int(running.url.rpartition(":")[2])
        await asyncio.sleep(2)
        readers = [Reader(port, random.Random(seed), last=seed) for seed in range(READERS)]
        for _ in range(ROUNDS):
            await come_back(readers, TIMES)
            rounds.append(await at_rest(running.url, process))
            print(rounds[-1])
        code, errors, _ = running.end(15)
        assert code == 0
        assert "Traceback" not in errors
    with Store.open(tmp_path / "deck.sqlite3", read_only=True) as store:
        newest = max(reader.last for reader in readers)
        stored = [tick.id for tick in store.ticks_after(0, newest)]
    for seed, reader in enumerate(readers):
        assert reader.ids == [one for one in stored if seed < one <= reader.last]
    told = {
        "date": datetime.now(UTC).date().isoformat(),
        "setup": f"{os.cpu_count()} cores shared with other work, Python "
        f"{platform.python_version()}, loopback; {ENGINES} engines nobody answers for, polled "
        f"every 50 ms; {READERS} readers that come back {TIMES} times in each round, with "
        "Last-Event-ID, after 0 to 20 events, cutting in the middle of one too",
        "reconnects": READERS * TIMES * ROUNDS,
        "events_read": sum(len(reader.ids) for reader in readers),
        "lost": 0,
        "repeated": 0,
        "seconds": round(time.monotonic() - begun, 1),
        "at_rest_after_each_round": rounds,
    }
    RESULTS.write_text(json.dumps(told, indent=1) + "\n")
    assert rounds[-1]["files"] <= rounds[0]["files"] + 4
    # Two pools of workers, made as they are needed: 40 at most, and 4 more than there are cores.
    assert rounds[-1]["threads"] <= 40 + (os.cpu_count() or 1) + 4 + 4
    assert rounds[-1]["resident_mb"] < rounds[1]["resident_mb"] + 15
