"""Servers and reference outputs, shared: each start of SGLang costs a quarter of a minute."""

from __future__ import annotations

import fcntl
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

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

Made = TypeVar("Made")


class Once:
    """What one of the processes that run side by side makes, and all of them use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, name: str, make: Callable[[], Made]) -> Made:
        """The result of ``make``, from whoever came first; the others wait for it."""
        file = self._folder / f"{name}.pickle"
        with (self._folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not file.exists():
                file.write_bytes(pickle.dumps(make()))
        made: Made = pickle.loads(file.read_bytes())
        return made


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Once:
    """Shared by the processes of pytest-xdist, each of which has its own session."""
    own = tmp_path_factory.getbasetemp()
    return Once(own if worker_id == "master" else own.parent)


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
def plain(work: Path, once: Once) -> Plain:
    """The plain server's record; it is stopped at once, since no test needs it running."""

    def ask() -> Plain:
        with CpuEngine(work, "plain", algorithm=None) as engine, PluginClient(engine) as client:
            answers = tokens(engine.generate(MANY, new_tokens=NEW_TOKENS, concurrency=4))
            client.wait(lambda: client.replica().running == 0, "idle")
            return Plain(dict(zip(MANY, answers, strict=True)), client.state(), client.put("off"))

    return once("plain", ask)


@pytest.fixture(scope="session")
def expected(plain: Plain) -> dict[str, list[int]]:
    """The plain server's greedy answers by prompt."""
    return plain.answers


@pytest.fixture(scope="session")
def known(work: Path, once: Once) -> Reference:
    """What the plain server answers to jobs of every kind."""
    return once("known", lambda: tier_rig.reference(work, seed=7, count=JOBS, samples=SAMPLES))
