"""The whole loop on a real engine: SGLang 0.5.23 with EAGLE-3, the plugin, the control plane.

Load goes 1 -> 16 -> 1 and speculation must follow it, once in each direction, without changing a
single output token.  The control plane is a process of its own and is killed on the way.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine_patch.contract_words import Mode
from engine_patch.quiet_port import quiet_port
from store.records import Decision, EngineSwitch, Outcome, Override, Reason, Tick
from tests.engine.cpu_engine import CpuEngine, request_body

pytestmark = [pytest.mark.engine, pytest.mark.timeout(480)]

NEW_TOKENS = 96
TEXT = "the quick brown fox jumps over a lazy dog and a tiny model answers 0 1 2 3 4 5"
WORDS = TEXT.split()
PROMPTS = [
    " ".join(WORDS[(start + step) % len(WORDS)] for step in range(length))
    for start, length in itertools.product(range(0, len(WORDS), 3), (2, 5, 11, 19))
]
UP_AT, DOWN_AT = 8, 3

SETTINGS = """
database = "{database}"
[listen]
port = {port}
[[engines]]
id = "cpu"
url = "{url}"
stance = "active"
poll_s = 0.2
[engines.policy]
kind = "hysteresis"
tiers = ["s3k1d4", "off"]
boundaries = [{{ up_at = {up}, down_at = {down} }}]
up_hold_s = 0.6
down_hold_s = 0.6
min_dwell_s = 1.0
start_grace_s = 0.5
"""


@dataclass
class Plane:
    """The control plane as a process, and its REST API."""

    config: Path
    port: int
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start ``specdeck serve`` and wait until it answers."""
        command = [str(Path(sys.executable).parent / "specdeck"), "serve", "--config"]
        self.process = subprocess.Popen([*command, str(self.config)], text=True)
        wait_until(lambda: self._ready(), 60, "the control plane answers")

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=1).status_code == 200
        except httpx.HTTPError:
            return False

    @property
    def url(self) -> str:
        """Base address."""
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> Any:
        """The JSON answer of a GET below /v1/engines/cpu."""
        answer = httpx.get(f"{self.url}/v1/engines/cpu{path}", timeout=5)
        answer.raise_for_status()
        return answer.json()

    def tick(self) -> Tick:
        """The newest tick."""
        wait_until(lambda: self.get("")["tick"] is not None, 60, "the first tick")
        return Tick.model_validate(self.get("")["tick"])

    def ticks(self, after_id: int) -> list[Tick]:
        """Every tick after a row id, oldest first."""
        rows: list[Tick] = []
        while True:
            last = rows[-1].id if rows else after_id
            page = self.get(f"/ticks?limit=500&after_id={last}")
            if not page:
                return rows
            rows += [Tick.model_validate(row) for row in page]

    def decisions(self) -> list[Decision]:
        """All decisions, oldest first."""
        rows = self.get("/decisions?limit=500")
        return [Decision.model_validate(row) for row in rows][::-1]

    def override(self, tier: str | None, mode: Mode, length_s: float) -> Override:
        """Set an override."""
        answer = httpx.put(
            f"{self.url}/v1/engines/cpu/override",
            json={
                "mode": mode, "tier": tier, "length_s": length_s, "author": "op", "reason": "test",
            },
        )  # fmt: skip
        assert answer.status_code == 200, answer.text
        return Override.model_validate(answer.json()["override"])

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal and wait for the end."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(10)
            self.process = None


@dataclass
class Load:
    """Closed-loop clients whose number can be changed while they run."""

    url: str
    expected: dict[str, list[int]]
    wrong: list[str] = field(default_factory=list)
    done: int = 0
    _wanted: int = 0
    _threads: list[threading.Thread] = field(default_factory=list)

    def set(self, clients: int) -> None:
        """Run this many clients; surplus ones end after their present request."""
        self._wanted = clients
        for number in range(clients):
            alive = number < len(self._threads) and self._threads[number].is_alive()
            if not alive:
                thread = threading.Thread(target=self._client, args=(number,), daemon=True)
                self._threads[number : number + 1] = [thread]
                thread.start()

    def _client(self, number: int) -> None:
        order = itertools.cycle(PROMPTS[number % len(PROMPTS) :] + PROMPTS[: number % len(PROMPTS)])
        with httpx.Client(base_url=self.url, timeout=60) as client:
            while number < self._wanted:
                prompt = next(order)
                answer = client.post("/generate", json=request_body(prompt, NEW_TOKENS))
                if answer.json()["output_ids"] != self.expected[prompt]:
                    self.wrong.append(prompt)
                self.done += 1

    def end(self) -> None:
        """Stop all clients and wait for them."""
        self._wanted = 0
        for thread in self._threads:
            thread.join(60)


