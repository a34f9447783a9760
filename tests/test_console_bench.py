"""The console's benchmark screen: pictures, what its keys do, and a live benchmark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from textual.pilot import Pilot
from textual.widgets import Button, Input

from console.app import Console, Options
from console.bench_board import BenchBoard, judged, listed, moved, turned
from console.bench_plot import Spot, spots
from console.board import Board, apply, with_status
from console.formatting import cells
from console.scene import Scene
from console.screens.bench import Bench
from console.screens.bench_dialogs import ApplyBench, CancelBench, StartBench
from controlplane.benchrun_messages import BenchState
from tests import console_bench_story as bench_story
from tests.console_bench_pictures import BY_NAME, PICTURES, Host, Picture, opened, taken
from tests.console_story import DEEP, ENGINE, OFF
from tests.controlplane_rig import ENGINE as LIVE_ENGINE
from tests.controlplane_rig import (
    EmbeddedEngine,
    control_plane,
    embedded_engine,
    settings_of,
    until,
)
from tests.frames import FRAMES, frame


@pytest.mark.parametrize("name", [picture.name for picture in PICTURES])
async def test_the_screen_reads_without_colour(name: str, snapshot: SnapshotAssertion) -> None:
    picture = BY_NAME[name]
    text = await taken(picture)
    assert text == snapshot
    if picture.ascii:
        assert text.isascii(), sorted({char for char in text if not char.isascii()})


async def test_every_size_is_filled_exactly() -> None:
    async with opened(BY_NAME["running-80x24"]) as (app, _, pilot):
        for width, height in ((40, 10), (60, 16), (79, 24), (100, 45), (160, 30)):
            await pilot.resize_terminal(width, height)
            await pilot.pause()
            text = frame(app)
            rows = text.splitlines()
            assert len(rows) == height
            assert all(cells(row) <= width for row in rows)
            assert "benchmark 20261129-120230"[: width - 20] in text


async def test_no_key_acts_without_a_question_whose_focus_is_on_cancel() -> None:
    for picture, key, kind in (
        (Picture("x"), "s", StartBench),
        (BY_NAME["running-80x24"], "c", CancelBench),
        (BY_NAME["done-80x24"], "a", ApplyBench),
    ):
        async with opened(picture) as (app, screen, pilot):
            await pilot.press(key)
            await pilot.pause()
            assert isinstance(app.screen, kind)
            assert isinstance(app.focused, Button)
            assert app.focused.id == "cancel"
            await pilot.press("escape")
            await pilot.pause()
            assert app.screen is screen


@pytest.mark.parametrize(
    ("picture", "action", "words"),
    [
        ("running-80x24", "start", "a benchmark runs: one at a time"),
        ("running-80x24", "apply", "still runs"),
        ("done-80x24", "cancel", "no benchmark runs"),
        ("none", "apply", "nothing to apply"),
        ("readonly", "apply", "read-only"),
    ],
)
async def test_a_dimmed_key_says_why(picture: str, action: str, words: str) -> None:
    known = BY_NAME[picture]
    untouched = Picture("x", benches=known.benches, readonly=known.readonly)
    async with opened(untouched) as (_, screen, _):
        assert words in screen.refusal(action)
        assert screen.check_action(action, ()) is None


async def test_wrong_fields_say_what_to_write_and_send_nothing() -> None:
    async with opened(Picture("x", keys=("s",))) as (app, _, pilot):
        for field, value, words in (
            ("load", "a,b", "write the concurrencies like 1,4,16"),
            ("load", "0", "must lie between 1 and 1024"),
            ("budget", "soon", "is no length of time"),
            ("tokens", "12", "like 128+256"),
        ):
            entry = app.screen.query_one(f"#{field}", Input)
            before, entry.value = entry.value, value
            await pilot.pause()
            assert words in frame(app).replace("\n", " ").replace("│", ""), frame(app)
            entry.value = before


def test_the_board_keeps_what_is_shown_through_new_lists() -> None:
    done, running = bench_story.status(), bench_story.running()
    board = listed(BenchBoard(ENGINE), [running, done])
    assert board.shown == board.running == running
    older = turned(board, 1)
    assert older.shown == done
    assert turned(older, 1) == older
    newer = running.model_copy(update={"state": BenchState.DONE})
    after = moved(older, newer)
    assert after.running is None
    assert after.shown == done
    analysis, proposal = bench_story.judged(done)
    assert judged(after, running.id, analysis, proposal) == after
    assert judged(after, done.id, analysis, proposal).proposal == proposal
    assert moved(BenchBoard(ENGINE), running).running == running


def test_curves_leave_out_what_may_not_be_compared() -> None:
    good = bench_story.points()
    spoilt = bench_story.points(tok_s=9e9, client_bound=True)
    curves = spots([*good, *spoilt])
    assert set(curves) == {OFF, "s1k1d2", DEEP}
    at_one = curves[DEEP][0]
    assert isinstance(at_one, Spot)
    assert at_one.low < at_one.mean < at_one.high < 1000


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4") as running:
        yield running


async def shown(pilot: Pilot[None], condition: Callable[[], bool], seconds: float = 15.0) -> None:
    """Wait until ``condition`` holds, or fail with what is on the screen."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s:\n{frame(pilot.app)}"
        await pilot.pause(0.05)


