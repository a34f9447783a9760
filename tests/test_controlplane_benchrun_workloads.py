"""Poisson arrivals, conversations and recorded lengths on a live engine, to the analysis."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.bench_findings import Analysis
from controlplane.benchrun_messages import BenchRequest, BenchState, BenchStatus
from tests.controlplane_rig import (
    ENGINE,
    EmbeddedEngine,
    control_plane,
    embedded_engine,
    settings_of,
    until,
)

CHATS = [
    {"conversations": [{"value": f"Question {one}?"}, {"value": "word " * (10 + 20 * one)}]}
    for one in range(6)
]


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4") as running:
        yield running


async def measured(
    engine: EmbeddedEngine, tmp_path: Path, **changes: Any
) -> tuple[BenchStatus, Analysis]:
    """A benchmark that ends by itself: with one tier, or with arrivals, nothing is refined."""
    given: dict[str, Any] = {
        "concurrency": (2,), "repeats": 1, "budget_s": 40.0, "window_s": 0.5, "input_len": 16,
        "output_len": 32, "author": "op1",
    }  # fmt: skip
    async with (
        control_plane(settings_of(tmp_path, engine.url)) as running,
        running.client() as client,
    ):
        await until(lambda: running.service.runner(ENGINE).pilot.facts is not None)
        begun = await client.start_benchmark(ENGINE, BenchRequest(**given | changes))
        async for status in client.benchmark_progress(ENGINE, begun.id):
            if status.ended_utc_ms:
                break
        assert status.state is BenchState.DONE, status.message
        return status, await client.benchmark_analysis(ENGINE, begun.id)


async def test_arrivals_are_told_by_rate_and_give_no_crossover(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    status, found = await measured(engine, tmp_path, rates_s=(8.0,))
    assert [(one.tier, one.arrivals, one.rate_s) for one in status.points] == [
        ("off", "poisson", 8.0),
        ("s3k1d4", "poisson", 8.0),
    ]
    assert found.points == ()
    assert len(found.arrivals) + len(found.not_comparable) == 2
    assert not found.arrivals or "a crossover needs a closed loop" in found.verdict


async def test_conversations_bring_their_own_lengths(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    path = tmp_path / "chats.json"
    path.write_text(json.dumps(CHATS))
    status, _ = await measured(engine, tmp_path, prompts=f"sharegpt:{path}", tiers=("off",))
    assert status.prompts == "6 conversations of chats.json"
    (point,) = status.points
    assert (point.input_len, point.output_len, point.failed) == (None, None, 0)
    assert point.requests


async def test_recorded_lengths_are_sent_as_token_ids(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    path = tmp_path / "lengths.jsonl"
    path.write_text("[8, 12]\n[40, 24]\n")
    status, _ = await measured(engine, tmp_path, prompts=f"lengths:500:{path}", tiers=("off",))
    assert status.prompts == "random token ids, 2 recorded lengths of lengths.jsonl"
    (point,) = status.points
    assert (point.input_len, point.output_len, point.failed) == (None, None, 0)
    assert point.requests
