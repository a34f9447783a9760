"""Whether the speed that a closed loop sees stays, with answers of one length and of several.

    python -m pytest -m benchmark tests/benchmarks/test_load_drift.py -s

One tier and one load throughout, on the embedded engine: only the lengths of answers differ.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

import pytest

from controlplane.benchrun_flow import FlowProcess
from controlplane.benchrun_window import Load
from controlplane.load_reports import FlowSettings
from tests.embedded_process import running

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(300)]
RESULTS = Path(__file__).parent / "results" / "load_drift.json"
CLIENTS, WINDOWS, SECONDS, OUTPUT = 128, 10, 3.0, 256


async def windows(url: str, prompts: str) -> list[float]:
    """Tokens per second of one window after the other, from the first steady moment on."""
    settings = FlowSettings(url=url, prompts=prompts, input_len=128, output_len=OUTPUT)
    flow = await FlowProcess.start(settings)
    try:
        await flow.order(Load(CLIENTS))
        assert await flow.until(lambda report: report.settled >= CLIENTS, 60)
        found = []
        for _ in range(WINDOWS):
            first = flow.reports[-1]
            await asyncio.sleep(SECONDS)
            last = flow.reports[-1]
            found.append((last.tokens - first.tokens) / (last.at_ms - first.at_ms) * 1000)
        return found
    finally:
        await flow.close()


def rise(speeds: list[float]) -> float:
    """The last three windows over the first three."""
    return fmean(speeds[-3:]) / fmean(speeds[:3])


async def test_answers_of_several_lengths_do_not_bring_clients_into_step(tmp_path: Path) -> None:
    same = tmp_path / "same.json"
    same.write_text(json.dumps([[128, OUTPUT]]))
    seen: dict[str, list[float]] = {}
    for name, prompts in (("one length", f"lengths:{same}"), ("varied", "ids")):
        with running("--table", "triton", "--tiers", "off,s3k1d4") as engine:
            order = {"holder": "drift", "epoch": 0, "generation": 1, "mode": "off"}
            engine.http.put("/speculation", json=order).raise_for_status()
            seen[name] = await windows(engine.url, prompts)
    rises = {name: round(rise(speeds), 4) for name, speeds in seen.items()}
    print(f"\nlast three windows over the first three, {CLIENTS} clients: {rises}")
    RESULTS.write_text(
        json.dumps(
            {
                "what": "tokens per second of one tier in windows one after the other",
                "date": datetime.now(UTC).strftime("%Y-%m-%d"),
                "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python "
                f"{platform.python_version()}",
                "setup": f"embedded engine, table triton, off, {CLIENTS} clients, windows of "
                f"{SECONDS:g} s",
                "rise": rises,
                "tok_s": {name: [round(one) for one in speeds] for name, speeds in seen.items()},
            },
            indent=1,
        )
        + "\n"
    )
    assert abs(rises["varied"] - 1) < abs(rises["one length"] - 1)
    assert rises["varied"] == pytest.approx(1, abs=0.05)