def wait_until(condition: Any, timeout_s: float, what: str) -> float:
    """Poll a condition; returns the seconds it took."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < timeout_s, f"not within {timeout_s} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - start


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("whole-loop")


@pytest.fixture(scope="module")
def expected(work: Path) -> dict[str, list[int]]:
    """Greedy outputs of the plain server."""
    with CpuEngine(work, "plain", algorithm=None, plugin=False) as engine:
        answers = engine.generate(PROMPTS, new_tokens=NEW_TOKENS, concurrency=8)
    return {p: list(a["output_ids"]) for p, a in zip(PROMPTS, answers, strict=True)}


@pytest.fixture(scope="module")
def engine(work: Path, expected: dict[str, list[int]]) -> Iterator[CpuEngine]:
    made = CpuEngine(
        work, "patched", tiers="off,s1k1d2,s3k1d4", polls=True, args=("--enable-metrics",)
    )
    with made:
        yield made


@pytest.fixture(scope="module")
def plane(engine: CpuEngine, work: Path) -> Iterator[Plane]:
    port = quiet_port()
    config = work / "specdeck.toml"
    config.write_text(
        SETTINGS.format(
            database=work / "loop.sqlite3", port=port, url=engine.url, up=UP_AT, down=DOWN_AT
        )
    )
    made = Plane(config, port)
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def load(engine: CpuEngine, expected: dict[str, list[int]]) -> Iterator[Load]:
    made = Load(engine.url, expected)
    yield made
    made.end()


def test_speculation_goes_off_while_busy_and_comes_back_once_with_the_same_tokens(
    plane: Plane, load: Load
) -> None:
    first = plane.tick().id
    load.set(1)
    wait_until(lambda: plane.tick().confirmed == "s3k1d4", 60, "the launch tier is confirmed")
    time.sleep(3)
    load.set(16)
    wait_until(lambda: plane.tick().confirmed == "off", 60, "off while busy")
    time.sleep(4)
    load.set(1)
    wait_until(lambda: plane.tick().confirmed == "s3k1d4", 60, "on again after")
    time.sleep(3)

    ticks = plane.ticks(first)
    busy = [
        t.observation.concurrency
        for t in ticks
        if t.observation.kind == "sample" and t.confirmed == "off"
    ]
    # Requests on their way or in their prefill are not in the batch, and a slow machine has many.
    assert UP_AT <= max(busy) <= 16
    moves = [d for d in plane.decisions() if d.to_tier != d.from_tier]
    assert [(d.from_tier, d.to_tier, d.reason) for d in moves] == [
        ("s3k1d4", "off", Reason.LOAD_UP),
        ("off", "s3k1d4", Reason.LOAD_DOWN),
    ]
    for move in moves:
        assert move.outcome is Outcome.CONFIRMED
        assert move.latency_ms is not None
        assert any(c.metric == "concurrency" and c.met for c in move.clauses)
        assert move.text
    switches = [EngineSwitch.model_validate(row).entry for row in plane.get("/switches")]
    assert {(e.from_tier, e.to_tier) for e in switches} == {("s3k1d4", "off"), ("off", "s3k1d4")}
    assert load.done > 20
    assert load.wrong == []


def test_an_override_set_under_load_is_obeyed_and_expires_on_time(plane: Plane, load: Load) -> None:
    load.set(16)
    wait_until(lambda: plane.tick().confirmed == "off", 60, "off while busy")
    first = plane.tick().id
    override = plane.override("s1k1d2", Mode.ON, 5)
    wait_until(lambda: plane.tick().override is None, 60, "the override ends")
    wait_until(lambda: plane.tick().confirmed == "off", 60, "automation goes on")
    ticks = plane.ticks(first)
    assert "s1k1d2" in [tick.confirmed for tick in ticks]
    # By the ticks' own times, whenever anybody looked: in force until it ends, and no longer.
    in_force = [
        tick.observation.at_utc_ms
        for tick in ticks
        if tick.override is not None and tick.override.ended_utc_ms is None
    ]
    over = [
        tick.observation.at_utc_ms for tick in ticks if tick.observation.at_utc_ms > in_force[-1]
    ]
    assert in_force[-1] <= override.expires_utc_ms + 50
    assert over[0] >= override.expires_utc_ms - 50
    assert load.wrong == []


def test_a_killed_control_plane_comes_back_with_the_override_and_loses_nothing(
    plane: Plane, load: Load
) -> None:
    load.set(16)
    override = plane.override("s3k1d4", Mode.ON, 20)
    wait_until(lambda: plane.tick().confirmed == "s3k1d4", 15, "the override is obeyed")
    before = plane.ticks(0)
    decisions = plane.decisions()
    plane.stop(signal.SIGKILL)
    time.sleep(1)
    plane.start()
    wait_until(lambda: plane.tick().id > before[-1].id, 30, "it observes again")

    tick = plane.tick()
    assert tick.override is not None
    assert tick.override.expires_utc_ms == override.expires_utc_ms
    assert tick.confirmed == "s3k1d4"
    kept = {row.id for row in plane.ticks(0)}
    assert kept >= {row.id for row in before}
    assert {d.id for d in plane.decisions()} >= {d.id for d in decisions}

    wait_until(lambda: plane.tick().override is None, 60, "the override ends")
    over = plane.tick()
    assert over.observation.at_utc_ms >= override.expires_utc_ms - 50
    wait_until(lambda: plane.tick().confirmed == "off", 60, "automation goes on")
    load.end()
    assert load.wrong == []
