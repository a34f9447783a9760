"""Both sides in processes of their own, killed and started again while requests, overrides and
decisions go on, and the questions that every such run must answer.

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
from controlplane.load_http import BadAnswerError, Connection, DroppedError
from controlplane.messages import ExtendRequest, OverrideRequest, ReleaseRequest
from controlplane.server import CannotListenError, bind
from engine_patch.contract import JournalEntry, Mode, SwitchReason
from store.db import Store
from store.records import Decision, Outcome, Override
from tests.controlplane_rig import ENGINE, Deck

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


def quiet_port(chance: random.Random) -> int:
    """A port below those that the system gives out, so that it stays ours between two starts."""
    for _ in range(200):
        port = chance.randrange(20_000, 32_000)
        with suppress(CannotListenError), bind("127.0.0.1", port):
            return port
    raise AssertionError("no free port between 20000 and 32000")


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


class Traffic:
    """Requests at the engine, few or many at a time; goes on whoever is killed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.wanted = 0
        self.answered = 0

    async def run(self, most: int = 16) -> None:
        """Send for ever."""
        await asyncio.gather(*(self._one(place) for place in range(most)))

    async def _one(self, place: int) -> None:
        connection = Connection("127.0.0.1", self._port)
        body = {"input_ids": [7] * 16, "sampling_params": {"max_new_tokens": 64}}
        request = connection.encode("POST", "/generate", json.dumps(body).encode())
        try:
            while True:
                if place >= self.wanted:
                    await asyncio.sleep(0.02)
                    continue
                try:
                    await connection.exchange(request)
                    self.answered += 1
                except (OSError, BadAnswerError, DroppedError):
                    connection.close()
                    await asyncio.sleep(0.05)
        finally:
            connection.close()


def extension(before: Override, extra_ms: int) -> Callable[[Override | None], bool]:
    """Whether an override is ``before`` with a later end.

    The end moves by what is left on the monotonic clock, so a few milliseconds may go astray.
    """

    def is_longer(one: Override | None) -> bool:
        if one is None or one.id != before.id:
            return False
        return abs(one.expires_utc_ms - before.expires_utc_ms - extra_ms) < 50

    return is_longer


@dataclass
class Person:
    """Sets, extends and releases overrides, and remembers what was acknowledged.

    Args:
        sure: the override in force by the last acknowledged answer.
        doubtful: what else may be in force, because an answer was lost.
    """

    chance: random.Random
    sure: Override | None = None
    doubtful: list[Callable[[Override | None], bool]] = field(default_factory=list)
    acknowledged: Counter[str] = field(default_factory=Counter)
    reasons: list[str] = field(default_factory=list)
    lost: int = 0

    async def act(self, client: ControlPlaneClient) -> None:
        """One random action."""
        before = self.sure
        kind = self.chance.choice(("set", "set", "extend", "release"))
        if before is None or before.expires_utc_ms < time.time() * 1000 + 2000:
            kind = "set"
        try:
            if kind == "set":
                mode = self.chance.choice((Mode.OFF, Mode.ON))
                reason = f"action {len(self.reasons)}"
                self.reasons.append(reason)
                length_s = self.chance.choice((0.5, 2.0, 60.0, 600.0))
                request = OverrideRequest(
                    mode=mode, length_s=length_s, author="alice", reason=reason
                )
                ends_ms = time.time() * 1000 + 1000 * length_s
                self.doubtful = [
                    lambda one: one is not None and one.reason == reason,
                    lambda one: one is None and time.time() * 1000 >= ends_ms,
                ]
                self.sure = await client.set_override(ENGINE, request)
                assert self.sure is not None
                assert self.sure.reason == reason
            elif kind == "extend":
                assert before is not None
                longer = extension(before, 5000)
                self.doubtful = [longer]
                request = ExtendRequest(extra_s=5.0, author="alice", reason="longer")
                self.sure = await client.extend_override(ENGINE, request)
                assert longer(self.sure)
            else:
                self.doubtful = [lambda one: one is None]
                request = ReleaseRequest(author="alice", reason="enough")
                self.sure = await client.release_override(ENGINE, request)
            self.acknowledged[kind] += 1
            self.doubtful = []
        except RefusedError as error:
            ran_out = before is not None and before.expires_utc_ms < time.time() * 1000 + 2000
            if error.problem is None or error.problem.code != "no_override" or not ran_out:
                raise
            self.sure, self.doubtful = None, []
        except ControlPlaneError:
            self.lost += 1
        except asyncio.CancelledError:
            self.lost += 1
            raise

    def found(self, now: Override | None) -> None:
        """Compare what is in force after a restart with what was acknowledged."""
        over = self.sure is not None and self.sure.expires_utc_ms <= time.time() * 1000
        fits = now == self.sure or (over and now is None)
        assert fits or any(may_be(now) for may_be in self.doubtful), (
            f"in force is {now}, acknowledged was {self.sure}, {len(self.doubtful)} in doubt"
        )
        self.sure, self.doubtful = now, []


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
        self.port = quiet_port(random.Random(os.getpid()))
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