async def test_a_benchmark_is_started_watched_and_cancelled_from_the_screen(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    async with control_plane(settings_of(tmp_path, engine.url)) as running:
        runner = running.service.runner(LIVE_ENGINE)
        await until(lambda: runner.pilot.facts is not None and runner.status().tick is not None)
        status = runner.status()
        board = with_status(Board(LIVE_ENGINE), status)
        assert status.tick is not None
        board = apply(board, status.tick)
        app = Host()
        async with running.client() as client, app.run_test(size=(80, 30)) as pilot:
            screen = Bench(client, lambda: Scene(board=board, now_ms=status.now_utc_ms), "op1")
            await app.push_screen(screen)
            await shown(pilot, lambda: "No benchmark of this engine" in frame(app))
            await pilot.press("s")
            await pilot.pause()
            for field, value in (("load", "1,2"), ("budget", "30s"), ("tokens", "16+32")):
                app.screen.query_one(f"#{field}", Input).value = value
            app.screen.query_one("#act", Button).focus()
            await pilot.press("enter")
            await shown(pilot, lambda: screen.board.running is not None)
            await shown(pilot, lambda: "tok/s over concurrency" in frame(app))
            assert "running" in frame(app)
            assert engine.state()["claim"]["holder"] == "specdeck@test"
            await pilot.press("c")
            await pilot.pause()
            app.screen.query_one("#act", Button).focus()
            await pilot.press("enter")
            await shown(pilot, lambda: "cancelled by op1" in frame(app))
            assert screen.board.running is None
            assert await client.override(LIVE_ENGINE) is None


async def test_it_is_one_of_the_consoles_screens(engine: EmbeddedEngine, tmp_path: Path) -> None:
    async with control_plane(settings_of(tmp_path, engine.url)) as running:
        app = Console(running.client(), Options(engine_id=LIVE_ENGINE, author="op1"))
        async with app.run_test(size=(100, 30)) as pilot:
            await shown(pilot, lambda: app.board is not None and app.board.sample is not None)
            await pilot.press("7")
            await shown(pilot, lambda: "No benchmark of this engine" in frame(app))
            assert isinstance(app.screen, Bench)
            await pilot.press("escape")
            await shown(pilot, lambda: not isinstance(app.screen, Bench))


async def test_the_page_of_benchmarks_shows_the_present_screen() -> None:
    page = (FRAMES.parent / "benchmarks.md").read_text("utf-8")
    assert f"```text\n{await taken(BY_NAME['done-80x24'])}```" in page


async def test_a_benchmark_under_arrivals_is_told_by_rate_and_draws_no_curve() -> None:
    changes = {"arrivals": "poisson", "rate_s": 8.0, "tpot_s": 0.004, "ttft_s": 0.03}
    told = bench_story.status(
        points=tuple(one.model_copy(update=changes) for one in bench_story.points())
    )
    text = await taken(Picture("arrivals", benches=lambda: (told,)))
    assert "Poisson arrivals" in text
    assert "4.0 ms" in text
    assert "closed loop" in text
    assert "tok/s over concurrency" not in text
