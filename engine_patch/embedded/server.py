"""The embedded engine as an HTTP server: the SGLang-compatible port and, if asked, the fault port.

Both run in one event loop.  The first line on stdout, one JSON object, says that the server is
ready and where.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from engine_patch.embedded.faults import FaultOrder, Faults, Surface, fault_app
from engine_patch.embedded.generate import generation_routes
from engine_patch.embedded.host import Host
from engine_patch.embedded.information import information_routes
from engine_patch.embedded.state import Options
from engine_patch.routes import speculation_routes

LOOPBACK = "127.0.0.1"
BACKLOG = 2048


@dataclass(frozen=True)
class Ports:
    """Where to listen; port 0 takes a free one, ``fault_port`` None opens no fault port."""

    host: str = LOOPBACK
    port: int = 30000
    fault_port: int | None = None


class PortTakenError(Exception):
    """A port cannot be had; the message says which and what to do."""


class Machine:
    """The present boot, and what replaces it."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.faults = Faults()
        self.host = Host(options, self.faults)

    async def take(self, order: FaultOrder) -> None:
        """Apply an order of the fault port."""
        self.faults.take(order)
        if order.restart:
            self.host.close("the engine restarted")
            self.host = Host(self.options, self.faults)
        if order.clear:
            self.host.set_accept_length(self.options.config.accept_length)
        if order.accept is not None:
            self.host.set_accept_length(order.accept)
        self.host.set_kv_pressure(self.faults.kv_pressure)
        self.host.state.note_refusing_rank()

    def close(self) -> None:
        """End everything, so that no answer is still owed when the server stops."""
        self.faults.closing.set()
        self.host.close("the engine is shutting down")


def application(machine: Machine) -> ASGIApp:
    """The SGLang-compatible application."""
    routes = [
        *speculation_routes(lambda: machine.host.desk),
        *generation_routes(lambda: machine.host),
        *information_routes(lambda: machine.host),
    ]
    table = machine.options.config.table.name
    return Surface(Starlette(routes=routes), machine.faults, table)


class _Server(uvicorn.Server):
    """Leaves signals to the caller: two servers share one loop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def _serving(app: ASGIApp, bound: socket.socket) -> AsyncIterator[_Server]:
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
        backlog=BACKLOG,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        while not server.started:
            if task.done():
                await task
            await asyncio.sleep(0.005)
        yield server
    finally:
        server.should_exit = True
        await task


def bind(host: str, port: int) -> socket.socket:
    """A listening address of our own.

    Raises:
        PortTakenError: it cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sets TCP_NODELAY; without it each answer waits 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise PortTakenError(
            f"cannot listen on {host}:{port} ({reason}); "
            "stop what uses it, or choose another port (0 takes a free one)"
        ) from error
    return bound


async def serve(options: Options, ports: Ports) -> None:
    """Run until SIGINT or SIGTERM.

    Raises:
        PortTakenError: a port cannot be had.
    """
    with contextlib.ExitStack() as sockets:
        main = sockets.enter_context(bind(ports.host, ports.port))
        faulty = None
        if ports.fault_port is not None:
            faulty = sockets.enter_context(bind(LOOPBACK, ports.fault_port))
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        # Starlette's streaming loads its backend on first use; the first request must not wait.
        async with anyio.create_task_group():
            pass
        machine = Machine(options)
        async with contextlib.AsyncExitStack() as servers:
            await servers.enter_async_context(_serving(application(machine), main))
            if faulty is not None:
                faults = fault_app(lambda: machine.faults, machine.take)
                await servers.enter_async_context(_serving(faults, faulty))
            servers.callback(machine.close)
            _announce(machine, ports, main, faulty)
            await stop.wait()


def _announce(
    machine: Machine, ports: Ports, main: socket.socket, faulty: socket.socket | None
) -> None:
    port = main.getsockname()[1]
    shown = f"[{ports.host}]" if ":" in ports.host else ports.host
    line = {
        "ready": True,
        "url": f"http://{shown}:{port}",
        "port": port,
        "fault_port": None if faulty is None else faulty.getsockname()[1],
        "pid": os.getpid(),
        "boot_id": machine.host.boot_id,
        "simulated": True,
        "table": machine.options.config.table.name,
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
