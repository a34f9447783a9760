"""Named pictures of the replay screen, over the shipped recording and a real replay API."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import Any

from textual.pilot import Pilot
from textual.widgets import Button, Input

from console.options import Options
from console.replay_app import ReplayConsole
from console.replay_process import ReplayProcess
from console.screens.replay import Replay
from console.screens.sessions import Sessions, SessionsListed
from controlplane.client import ControlPlaneClient
from controlplane.sessions_messages import ReplayRequest, SessionInfo
from tests.console_bench_pictures import Host, scene
from tests.console_bench_pictures import Picture as BenchPicture
from tests.console_story import ENGINE, START_MS
from tests.frames import frame

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "docs" / "examples" / "cpu-engine.specdeck"
PATIENCE_S = 30.0


@dataclass(frozen=True)
class Picture:
    """One picture.

    Args:
        shows: what it shows, for the documentation; "" keeps it out of there.
        keys: pressed one after another, each once the one before was done.
        edits: asked as a what-if before the keys; "" for none.
        verified: the verification is made before the keys, and its page left.
    """

    name: str
    shows: str = ""
    size: tuple[int, int] = (80, 24)
    keys: tuple[str, ...] = ()
    edits: str = ""
    verified: bool = False
    options: dict[str, Any] = field(default_factory=dict)


@asynccontextmanager
async def replaying(file: Path = EXAMPLE) -> AsyncIterator[str]:
    """The URL of a private replay of ``file``."""
    process = await ReplayProcess.start(file)
    try:
        yield process.url
    finally:
        await process.stop()


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Wait until ``condition`` holds, or fail with what is on the screen."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"not within {PATIENCE_S} s:\n{frame(pilot.app)}"
        await pilot.pause(0.02)


async def press(pilot: Pilot[None], screen: Replay, *keys: str) -> None:
    """Press each key once what the one before ordered is on the screen."""
    for key in keys:
        await pilot.press(key)
        await until(pilot, lambda: screen.settled)
        await pilot.pause()


async def ask(pilot: Pilot[None], screen: Replay, edits: str) -> None:
    """Ask a what-if through its dialog."""
    before = screen.replay.what_if
    await press(pilot, screen, "w")
    pilot.app.screen.query_one("#edits", Input).value = edits
    pilot.app.screen.query_one("#act", Button).press()
    await until(pilot, lambda: screen.replay.what_if is not before and screen.settled)
    await pilot.pause()


@asynccontextmanager
async def opened(
    url: str, picture: Picture
) -> AsyncIterator[tuple[ReplayConsole, Replay, Pilot[None]]]:
    """The replay at its beginning, at rest and unasked; then as ``picture`` wants it."""
    async with ControlPlaneClient(url) as client:
        await client.forget_what_if()
        await client.order_replay(ReplayRequest(playing=False, place=0, speed=1))
    app = ReplayConsole(ControlPlaneClient(url), Options(**{"zone": UTC} | picture.options))
    async with app.run_test(size=picture.size, notifications=True) as pilot:
        await until(pilot, lambda: isinstance(app.screen, Replay) and app.screen.settled)
        screen = app.screen
        assert isinstance(screen, Replay)
        await until(pilot, lambda: screen.replay.strip is not None)
        await pilot.pause()
        if picture.edits:
            await ask(pilot, screen, picture.edits)
        if picture.verified:
            await press(pilot, screen, "v")
            await until(pilot, lambda: app.screen is not screen)
            await press(pilot, screen, "escape")
        await press(pilot, screen, *picture.keys)
        yield app, screen, pilot


async def taken(url: str, picture: Picture) -> str:
    """The picture as text."""
    async with opened(url, picture) as (app, _, pilot):
        await pilot.pause()
        return frame(app)


FOURTH = ("right_square_bracket",) * 4
ASKED = "boundaries.0.up_at=6"

PICTURES: tuple[Picture, ...] = (
    Picture("replay-80x24", "A replay at 80x24", keys=FOURTH),
    Picture("replay-120x40", "A replay at 120x40", size=(120, 40), keys=FOURTH),
    Picture("replay-60x16", "A replay at 60x16", size=(60, 16), keys=FOURTH),
    Picture("replay-ascii-80x24", "`--ascii`", keys=FOURTH, options={"ascii": True}),
    Picture("replay-no-color-80x24", keys=FOURTH, options={"no_color": True}),
    Picture("replay-marker", keys=("k",)),
    Picture("replay-goto", "`g`: going to a time", keys=("g", *"20:10:00")),
    Picture("replay-ask", "`w`: asking about another policy", keys=("w",)),
    Picture("replay-what-if", "A what-if at 80x24", edits=ASKED, keys=("n",)),
    Picture("replay-what-if-120x40", size=(120, 40), edits=ASKED, keys=("n",)),
    Picture("replay-what-if-ascii", edits=ASKED, keys=("n",), options={"ascii": True}),
    Picture("replay-what-if-page", "`i`: all of it", size=(80, 30), edits=ASKED, keys=("i",)),
    Picture("replay-verify", "`v`: verified", verified=True, keys=("end", "v")),
)
BY_NAME = {picture.name: picture for picture in PICTURES}


class ToldSessions(Sessions):
    """The sessions screen without a connection."""

    told: tuple[SessionInfo, ...] = ()

    def start_feed(self) -> None:
        """Nobody is asked."""
        self.post_message(SessionsListed(self.told))


def sessions() -> tuple[SessionInfo, ...]:
    """One that is recorded now, and two that ended."""
    begun = START_MS - 86_400_000
    known = {"engine_id": ENGINE, "first_seq": 1, "last_seq": 9}
    return (
        SessionInfo(id=3, name="load test", started_utc_ms=START_MS, complete=False, **known),
        SessionInfo(
            id=2, name="night", started_utc_ms=begun, ended_utc_ms=begun + 32_400_000, **known
        ),
        SessionInfo(
            id=1,
            name="before the deploy of the week before last",
            started_utc_ms=begun - 90_000,
            ended_utc_ms=begun,
            **known,
        ),
    )


@asynccontextmanager
async def listed(
    told: tuple[SessionInfo, ...], *, size: tuple[int, int] = (80, 24), ascii_only: bool = False
) -> AsyncIterator[tuple[Host, ToldSessions, Pilot[None]]]:
    """The sessions screen with a list."""
    app = Host()
    async with app.run_test(size=size, notifications=True) as pilot:
        app.set_class(ascii_only, "-ascii-only")
        now = scene(BenchPicture("any", ascii=ascii_only))
        screen = ToldSessions(ControlPlaneClient(), lambda: now, "op1")
        screen.told = told
        await app.push_screen(screen)
        await pilot.pause()
        await pilot.pause()
        yield app, screen, pilot


async def sessions_taken() -> str:
    """The documented list as text."""
    async with listed(sessions()) as (app, _, _):
        return frame(app)


SHOWN = (*(picture.name for picture in PICTURES if picture.shows), "sessions-80x24")
"""Every documented picture."""


async def all_taken() -> dict[str, str]:
    """Every documented picture by name."""
    async with replaying() as url:
        found = {one.name: await taken(url, one) for one in PICTURES if one.shows}
    return found | {"sessions-80x24": await sessions_taken()}
