"""The plugin on an SGLang it does not know: SGLang serves on, one line says why, GET tells it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.engine.conftest import MANY, NEW_TOKENS
from tests.engine.cpu_engine import CpuEngine, engine_python, tokens
from tests.engine.overlay import overlay

pytestmark = [pytest.mark.engine, pytest.mark.timeout(480)]

CHANGED = "srt/managers/scheduler.py"


def _rename(text: str) -> str:
    """A harmless change of a hooked method's parameter, as a next release may bring."""
    head = "def set_internal_state(self, recv_req: SetInternalStateReq):"
    body = "return self.internal_state.set_internal_state(recv_req)"
    return text.replace(head, head.replace("recv_req:", "request:")).replace(
        body, body.replace("(recv_req)", "(request)")
    )


@pytest.fixture(scope="module")
def unknown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A module search path with the changed SGLang."""
    return overlay(tmp_path_factory.mktemp("unknown"), CHANGED, _rename)


@pytest.fixture(scope="module")
def engine(work: Path, unknown: Path) -> Iterator[CpuEngine]:
    """A server of the changed SGLang, with the plugin installed."""
    with CpuEngine(work, "unknown", paths=[unknown]) as server:
        yield server


def test_sglang_serves_on_with_the_same_tokens(
    engine: CpuEngine, expected: dict[str, list[int]]
) -> None:
    answers = tokens(engine.generate(MANY[:4], new_tokens=NEW_TOKENS, concurrency=4))
    assert answers == [expected[prompt] for prompt in MANY[:4]]


def test_get_says_refused_in_the_words_of_the_one_log_line(engine: CpuEngine) -> None:
    answer = httpx.get(f"{engine.url}/speculation")
    assert answer.status_code == 503
    body = answer.json()
    assert body["plugin"] == "refused"
    lines = [line for line in engine.log.splitlines() if "plugin refused" in line]
    assert len(lines) == 1
    assert lines[0].endswith(body["message"])
    for part in (
        "SGLang 0.5.23",
        "Scheduler.set_internal_state takes (request) where (recv_req) was expected",
        "install it anew",
    ):
        assert part in body["message"]


def test_nothing_was_registered(engine: CpuEngine) -> None:
    assert "Applied" not in engine.log
    assert httpx.put(f"{engine.url}/speculation", json={}).status_code == 405
    # SGLang's own policy is in place, and its own route works.
    assert "AdaptiveSpeculativeParams initialized" in engine.log
    answer = httpx.post(
        f"{engine.url}/set_internal_state", json={"server_args": {"pp_max_micro_batch_size": 8}}
    )
    assert answer.json() == [True]


def test_the_check_command_finds_the_same_in_both_environments(unknown: Path) -> None:
    specdeck = engine_python().parent / "specdeck"
    fits = subprocess.run(
        [specdeck, "engine", "check"], capture_output=True, text=True, check=False
    )
    assert fits.returncode == 0, fits.stdout + fits.stderr
    assert re.search(r"fits SGLang 0\.5\.23: all \d+ touched attributes", fits.stdout)
    root = unknown / "sglang"
    refuses = subprocess.run(
        [specdeck, "engine", "check", "--root", root], capture_output=True, text=True, check=False
    )
    assert refuses.returncode == 1
    assert "takes (request) where (recv_req) was expected" in refuses.stdout
