"""What watching one engine costs the control plane, in CPU time of this process."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from controlplane.engine import EngineClient
from controlplane.metrics import read_metrics
from store.observations import Sample, Source
from tests.embedded_process import running

pytestmark = pytest.mark.benchmark
SAMPLES = Path(__file__).parents[1] / "samples"
POLLS = 40


async def cpu_ms_per_poll(url: str, source: Source) -> float:
    """Median milliseconds of CPU per poll at 2 Hz, with the connection kept."""
    client = EngineClient("e", url)
    try:
        for seq in range(3):
            await client.poll(seq)
        costs = []
        for seq in range(POLLS):
            begun = time.process_time()
            observation = (await client.poll(seq)).observation
            costs.append((time.process_time() - begun) * 1000)
            assert isinstance(observation, Sample)
            assert observation.source is source
            await asyncio.sleep(0.5)
        return sorted(costs)[POLLS // 2]
    finally:
        await client.aclose()


async def test_a_poll_of_a_patched_engine_costs_less_than_3_ms() -> None:
    with running() as engine:
        cost = await cpu_ms_per_poll(engine.url, Source.SPECULATION)
    print(f"\npatched engine: {cost:.2f} ms CPU per poll, {cost * 0.2:.2f} % of a core at 2 Hz")
    assert cost < 3.0


async def test_a_poll_of_an_unpatched_engine_costs_less_than_8_ms() -> None:
    with running() as engine:
        engine.fault(drop_speculation=True)
        cost = await cpu_ms_per_poll(engine.url, Source.METRICS)
    print(f"\nunpatched engine: {cost:.2f} ms CPU per poll, {cost * 0.2:.2f} % of a core at 2 Hz")
    assert cost < 8.0


@pytest.mark.parametrize(
    "name", ["h200-0.5.17/chain-acc2.0_metrics.txt", "cpu-0.5.23/spec-load.metrics.txt"]
)
def test_a_scrape_is_filtered_and_parsed_in_less_than_5_ms(name: str) -> None:
    text = (SAMPLES / name).read_text()
    costs = []
    for _ in range(50):
        begun = time.process_time()
        read_metrics(text)
        costs.append((time.process_time() - begun) * 1000)
    costs.sort()
    print(f"\n{name}: {len(text) / 1000:.0f} kB, median {costs[25]:.2f} ms CPU")
    assert costs[25] < 5.0
