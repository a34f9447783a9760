"""Servers and reference outputs, shared: each start of SGLang costs a quarter of a minute."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from engine_patch.contract import SpeculationState
from tests.engine import tier_rig
from tests.engine.cpu_engine import PROMPTS, CpuEngine, make_models, tokens
from tests.engine.plugin_client import PluginClient
from tests.engine.tier_rig import Reference

MANY = tuple(f"{prompt} {number}" for number in range(4) for prompt in PROMPTS)
"""16 prompts for load, all different."""
NEW_TOKENS = 96
JOBS = 35
SAMPLES = 1000
"""Of 4,000 in ``tests/benchmarks/test_tier_equality.py``."""


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models and logs of the whole run."""
    folder = tmp_path_factory.mktemp("engine")
    make_models(folder)
    return folder


@dataclass(frozen=True)
class Plain:
    """What a server without speculation, but with the plugin, answered."""

    answers: dict[str, list[int]]
    state: SpeculationState
    refused: httpx.Response


@pytest.fixture(scope="session")
def plain(work: Path) -> Plain:
    """The plain server's record; it is stopped at once, since an idle SGLang takes a whole core."""
    with CpuEngine(work, "plain", algorithm=None) as engine, PluginClient(engine) as client:
        answers = tokens(engine.generate(MANY, new_tokens=NEW_TOKENS, concurrency=4))
        client.wait(lambda: client.replica().running == 0, "idle")
        return Plain(dict(zip(MANY, answers, strict=True)), client.state(), client.put("off"))


@pytest.fixture(scope="session")
def expected(plain: Plain) -> dict[str, list[int]]:
    """The plain server's greedy answers by prompt."""
    return plain.answers


@pytest.fixture(scope="session")
def known(work: Path) -> Reference:
    """What the plain server answers to jobs of every kind."""
    return tier_rig.reference(work, seed=7, count=JOBS, samples=SAMPLES)
