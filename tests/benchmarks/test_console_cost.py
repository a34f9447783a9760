"""What the console process costs in an 80x24 terminal: CPU, memory, time to the first paint."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from tests.console_terminal import Terminal
from tests.controlplane_rig import deck, embedded_engine

pytestmark = pytest.mark.benchmark
SETTLE_S = 10.0
MEASURE_S = 30.0


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (160, 50)])
def test_one_engine_at_2_hz_costs_less_than_5_percent(
    tmp_path: Path, columns: int, rows: int
) -> None:
    config = tmp_path / "deck.toml"
    with embedded_engine("--tiers", "off,s1k1d2,s3k1d4") as engine:
        config.write_text(
            f'database = "{tmp_path / "deck.sqlite3"}"\n'
            f'[[engines]]\nurl = "{engine.url}"\nstance = "active"\npoll_s = 0.5\n'
        )
        # Enough requests that every number on the screen changes with every tick.
        engine.load(8, tokens=256)
        with deck(["--config", str(config)], os.environ) as running:
            begun = time.monotonic()
            with Terminal(running.url, columns=columns, rows=rows) as terminal:
                terminal.until(b"specdeck")
                painted_s = time.monotonic() - begun
                terminal.until(b"ON s3k1d4")
                terminal.read_for(SETTLE_S)
                process = psutil.Process(terminal.process.pid)
                before, begun = process.cpu_times(), time.monotonic()
                written = len(terminal.written)
                terminal.read_for(MEASURE_S)
                after, took = process.cpu_times(), time.monotonic() - begun
                written = len(terminal.written) - written
                memory = process.memory_info().rss
                terminal.press(b"q")
                assert terminal.end() == 0
    share = (after.user + after.system - before.user - before.system) / took
    print(
        f"\nconsole at {columns}x{rows}, one engine at 2 Hz, 8 requests running: "
        f"{100 * share:.2f} % of one core, {memory / 1e6:.1f} MB resident, "
        f"{written / took / 1000:.1f} kB/s to the terminal, first paint after {painted_s:.2f} s"
    )
    assert share < 0.05
