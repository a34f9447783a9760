"""A real embedded engine in a process of its own, on free loopback ports."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True)
class Embedded:
    """A running engine and a client of it."""

    url: str
    fault_url: str
    process: subprocess.Popen[str]
    http: httpx.Client

    def generate(self, output: int = 32, prompt: int = 16) -> httpx.Response:
        """One request, not streamed."""
        return self.http.post(
            "/generate",
            json={
                "input_ids": [7] * prompt,
                "sampling_params": {"max_new_tokens": output, "ignore_eos": True},
            },
        )

    def generate_many(self, count: int, output: int = 32) -> list[httpx.Response]:
        """``count`` requests at the same time."""
        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(lambda _: self.generate(output), range(count)))

    def until(self, count: int, what: str = "running") -> None:
        """Wait until a number of all replicas together, the running requests, is so high."""
        end = time.monotonic() + 60
        while sum(one[what] for one in self.speculation()["replicas"]) < count:
            assert time.monotonic() < end, self.speculation()["replicas"]
            time.sleep(0.01)

    def speculation(self, since: int = 0) -> dict[str, Any]:
        """The state answer."""
        answer = self.http.get("/speculation", params={"since": since})
        answer.raise_for_status()
        state: dict[str, Any] = answer.json()
        return state

    def put(self, generation: int, **command: Any) -> httpx.Response:
        """A command of holder ``test``."""
        body = {"holder": "test", "epoch": 0, "generation": generation} | command
        return self.http.put("/speculation", json=body)

    def fault(self, **order: Any) -> dict[str, Any]:
        """An order to the fault port; what is then in force."""
        answer = httpx.post(f"{self.fault_url}/faults", json=order)
        answer.raise_for_status()
        in_force: dict[str, Any] = answer.json()
        return in_force

    def metrics(self) -> dict[str, float]:
        """``/metrics`` by series; ``name{labels}`` or, where a family has one series, ``name``."""
        found: dict[str, float] = {}
        for line in self.http.get("/metrics").text.splitlines():
            if not line.startswith("#"):
                series, _, value = line.rpartition(" ")
                found[series] = float(value)
                found.setdefault(series.partition("{")[0], float(value))
        return found


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[Embedded]:
    """Start an engine with a fault port; ends it and checks that it ended cleanly."""
    command = [sys.executable, "-m", "engine_patch.embedded", "--port", "0", "--fault-port", "0"]
    process = subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, process.stderr.read() if process.stderr else ""
        ready = json.loads(first)
        with httpx.Client(base_url=ready["url"], timeout=30) as http:
            yield Embedded(ready["url"], f"http://127.0.0.1:{ready['fault_port']}", process, http)
    finally:
        process.terminate()
        out, errors = process.communicate(timeout=60)
    assert (process.returncode, errors, out) == (0, "", "")
