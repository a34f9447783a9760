"""Named pictures of the console's benchmark screen, over told benchmarks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.pilot import Pilot

import console
from console.bench_messages import BenchesListed, BenchJudged
from console.board import Board, seeded, with_status
from console.formatting import ASCII, UNICODE
from console.scene import Scene
from console.screens.bench import Bench
from console.theme import DARK, THEMES
from controlplane.benchrun_messages import BenchStatus
from controlplane.client import ControlPlaneClient
from tests import console_bench_story as bench_story
from tests.console_story import ENGINE, START_MS, status, story
from tests.frames import frame

NOW_MS = START_MS + 120_300


class ToldBench(Bench):
    """The benchmark screen without a connection, with what it would have read."""

    told: tuple[BenchStatus, ...] = ()

    def start_feed(self) -> None:
        """Nobody is asked."""
        self.post_message(BenchesListed(ENGINE, self.told))
        for one in self.told[:1]:
            if one.points:
                self.post_message(BenchJudged(ENGINE, one.id, *bench_story.judged(one)))


class Host(App[None]):
    """The least application that a screen needs."""

    CSS_PATH = Path(console.__file__).with_name("console.tcss")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "Help"),
        Binding("q", "quit", "Quit"),
    ]

    def on_mount(self) -> None:
        """The console's theme."""
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = DARK.name


@dataclass(frozen=True)
class Picture:
    """One picture.

    Args:
        benches: what the screen would read, newest first.
        keys: pressed one after another.
        readonly: why nothing may be changed.
    """

    name: str
    size: tuple[int, int] = (80, 24)
    benches: Callable[[], Sequence[BenchStatus]] = tuple
    keys: tuple[str, ...] = ()
    ascii: bool = False
    readonly: str = ""


def scene(picture: Picture) -> Scene:
    """The told engine at the story's end."""
    board = seeded(with_status(Board(ENGINE), status()), tuple(story()), (), ())
    return Scene(
        board=board,
        now_ms=NOW_MS,
        zone=UTC,
        glyphs=ASCII if picture.ascii else UNICODE,
        readonly=picture.readonly,
    )


@asynccontextmanager
async def opened(picture: Picture) -> AsyncIterator[tuple[Host, ToldBench, Pilot[None]]]:
    """The screen as ``picture`` wants it, keys pressed."""
    app = Host()
    async with app.run_test(size=picture.size, notifications=True) as pilot:
        app.set_class(picture.ascii, "-ascii-only")
        now = scene(picture)
        screen = ToldBench(ControlPlaneClient(), lambda: now, "op1")
        screen.told = tuple(picture.benches())
        await app.push_screen(screen)
        await pilot.pause()
        for key in picture.keys:
            await pilot.press(key)
            await pilot.pause()
        yield app, screen, pilot


async def taken(picture: Picture) -> str:
    """The picture as text."""
    async with opened(picture) as (app, _, pilot):
        await pilot.pause()
        return frame(app)


def _done() -> Sequence[BenchStatus]:
    return (bench_story.status(),)


def _running() -> Sequence[BenchStatus]:
    return (bench_story.running(), bench_story.status())


PICTURES: tuple[Picture, ...] = (
    Picture("done-80x24", benches=_done),
    Picture("done-120x40", size=(120, 40), benches=_done),
    Picture("running-80x24", benches=_running),
    Picture("running-120x40", size=(120, 40), benches=_running),
    Picture("older", benches=_running, keys=("left_square_bracket",)),
    Picture("ascii-80x24", benches=_done, ascii=True),
    Picture("none"),
    Picture("start", keys=("s",)),
    Picture("cancel", benches=_running, keys=("c",)),
    Picture("apply", benches=_done, keys=("a",)),
    Picture(
        "readonly",
        benches=_done,
        keys=("s",),
        readonly="read-only: started with --readonly",
    ),
)
BY_NAME = {picture.name: picture for picture in PICTURES}
