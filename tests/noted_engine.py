"""An embedded engine that notes, in a file that survives SIGKILL, what reached it and what it did.

    python -m tests.noted_engine --port 20000 --log FILE

It is the embedded engine itself behind one ASGI middleware.  The file holds a JSON object per line:
``{"put": command, "boot": id, "at": ms}`` for each ``PUT /speculation`` as it arrives, and
``{"entry": journal entry, "boot": id, "at": ms}`` for each tier change as it is made.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine_patch.embedded.core import EngineConfig
from engine_patch.embedded.server import LOOPBACK, Machine, _serving, application, bind
from engine_patch.embedded.state import Options
from engine_patch.embedded.table import load
from engine_patch.routes import PATH

TIERS = ("off", "s3k1d4")
LOOK_S = 0.01
"""Seconds between two looks at the journal."""


class Notes:
    """The file, written line by line without a buffer of our own."""

    def __init__(self, path: Path, machine: Machine) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self._machine = machine
        self._seen = 0

    def note(self, kind: str, what: Mapping[str, Any]) -> None:
        """Write one line."""
        line = {kind: what, "boot": self._machine.host.boot_id, "at": int(time.time() * 1000)}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def look(self) -> None:
        """Note what the journal has gained."""
        for entry in self._machine.host.engines[0].chooser.journal_since(self._seen):
            self._seen = entry.seq
            self.note("entry", entry.model_dump(mode="json"))


class Noted:
    """ASGI middleware that notes commands."""

    def __init__(self, app: ASGIApp, notes: Notes) -> None:
        self._app = app
        self._notes = notes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        if scope["type"] != "http" or (scope["method"], scope["path"]) != ("PUT", PATH):
            await self._app(scope, receive, send)
            return
        whole = bytearray()

        async def noted() -> Message:
            message = await receive()
            whole.extend(message.get("body", b""))
            if message["type"] == "http.request" and not message.get("more_body"):
                self._notes.note("put", json.loads(whole))
            return message

        await self._app(scope, noted, send)
        self._notes.look()


async def run(port: int, path: Path) -> None:
    """Serve until SIGTERM."""
    config = EngineConfig(table=load("fa3"), tiers=TIERS, launch_tier=TIERS[-1])
    machine = Machine(Options(config=config))
    notes = Notes(path, machine)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    with bind(LOOPBACK, port) as bound:
        async with _serving(Noted(application(machine), notes), bound):
            sys.stdout.write(json.dumps({"boot_id": machine.host.boot_id}) + "\n")
            sys.stdout.flush()
            while not stop.is_set():
                notes.look()
                await asyncio.sleep(LOOK_S)
            machine.close()


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.noted_engine")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--log", type=Path, required=True)
    said = parser.parse_args(argv)
    asyncio.run(run(said.port, said.log))


if __name__ == "__main__":
    main()
