"""What housekeeping of the database costs the writer, and what a lock of 40 s costs the control."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from controlplane.client import ControlPlaneClient
from controlplane.messages import OverrideRequest
from engine_patch.contract_words import Mode
from store.backup import back_up
from store.db import Store
from store.records import Tick
from store.retention import Retention
from tests.benchmarks.test_scale_store import real_ticks
from tests.controlplane_rig import deck
from tests.engine_herd import herd

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]
RESULTS = Path(__file__).parent / "results" / "storage_lasts.json"
ENGINES, TICKS, PERIOD_MS = 20, 4000, 500
START = 1_795_000_000_000
LOCKED_S, WELL, POLL_S = 40.0, 5, 0.5
HOLDER = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
db.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
time.sleep(float(sys.argv[2]))
"""


def kept(name: str, told: dict[str, object]) -> None:
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    known["date"] = datetime.now(UTC).date().isoformat()
    known["setup"] = (
        f"{os.cpu_count()} cores shared with other work (load {os.getloadavg()[0]:.1f}), "
        f"Python {platform.python_version()}"
    )
    known[name] = told
    print(json.dumps(told, indent=1))
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")


def history(ticks: list[Tick]) -> list[list[Tick]]:
    """All engines' ticks, in writes of 1,000."""
    made: list[Tick] = []
    for seq in range(1, TICKS + 1):
        for place in range(ENGINES):
            name, at = f"e{place}", START + PERIOD_MS * seq
            tick = ticks[(seq + 7 * place) % len(ticks)]
            update = {"engine_id": name, "seq": seq, "at_utc_ms": at}
            seen = tick.observation.model_copy(update=update)
            made.append(tick.model_copy(update={"id": 0, "engine_id": name, "observation": seen}))
    return [made[at : at + 1000] for at in range(0, len(made), 1000)]


def latencies(store: Store, tick: Tick, work: Callable[[], object]) -> dict[str, float]:
    """Milliseconds that single writes take while ``work`` is done."""
    found: list[float] = []
    ended = threading.Event()

    def write() -> None:
        seq = store.last_seq("beside")
        while not ended.is_set():
            seq += 1
            seen = tick.observation.model_copy(update={"engine_id": "beside", "seq": seq})
            one = tick.model_copy(update={"id": 0, "engine_id": "beside", "observation": seen})
            begun = time.monotonic()
            store.write([one]).result()
            found.append(1000 * (time.monotonic() - begun))
            time.sleep(0.01)

    writing = threading.Thread(target=write)
    writing.start()
    begun = time.monotonic()
    work()
    took_s = time.monotonic() - begun
    ended.set()
    writing.join()
    found.sort()
    return {
        "took_s": round(took_s, 2),
        "writes_beside": len(found),
        "write_p50_ms": round(found[len(found) // 2], 2),
        "write_p99_ms": round(found[int(0.99 * (len(found) - 1))], 2),
        "write_most_ms": round(found[-1], 2),
    }


def test_pruning_and_backup_hold_up_no_write_for_long(tmp_path: Path) -> None:
    ticks = asyncio.run(real_ticks(tmp_path, 200))
    path = tmp_path / "lasts.sqlite3"
    with Store.open(path) as store:
        for page in history(ticks):
            store.write(page).result()
    with Store.open(path) as store:
        told: dict[str, object] = {"ticks": ENGINES * TICKS, "bytes": path.stat().st_size}
        told["idle"] = latencies(store, ticks[0], lambda: time.sleep(5))
        copy = tmp_path / "copy.sqlite3"
        told["backup"] = latencies(store, ticks[0], lambda: back_up(path, copy))
        end = START + PERIOD_MS * TICKS
        thinning = Retention(downsample=end - 60_000, every_ms=10_000)
        removed = []
        told["down_sampling"] = latencies(
            store, ticks[0], lambda: removed.append(store.prune(thinning).result())
        )
        ageing = Retention(ticks=end - 60_000)
        told["ageing"] = latencies(
            store, ticks[0], lambda: removed.append(store.prune(ageing).result())
        )
        told["removed"] = [dict(one._asdict()) for one in removed]
    told["bytes_after"] = path.stat().st_size
    kept("pruning_and_backup", told)
    assert removed[0].downsampled > 0.9 * ENGINES * TICKS * 0.95
    for what in ("backup", "down_sampling", "ageing"):
        numbers = told[what]
        assert isinstance(numbers, dict)
        assert numbers["write_most_ms"] < 1000


async def test_a_lock_of_40_s_holds_up_no_poll_and_loses_no_record(tmp_path: Path) -> None:
    database = tmp_path / "deck.sqlite3"
    with herd(WELL) as engines:
        config = tmp_path / "deck.toml"
        config.write_text(
            f'database = "{database}"\n'
            + "".join(
                f'[[engines]]\nid = "e{place}"\nurl = "{url}"\npoll_s = {POLL_S}\n'
                'stance = "active"\n'
                for place, url in enumerate(engines.urls)
            )
        )
        with deck(["--config", str(config)], os.environ) as running:
            async with ControlPlaneClient(running.url) as client:
                await asyncio.sleep(5)
                asked = OverrideRequest(
                    mode=Mode.OFF, length_s=15, author="bench", reason="ends while locked"
                )
                await client.set_override("e0", asked)
                holder = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-c", HOLDER, str(database), str(LOCKED_S)),
                    stdout=asyncio.subprocess.PIPE,
                )
                assert holder.stdout is not None
                await holder.stdout.readline()
                begun = (await client.about()).now_utc_ms
                await asyncio.sleep(LOCKED_S - 5)
                inside = await client.engine("e0")
                alarms = [one.code for one in (await client.about()).alarms]
                await holder.wait()
                ended = (await client.about()).now_utc_ms
                await asyncio.sleep(10)
                after = [one.code for one in (await client.about()).alarms]
    told: dict[str, object] = {"locked_s": LOCKED_S, "engines": WELL, "poll_s": POLL_S}
    gaps: list[int] = []
    holes = 0
    with Store.open(database, read_only=True) as store:
        for place in range(WELL):
            seen = [one.observation for one in store.ticks(f"e{place}", after_id=0, limit=10_000)]
            for one, other in pairwise(seen):
                holes += other.seq - one.seq - 1
                if begun <= other.at_utc_ms <= ended:
                    gaps.append(other.at_utc_ms - one.at_utc_ms)
        overrides = [(one.ended_utc_ms or 0) for one in store.overrides("e0")]
    gaps.sort()
    told |= {
        "observations_while_locked": len(gaps),
        "between_them_p99_ms": gaps[int(0.99 * (len(gaps) - 1))],
        "between_them_most_ms": gaps[-1],
        "observations_missing": holes,
        "override_ended_while_locked": begun < overrides[0] < ended,
        "alarms_while_locked": alarms,
        "alarms_10_s_later": after,
    }
    kept("lock_of_40_s", told)
    assert inside.tick is not None
    assert inside.tick.override is None
    assert alarms == ["not_recording"]
    assert after == []
    assert holes == 0
    assert told["override_ended_while_locked"]
    assert gaps[-1] < 5000
