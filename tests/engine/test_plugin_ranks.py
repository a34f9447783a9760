"""Tensor-parallel ranks decide alike without talking, and both confirm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_patch.observer import Observer
from engine_patch.published import Rank
from engine_patch.shm import FOLDER_PREFIX, shared_memory
from tests.engine.conftest import MANY, NEW_TOKENS
from tests.engine.cpu_engine import PROMPTS, CpuEngine, tokens, two_ranks
from tests.engine.plugin_client import PluginClient

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]

THRESHOLDS = {
    "tiers": ["s3k1d4", "s1k1d2", "off"],
    "boundaries": [{"up_at": 3, "down_at": 1}, {"up_at": 5, "down_at": 3}],
    "min_dwell_steps": 4,
    "min_accept_length": {"s1k1d2": 1.99},
}


@pytest.fixture(scope="module")
def pair(work: Path, expected: dict[str, list[int]]) -> Iterator[PluginClient]:
    """A server with two TP ranks; ``expected`` comes first, so that one server runs at a time."""
    args = ["--tp-size", "2", "--sleep-on-idle"]
    server = CpuEngine(work, "tp2", env=two_ranks(), args=args)
    with server, PluginClient(server) as client:
        yield client


def _ranks(client: PluginClient) -> list[Rank]:
    folder = shared_memory() / f"{FOLDER_PREFIX}{client.state().boot_id}"
    return Observer(folder).ranks()


def test_both_tensor_parallel_ranks_confirm_each_command(pair: PluginClient) -> None:
    assert [rank.tp_rank for rank in pair.replica().ranks] == [0, 1]
    for mode, tier in (("off", "off"), ("on", "s1k1d2"), ("on", "s3k1d4")):
        pair.command(mode, tier=None if mode == "off" else tier)
        pair.wait_runs(tier)
        pair.engine.generate(PROMPTS[:1], new_tokens=8)
        assert pair.runs(tier)


def test_ranks_take_the_same_decisions_at_the_same_steps_with_the_same_tokens(
    pair: PluginClient, expected: dict[str, list[int]]
) -> None:
    pair.command("auto", thresholds=THRESHOLDS)
    for clients in (1, 6, 2, 8):
        answers = pair.engine.generate(MANY[:8], new_tokens=NEW_TOKENS, concurrency=clients)
        assert tokens(answers) == [expected[prompt] for prompt in MANY[:8]]
    pair.wait(lambda: pair.replica().running == 0, "idle")
    first, second = _ranks(pair)
    assert len(first.journal) >= 5
    unstamped = [
        [entry.model_copy(update={"at_utc_ms": None}) for entry in rank.journal]
        for rank in (first, second)
    ]
    assert unstamped[0] == unstamped[1]
    assert first.live is not None
    assert second.live is not None
    assert first.live.step == second.live.step
    assert first.live.accept == second.live.accept
