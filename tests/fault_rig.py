"""Both sides in processes of their own, killed and started again while requests, overrides and
decisions go on.  ``tests.fault_check`` asks what every such run must answer.

Nothing here knows what the control plane should decide: it only compares what was acknowledged,
what reached the engine, and what is in the store.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controlplane.client import ControlPlaneClient, ControlPlaneError, RefusedError
from controlplane.messages import ReleaseRequest
from engine_patch.contract import JournalEntry
from engine_patch.contract_words import Mode
from engine_patch.quiet_port import quiet_port
from store.records import Decision, Override
from tests.controlplane_rig import ENGINE, Deck
from tests.fault_people import Person, Traffic

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 60.0
"""How long anything may take that happens in milliseconds on an idle machine."""
POLICY = (
    'policy = { kind = "hysteresis", tiers = ["s3k1d4", "off"], up_hold_s = 0.1, down_hold_s = 0.1,'
    " min_dwell_s = 0.1, cooldown_s = 0, start_grace_s = 0, switches_per_hour = 3600,"
    " boundaries = [{ up_at = 10, down_at = 6 }] }"
)


def precedence() -> str:
    """How a measurement was scheduled beside other work, for its report."""
    group = Path("/proc/self/autogroup")
    nice = group.read_text().split()[-1] if group.exists() else str(os.nice(0))
    return f"load {os.getloadavg()[0]:.1f}, scheduled with niceness {nice}"


async def eventually(
    what: str, look: Callable[[], Awaitable[bool]], seconds: float = PATIENCE_S
) -> None:
    """Wait until ``look`` says yes."""
    end = time.monotonic() + seconds
    while True:
        with suppress(ControlPlaneError):
            if await look():
                return
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(0.05)


@dataclass
class Rig:
    """The two processes and everything that goes on around them."""

    folder: Path
    seed: int
    deck: Deck | None = None
    engine: subprocess.Popen[str] | None = None
    boots: list[str] = field(default_factory=list)
    seen: dict[int, Decision] = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.port = quiet_port()
        self.notes = self.folder / "engine.jsonl"
        self.database = self.folder / "deck.sqlite3"
        self.traffic = Traffic(self.port)
        self.person = Person(random.Random(self.seed + 1))
        self.config = self.folder / "deck.toml"
        self.config.write_text(
            f'database = "{self.database}"\nholder = "specdeck@test"\n'
            f'[[engines]]\nid = "{ENGINE}"\nurl = "http://127.0.0.1:{self.port}"\n'
            f'stance = "active"\npoll_s = 0.05\nlease_s = 4\ntimeout_s = 5\n{POLICY}\n'
        )

    async def start_engine(self) -> None:
        """Start the engine; it is a new boot."""
        await asyncio.to_thread(self._start_engine)

    def _start_engine(self) -> None:
        command = [sys.executable, "-m", "tests.noted_engine", "--port", str(self.port)]
        self.engine = subprocess.Popen(
            [*command, "--log", str(self.notes)], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert self.engine.stdout is not None
        self.boots.append(json.loads(self.engine.stdout.readline())["boot_id"])

    async def start_deck(self) -> None:
        """Start the control plane."""
        self.deck = await asyncio.to_thread(Deck, ["--config", str(self.config)], os.environ)

    def client(self) -> ControlPlaneClient:
        """A client of the present control plane."""
        assert self.deck is not None
        return ControlPlaneClient(self.deck.url, timeout_s=PATIENCE_S)

    def kill(self, side: str) -> None:
        """SIGKILL one side and reap it."""
        self.kills[side] += 1
        process = self.engine if side == "engine" else self.deck.process if self.deck else None
        assert process is not None
        assert process.poll() is None, f"the {side} ended by itself: {process.returncode}"
        process.send_signal(signal.SIGKILL)
        process.communicate()

    async def live(self, seconds: float) -> None:
        """Let traffic change, people act and decisions be read for so long, then stop at once.

        What is under way at the end is cut off in the middle, like everything else in a crash.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), self.client() as client:
                while True:
                    self.traffic.wanted = self.chance.choice((2, 2, 14, 14, 8))
                    await self.person.act(client)
                    await asyncio.sleep(self.chance.uniform(0, 0.3))
                    await self.read_decisions(client)

    async def read_decisions(self, client: ControlPlaneClient) -> None:
        """Remember what the control plane has shown; it must stay true."""
        with suppress(ControlPlaneError):
            for decision in await client.decisions(ENGINE, limit=50):
                self.seen[decision.seq] = decision

    async def restarted(self) -> None:
        """What must hold after each restart: override, audit, and that the engine obeys."""
        async with self.client() as client:
            self.person.found(await self.restored(client))
            check = await client.check_audit()
            assert check.intact, check
            override = self.person.sure
            if override is None or override.mode is Mode.AUTO:
                return
            if override.expires_utc_ms > time.time() * 1000 + 1500:
                await eventually(
                    f"the engine runs what {override} asks for, or it ended",
                    lambda: self._obeys(client, override),
                )

    async def restored(self, client: ControlPlaneClient) -> Override | None:
        """The override in force once the control plane has read what was."""

        async def polled() -> bool:
            return (await client.engine(ENGINE)).tick is not None

        await eventually("the first tick after a start", polled)
        return await client.override(ENGINE)

    async def _obeys(self, client: ControlPlaneClient, override: Override) -> bool:
        tick = (await client.engine(ENGINE)).tick
        wanted = "off" if override.mode is Mode.OFF else "s3k1d4"
        ended = override.expires_utc_ms <= time.time() * 1000
        return ended or (tick is not None and tick.confirmed == wanted)

    async def run(self, kills: int) -> None:
        """Kill one side so many times, at random moments; then come to rest and check."""
        driving = asyncio.create_task(self.traffic.run())
        try:
            await self.start_engine()
            await self.start_deck()
            await self.restarted()
            for _ in range(kills):
                side = self.chance.choice(("deck", "engine", "deck", "both"))
                await self.live(self.chance.uniform(0.05, 1.5))
                if side in ("engine", "both"):
                    self.kill("engine")
                if side in ("deck", "both"):
                    self.kill("deck")
                if side in ("engine", "both"):
                    await self.start_engine()
                if side in ("deck", "both"):
                    await self.start_deck()
                await self.restarted()
                assert not driving.done()
            self.traffic.wanted = 0
            await self.rest()
        finally:
            driving.cancel()
            await asyncio.gather(driving, return_exceptions=True)
            for process in (self.engine, self.deck.process if self.deck else None):
                if process is not None and process.poll() is None:
                    process.kill()
                    process.communicate()

    async def rest(self) -> None:
        """Let everything settle, then end the control plane properly."""
        async with self.client() as client:
            with suppress(RefusedError):
                await client.release_override(
                    ENGINE, ReleaseRequest(author="alice", reason="the end")
                )

            async def settled() -> bool:
                tick = (await client.engine(ENGINE)).tick
                newest = (await client.switches(ENGINE, limit=1))[:1]
                made = [one for one in self.entries() if one[0] == self.boots[-1]]
                read = newest and newest[0].boot_id == self.boots[-1]
                last = newest[0].entry.seq if read else 0
                done = tick is not None and tick.pending is None and tick.confirmed == "s3k1d4"
                return done and last == max((entry.seq for _, entry, _ in made), default=0)

            await eventually("everything is settled and the journal read", settled)
        assert self.deck is not None
        code, errors, _ = await asyncio.to_thread(self.deck.end, signal.SIGTERM)
        assert code == 0
        assert "Traceback" not in errors, errors

    def lines(self) -> list[dict[str, Any]]:
        """What the engines noted; a line that the kill cut off is left out."""
        found = []
        for line in self.notes.read_bytes().splitlines():
            with suppress(json.JSONDecodeError):
                found.append(json.loads(line))
        return found

    def entries(self) -> list[tuple[str, JournalEntry, int]]:
        """(boot, entry, when) of every tier change that the engines noted."""
        return [
            (line["boot"], JournalEntry.model_validate(line["entry"]), line["at"])
            for line in self.lines()
            if "entry" in line
        ]
