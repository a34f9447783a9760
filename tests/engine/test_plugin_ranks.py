"""Tensor-parallel ranks decide alike without talking, and both confirm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_patch.contract import AcceptWindow
from engine_patch.observer import Observer
from engine_patch.published import Rank
from engine_patch.shm import FOLDER_PREFIX, shared_memory
from tests.engine import overlap_loop
from tests.engine.conftest import MANY, NEW_TOKENS
from tests.engine.cpu_engine import PROMPTS, CpuEngine, tokens, two_ranks
from tests.engine.plugin_client import PluginClient

pytestmark = [pytest.mark.engine, pytest.mark.timeout(480)]

THRESHOLDS = {
    "tiers": ["s3k1d4", "s1k1d2", "off"],
    "boundaries": [{"up_at": 3, "down_at": 1}, {"up_at": 5, "down_at": 3}],
    "min_dwell_steps": 4,
    "min_accept_length": {"s1k1d2": 1.99},
}


_TWO = ("--tp-size", "2")


@pytest.fixture(scope="module")
def pair(
    work: Path, expected: dict[str, list[int]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PluginClient]:
    """Two TP ranks on the overlap loop, with too few KV slots for all requests at once.

    ``expected`` comes first, so that one server runs at a time.
    """
    server = CpuEngine(
        work,
        "tp2",
        env=two_ranks() | {"SGLANG_PLUGINS": f"specdeck,{overlap_loop.NAME}"},
        paths=[overlap_loop.install(tmp_path_factory.mktemp("overlap"))],
        args=[*_TWO, "--max-total-tokens", "500", "--schedule-conservativeness", "0.05"],
    )
    with server, PluginClient(server) as client:
        yield client


def _ranks(client: PluginClient) -> list[Rank]:
    folder = shared_memory() / f"{FOLDER_PREFIX}{client.state().boot_id}"
    return Observer(folder).ranks()


def test_the_overlap_loop_runs(pair: PluginClient) -> None:
    assert "'disable_overlap_schedule': False" in pair.engine.log


def test_both_ranks_confirm_each_command(pair: PluginClient) -> None:
    assert [rank.tp_rank for rank in pair.replica().ranks] == [0, 1]
    for mode, tier in (("off", "off"), ("on", "s1k1d2"), ("on", "s3k1d4")):
        pair.command(mode, tier=None if mode == "off" else tier)
        pair.wait_runs(tier)
        pair.engine.generate(PROMPTS[:1], new_tokens=8)
        assert pair.runs(tier)


def test_a_result_counts_for_the_tier_that_produced_it(
    pair: PluginClient, expected: dict[str, list[int]]
) -> None:
    """On the overlap loop results of the tier before arrive after a switch."""
    before = pair.replica().switches

    def window(tier: str) -> AcceptWindow | None:
        found = pair.replica().accept
        return found if found is not None and found.tier == tier and found.steps else None

    with pair.load(MANY[:8], clients=4, new_tokens=NEW_TOKENS) as answers:
        for tier in ("s1k1d2", "s3k1d4") * 6:
            pair.command("on", tier=tier)
            pair.wait(lambda tier=tier: window(tier) is not None, f"results of {tier}", 60)  # type: ignore[misc]
            seen = pair.replica().accept
            assert seen is not None
            assert seen.length is not None
            # Counts above the tier's steps are cut per position and not in the sum, so that one
            # result of a longer tier shows for as long as the window holds it.
            assert seen.length == pytest.approx(1 + sum(seen.per_position))
            if tier == "s3k1d4":
                pair.command("off")
                pair.wait_runs("off", 60)
    assert answers == {prompt: expected[prompt] for prompt in answers}
    assert pair.replica().switches - before >= 12


def test_ranks_take_the_same_decisions_at_the_same_steps_with_the_same_tokens(
    pair: PluginClient, expected: dict[str, list[int]]
) -> None:
    pair.command("auto", thresholds=THRESHOLDS)
    before = pair.replica().switches
    for clients, prompts in ((1, MANY[:1]), (8, MANY[:8]), (2, MANY[:2])):
        answers = pair.engine.generate(prompts, new_tokens=NEW_TOKENS, concurrency=clients)
        assert tokens(answers) == [expected[prompt] for prompt in prompts]
    pair.wait(lambda: pair.replica().running == 0, "idle")
    first, second = _ranks(pair)
    # At least up to the busy tier and down again, whatever ran before.
    assert pair.replica().switches >= before + 2
    unstamped = [
        [entry.model_copy(update={"at_utc_ms": None}) for entry in rank.journal]
        for rank in (first, second)
    ]
    assert unstamped[0] == unstamped[1]
    assert first.live is not None
    assert second.live is not None
    assert first.live.step == second.live.step
    assert first.live.accept == second.live.accept


def test_retractions_are_counted_as_sglang_counts_them(
    pair: PluginClient, expected: dict[str, list[int]]
) -> None:
    # Requests that may end at any time are admitted in the hope that they do.
    params = {"max_new_tokens": NEW_TOKENS, "temperature": 0}
    answers = pair.http.post("/generate", json={"text": MANY[:8], "sampling_params": params})
    for prompt, answer in zip(MANY[:8], answers.json(), strict=True):
        assert answer["output_ids"] == expected[prompt][: len(answer["output_ids"])]
    logged = sum(int(n) for n in re.findall(r"TP0\] .*#retracted_reqs: (\d+)", pair.engine.log))
    assert logged > 0
    assert pair.replica().retractions == logged