@dataclass(frozen=True)
class Found:
    """What a run held, for its report."""

    commands: int
    switches: int
    decisions: int
    overrides: int


def check(rig: Rig) -> Found:
    """The questions that every run must answer, from the engine's notes and the store."""
    puts = [(line["boot"], line["put"]) for line in rig.lines() if "put" in line]
    orders = Counter((boot, put["epoch"], put["generation"]) for boot, put in puts)
    assert not [order for order, times in orders.items() if times > 1], "an order was used twice"
    for boot in rig.boots:
        mine = [(put["epoch"], put["generation"]) for of, put in puts if of == boot]
        assert mine == sorted(mine), f"orders of {boot} went back: {mine}"
    with Store.open(rig.database, read_only=True) as store:
        decisions = store.decisions(ENGINE, limit=1_000_000)
        switches = store.switches(ENGINE, limit=1_000_000)
        overrides = store.overrides(ENGINE)
        audit = store.audit(limit=1_000_000)
        assert store.check_audit().intact
        assert store.unreadable == 0
    _decisions_hold(rig, decisions)
    _switches_have_decisions(rig, decisions)
    for boot in rig.boots:
        kept = sorted(one.entry.seq for one in switches if one.boot_id == boot)
        assert kept == list(range(1, len(kept) + 1)), f"the journal of {boot} has holes: {kept}"
    assert len({one.boot_id for one in switches} - set(rig.boots)) == 0
    _overrides_hold(rig, overrides)
    done = Counter(entry.action for entry in audit)
    assert done["override.set"] == len(overrides)
    for kind, times in rig.person.acknowledged.items():
        assert times <= done[f"override.{kind}"] <= times + rig.person.lost + 1
    assert done["service.start"] == rig.kills["deck"] + 1
    assert done["service.stop"] == 1
    return Found(len(puts), len(rig.entries()), len(decisions), len(overrides))


def _decisions_hold(rig: Rig, decisions: list[Decision]) -> None:
    """None is missing that was shown, none is there twice, none is left open."""
    by_seq = {one.seq: one for one in decisions}
    assert len(by_seq) == len(decisions)
    for seq, shown in rig.seen.items():
        assert seq in by_seq, f"lost: {shown}"
        fixed = ("id", "at_utc_ms", "from_tier", "to_tier", "reason", "author", "clauses")
        for name in fixed:
            assert getattr(by_seq[seq], name) == getattr(shown, name), (name, shown, by_seq[seq])
    assert [one for one in decisions if one.outcome is Outcome.REQUESTED] == []


def _switches_have_decisions(rig: Rig, decisions: list[Decision]) -> None:
    """Every change that the engine made on a command was decided before, to that very tier."""
    begun: dict[str, int] = {}
    for line in rig.lines():
        begun.setdefault(line["boot"], line["at"])
    for boot, entry, at in rig.entries():
        if entry.reason is not SwitchReason.COMMAND:
            continue
        order = (entry.epoch, entry.generation)
        earlier = [
            one
            for one in decisions
            if begun[boot] - 60_000 <= one.at_utc_ms <= at + 50
            and (one.epoch, one.generation) <= order
            and one.to_tier == entry.to_tier
        ]
        assert earlier, f"no decision led to {entry} of {boot}"


def _overrides_hold(rig: Rig, overrides: list[Override]) -> None:
    """Each was set once and lasted until its end, unless a person ended it earlier."""
    reasons = Counter(one.reason for one in overrides)
    assert all(times == 1 for times in reasons.values()), reasons
    ids = sorted(one.id for one in overrides)
    for one in overrides:
        assert one.ended_utc_ms is not None, f"in force for ever: {one}"
        if one.ended_by == "expired":
            assert -60 <= one.ended_utc_ms - one.expires_utc_ms < 30_000, one
        elif one.ended_by.startswith("replaced by "):
            assert int(one.ended_by.removeprefix("replaced by ")) in ids
        else:
            assert one.ended_by == "released by alice", one
        granted = one.expires_utc_ms - one.created_utc_ms
        assert abs(granted - 1000 * one.granted_s) < 500, one
