"""The control-plane process alone with 200 patched engines at 1 Hz and 100 event streams.

The engines are embedded ones in one process, the readers in another; only the control plane's own
processor time and memory count.  From observation to command is measured at the engines: from the
end of an answer to ``GET /speculation`` to the arrival of the ``PUT`` it led to, both ways of the
network and every queue in between included.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.controlplane_rig import deck
from tests.engine_herd import ROOT, herd
from tests.fault_rig import precedence

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]
RESULTS = Path(__file__).parent / "results" / "scale_fleet.json"
ENGINES, LOADED = 200, 20
"""In 20 of them the load goes up and down, so that tiers change; a real fleet's requests cost the
engines, not the control plane."""
SETTLE_S, MEASURE_S = 20.0, 60.0
"""Long enough for four renewals of every lease."""


@contextmanager
def readers(url: str, count: int) -> Iterator[None]:
    """So many readers of every event, in a process of their own that throws the bytes away."""
    if not count:
        yield
        return
    command = [sys.executable, "-m", "tests.benchmarks.test_scale_fleet", url, str(count)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == str(count)
            yield
        finally:
            process.kill()


async def read(url: str, count: int) -> None:
    """Connect and read for ever."""
    port = int(url.rpartition(":")[2])

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await reader.read(1)
        connected.append(port)
        if len(connected) == count:
            sys.stdout.write(f"{count}\n")
            sys.stdout.flush()
        while await reader.read(2**18):
            pass

    connected: list[int] = []
    await asyncio.gather(*(one() for _ in range(count)))


def at(values: Sequence[float], share: float) -> float | None:
    """The value that this share of them does not exceed."""
    return (
        round(sorted(values)[min(int(share * len(values)), len(values) - 1)], 1) if values else None
    )


@pytest.mark.parametrize("streams", [0, 100])
async def test_200_engines_cost_less_than_60_percent_and_300_mb(
    tmp_path: Path, streams: int
) -> None:
    config = tmp_path / "deck.toml"
    with herd(ENGINES, "--loaded", str(LOADED)) as engines:
        config.write_text(
            f'database = "{tmp_path / "deck.sqlite3"}"\n'
            + "".join(
                f'[[engines]]\nid = "engine-{place}"\nurl = "{url}"\nstance = "active"\n'
                "poll_s = 1.0\n"
                for place, url in enumerate(engines.urls)
            )
        )
        with deck(["--config", str(config)], os.environ) as running, readers(running.url, streams):
            process = psutil.Process(running.process.pid)
            await asyncio.sleep(SETTLE_S)
            engines.told()
            before, begun = process.cpu_times(), time.monotonic()
            await asyncio.sleep(MEASURE_S)
            after, took = process.cpu_times(), time.monotonic() - begun
            told, memory = engines.told(), process.memory_info().rss
            code, errors, _ = running.end(15)
            assert (code, "Traceback" in errors) == (0, False)
    cpu_s = after.user + after.system - before.user - before.system
    delays: list[float] = told["delays_ms"]
    found: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "beside_other_work": precedence(),
        "polls_per_s": round(told["polls"] / took, 1),
        "cpu_share_of_one_core": round(cpu_s / took, 3),
        "cpu_ms_per_poll": round(1000 * cpu_s / told["polls"], 2),
        "resident_mb": round(memory / 1e6, 1),
        "commands": len(delays),
        "observation_to_command_p50_ms": at(delays, 0.5),
        "observation_to_command_p99_ms": at(delays, 0.99),
        "observation_to_command_worst_ms": at(delays, 1.0),
    }
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"results": {}}
    known["setup"] = (
        f"{os.cpu_count()} cores shared with other work, Python {platform.python_version()}, "
        f"loopback; {ENGINES} embedded engines at 1 Hz in one process, load going up and down in "
        f"{LOADED}; {MEASURE_S:g} s"
    )
    known["results"][f"{streams} event streams"] = found
    print(json.dumps(found, indent=1))
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    assert told["polls"] / took > 0.97 * ENGINES
    assert cpu_s / took < 0.60
    assert memory < 300e6
    assert (at(delays, 0.99) or 0) < 150


if __name__ == "__main__":
    asyncio.run(read(sys.argv[1], int(sys.argv[2])))
