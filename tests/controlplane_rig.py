"""Real parts for tests of the running control plane: an embedded engine, a control plane, load.

Everything listens on loopback, on ports the system picks.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from controlplane.api import create_app
from controlplane.client import ControlPlaneClient
from controlplane.clock import SystemClock
from controlplane.security import Tokens
from controlplane.server import Server, bind, make_server
from controlplane.service import Service
from controlplane.settings import Settings
from controlplane.settings_load import load
from store.db import Store

ENGINE = "e1"
"""Id of the one engine in most tests."""
BUSY = 40
"""Running requests that are above the first boundary of every default policy."""


@dataclass
class EmbeddedEngine:
    """A running ``python -m engine_patch.embedded``."""

    process: subprocess.Popen[str]
    url: str
    faults_url: str
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def fault(self, **order: Any) -> None:
        """Give an order to the fault port."""
        httpx.post(f"{self.faults_url}/faults", json=order, trust_env=False).raise_for_status()

    def state(self) -> dict[str, Any]:
        """``GET /speculation``."""
        answer: dict[str, Any] = httpx.get(f"{self.url}/speculation", trust_env=False).json()
        return answer

    def load(
        self, concurrency: int, *, tokens: int = 64, through: httpx.Client | None = None
    ) -> None:
        """Keep so many requests running until ``unload``.

        Args:
            through: client of a router that they go to instead, with what it sends along.
        """
        url = self.url if through is None else through.base_url
        headers = None if through is None else through.headers

        def drive() -> None:
            async def one(client: httpx.AsyncClient) -> None:
                body = {"text": "x" * 64, "sampling_params": {"max_new_tokens": tokens}}
                while not self._stop.is_set():
                    with suppress(httpx.HTTPError):
                        await client.post("/generate", json=body)

            async def all_of_them() -> None:
                limits = httpx.Limits(max_connections=concurrency)
                async with httpx.AsyncClient(
                    base_url=url, headers=headers, limits=limits, timeout=10, trust_env=False
                ) as client:
                    await asyncio.gather(*(one(client) for _ in range(concurrency)))

            asyncio.run(all_of_them())

        thread = threading.Thread(target=drive, daemon=True)
        thread.start()
        self._threads.append(thread)

    def unload(self) -> None:
        """End the load."""
        self._stop.set()
        for thread in self._threads:
            thread.join(10)
        self._threads.clear()
        self._stop.clear()


@contextmanager
def embedded_engine(*arguments: str) -> Iterator[EmbeddedEngine]:
    """Start an embedded engine and its fault port."""
    command = [sys.executable, "-m", "engine_patch.embedded", "--port", "0", "--fault-port", "0"]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            faults = f"http://127.0.0.1:{ready['fault_port']}"
            engine = EmbeddedEngine(process, ready["url"], faults)
            yield engine
            engine.unload()
        finally:
            process.kill()


@dataclass
class Running:
    """A control plane that runs in this process."""

    url: str
    service: Service
    server: Server
    settings: Settings
    serving: asyncio.Task[None]

    async def stop(self) -> None:
        """End it, its store too, so that another one may take its place."""
        self.server.should_exit = True
        await self.serving

    def client(self, token: str | None = None) -> ControlPlaneClient:
        """A typed client of it."""
        return ControlPlaneClient(self.url, token)


def settings_of(tmp_path: Path, url: str, **more: Any) -> Settings:
    """Settings for one engine, polled quickly and kept at s3k1d4, on a free port."""
    policy = {"kind": "fixed", "tier": "s3k1d4"}
    engine = {"id": ENGINE, "url": url, "stance": "active", "policy": policy, "poll_s": 0.1}
    engine |= more.pop("engine", {})
    listen = {"port": 0} | more.pop("listen", {})
    given = {
        "listen": listen,
        "engines": [engine],
        "database": str(tmp_path / "deck.sqlite3"),
        "holder": "specdeck@test",
    }
    return load(None, given | more)[0]


@asynccontextmanager
async def control_plane(
    settings: Settings, clock: SystemClock | None = None
) -> AsyncIterator[Running]:
    """Serve on a real socket in this event loop."""
    with bind(settings.listen.host, settings.listen.port) as sock:
        store = await asyncio.to_thread(Store.open, settings.database_location)
        service = Service(settings, store, clock=clock)
        app = create_app(service, settings, Tokens.read(settings.tokens))
        started = asyncio.Event()
        server = make_server(app, service.hub, on_ready=started.set)
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        await started.wait()
        host, port = sock.getsockname()[:2]
        running = Running(f"http://{host}:{port}", service, server, settings, serving)
        try:
            yield running
        finally:
            await running.stop()


async def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for a condition, or fail."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        await asyncio.sleep(0.01)


class Deck:
    """A ``specdeck serve`` process."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "controlplane", "serve", "--port", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(environment),
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"did not start: {self.process.communicate()[1]}")
        self.url: str = json.loads(line)["url"]

    def end(self, number: int) -> tuple[int, str, float]:
        """Send a signal; returns exit code, stderr and the seconds it took."""
        begun = time.monotonic()
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors, time.monotonic() - begun


@contextmanager
def deck(arguments: list[str], environment: Mapping[str, str]) -> Iterator[Deck]:
    """Run ``specdeck serve`` in a process of its own."""
    running = Deck(arguments, environment)
    try:
        yield running
    finally:
        running.process.kill()
        with running.process:
            pass
