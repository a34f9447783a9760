"""Many embedded engines in one process: ``python -m tests.engine_herd --count 200``.

Each engine is the embedded engine itself (its application, its own port); only the process is
shared.  The first line on stdout is a JSON object with the engines' URLs and that of ``GET /told``,
which says what reached them: polls, commands, and the milliseconds from the end of an answer to
``GET /speculation`` to the arrival of the next ``PUT /speculation`` at the same engine.  Next to it
is the fault port of each engine, under its number.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from engine_patch.embedded.core import EngineConfig
from engine_patch.embedded.faults import Faults, fault_app
from engine_patch.embedded.server import LOOPBACK, Machine, _serving, application, bind
from engine_patch.embedded.state import Options
from engine_patch.embedded.table import load
from engine_patch.routes import PATH

ROOT = Path(__file__).resolve().parent.parent
TIERS = ("off", "s1k1d2", "s3k1d4")


@dataclass
class Told:
    """What reached the engines since the last look."""

    polls: int = 0
    commands: int = 0
    delays_ms: list[float] = field(default_factory=list)


class Noted:
    """ASGI middleware of one engine: notes polls, commands and the delay between them."""

    def __init__(self, app: ASGIApp, told: Told) -> None:
        self._app = app
        self._told = told
        self._answered: float | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        now = time.monotonic()
        asked = (scope["method"], scope["path"]) if scope["type"] == "http" else None
        if asked == ("PUT", PATH):
            self._told.commands += 1
            if self._answered is not None:
                self._told.delays_ms.append(1000 * (now - self._answered))
                self._answered = None
        await self._app(scope, receive, send)
        if asked == ("GET", PATH):
            self._told.polls += 1
            self._answered = time.monotonic()


async def keep_running(machine: Machine, low: int, high: int, period_s: float, at_s: float) -> None:
    """Keep so many requests running: ``low`` for half a period, then ``high``, without HTTP."""
    loop = asyncio.get_running_loop()
    begun = loop.time() - at_s
    under_way: set[asyncio.Future[None]] = set()
    while True:
        wanted = high if (loop.time() - begun) % period_s >= period_s / 2 else low
        while len(under_way) < wanted:
            _, answer = machine.host.submit(128, 2048, ignore_eos=True, part=0)
            under_way.add(answer.left)
        if under_way:
            await asyncio.wait(under_way, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(1.0)
        under_way = {one for one in under_way if not one.done()}


def _faults(machine: Machine) -> Faults:
    return machine.faults


async def run(said: argparse.Namespace) -> None:
    """Serve until the process is ended."""
    told = Told()

    async def tell(_request: Request) -> JSONResponse:
        answer = {"polls": told.polls, "commands": told.commands, "delays_ms": told.delays_ms}
        told.polls, told.commands, told.delays_ms = 0, 0, []
        return JSONResponse(answer)

    config = EngineConfig(table=load("fa3"), tiers=TIERS, launch_tier=TIERS[-1])
    machines = [Machine(Options(config=config, seed=seed + 1)) for seed in range(said.count)]
    async with contextlib.AsyncExitStack() as servers:
        urls: list[str] = []
        for machine in machines:
            bound = bind(LOOPBACK, 0)
            urls.append(f"http://{LOOPBACK}:{bound.getsockname()[1]}")
            app = Noted(application(machine), told)
            await servers.enter_async_context(_serving(app, bound))
        bound = bind(LOOPBACK, 0)
        app = Starlette(
            routes=[
                Route("/told", tell),
                *(
                    Mount(f"/{place}", fault_app(partial(_faults, machine), machine.take))
                    for place, machine in enumerate(machines)
                ),
            ]
        )
        await servers.enter_async_context(_serving(app, bound))
        loads = [
            asyncio.create_task(
                keep_running(machine, said.low, said.high, said.period, said.period * place / 7)
            )
            for place, machine in enumerate(machines[: said.loaded])
        ]
        where = f"http://{LOOPBACK}:{bound.getsockname()[1]}"
        sys.stdout.write(json.dumps({"urls": urls, "rig": where}) + "\n")
        sys.stdout.flush()
        await asyncio.gather(asyncio.Event().wait(), *loads)


@dataclass(frozen=True)
class Herd:
    """A running process of engines."""

    urls: tuple[str, ...]
    rig_url: str
    process: subprocess.Popen[str]

    def fault(self, place: int, **order: Any) -> None:
        """Give an order to the fault port of one engine."""
        httpx.post(
            f"{self.rig_url}/{place}/faults", json=order, trust_env=False, timeout=30
        ).raise_for_status()

    def told(self) -> dict[str, Any]:
        """What reached the engines since the last call."""
        answer = httpx.get(f"{self.rig_url}/told", trust_env=False, timeout=30)
        told: dict[str, Any] = answer.json()
        return told


@contextlib.contextmanager
def herd(count: int, *arguments: str) -> Iterator[Herd]:
    """Start ``count`` engines in a process of their own."""
    command = [sys.executable, "-m", "tests.engine_herd", "--count", str(count), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            yield Herd(tuple(ready["urls"]), ready["rig"], process)
        finally:
            process.kill()


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.engine_herd")
    parser.add_argument("--count", type=int, required=True, help="engines")
    parser.add_argument("--loaded", type=int, default=0, help="engines with requests running")
    parser.add_argument("--low", type=int, default=2, help="requests running, first half")
    parser.add_argument("--high", type=int, default=120, help="requests running, second half")
    parser.add_argument("--period", type=float, default=60.0, help="seconds of both halves")
    asyncio.run(run(parser.parse_args(argv)))


if __name__ == "__main__":
    main()
