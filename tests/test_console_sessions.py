"""The sessions screen: its list, and a recorded session of a live control plane replayed."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from console.app import Console, Options
from console.screens.replay import Replay
from console.screens.sessions import Sessions
from console.session_rows import SessionsBoard
from controlplane.sessions_messages import StartSession, StopSession
from tests.console_replay_pictures import listed, press, sessions, sessions_taken, until
from tests.controlplane_rig import ENGINE, control_plane, embedded_engine, settings_of
from tests.controlplane_rig import until as until_true
from tests.frames import FRAMES, frame


@pytest.mark.parametrize(
    ("size", "ascii_only"),
    [((60, 16), False), ((80, 24), False), ((120, 40), False), ((80, 24), True)],
)
async def test_the_list_reads_without_colour(
    size: tuple[int, int], ascii_only: bool, snapshot: SnapshotAssertion
) -> None:
    async with listed(sessions(), size=size, ascii_only=ascii_only) as (app, _, _):
        text = frame(app)
    assert text == snapshot
    assert text.isascii() or not ascii_only


async def test_the_page_shows_the_present_list() -> None:
    documented = (FRAMES / "sessions-80x24.txt").read_text("utf-8")
    assert documented == await sessions_taken(), "run python -m tests.frames"


async def test_without_a_session_it_says_how_one_begins() -> None:
    async with listed(()) as (app, _, _):
        assert "specdeck record start NAME --engine ID" in frame(app)


async def test_a_session_that_cannot_be_read_is_said_and_another_can_be_tried() -> None:
    async with listed(sessions()) as (app, screen, pilot):
        await pilot.press("enter")
        await until(pilot, lambda: bool(screen.board.trouble))
        assert screen.board.opening == ""
        assert app.screen is screen
        assert "no control plane answers" in frame(app)


def test_a_session_is_found_by_its_row() -> None:
    board = SessionsBoard(sessions())
    assert board.of("2") == sessions()[1]
    assert board.of("9") is None


async def test_a_session_that_is_recorded_now_is_replayed_beside_live(tmp_path: Path) -> None:
    with embedded_engine("--tiers", "off,s3k1d4") as engine:
        async with control_plane(settings_of(tmp_path, engine.url)) as running:
            runner = running.service.runner(ENGINE)
            await until_true(lambda: runner.status().tick is not None)
            async with running.client() as client:
                started = await client.start_session(
                    StartSession(engine_id=ENGINE, name="load test", author="op1")
                )
                await until_true(lambda: running.service.store.last_seq(ENGINE) > 12)
                await client.stop_session(started.id, StopSession(author="op1"))
            app = Console(running.client(), Options(engine_id=ENGINE, author="op1"))
            async with app.run_test(size=(100, 30)) as pilot:
                await until(pilot, lambda: app.board is not None and app.board.sample is not None)
                await pilot.press("8")
                await until(pilot, lambda: isinstance(app.screen, Sessions))
                await until(pilot, lambda: "load test" in frame(app))
                await pilot.press("enter")
                await until(pilot, lambda: isinstance(app.screen, Replay))
                screen = app.screen
                assert isinstance(screen, Replay)
                await until(pilot, lambda: screen.settled and screen.replay.strip is not None)
                await press(pilot, screen, "end")
                assert "REPLAY" in frame(app)
                assert "load test" in frame(app)
                await press(pilot, screen, "v")
                await until(pilot, lambda: app.screen is not screen)
                assert "identical" in frame(app)
                await press(pilot, screen, "escape")
                await press(pilot, screen, "q")
                await until(pilot, lambda: isinstance(app.screen, Sessions))
                await pilot.press("escape")
                await until(pilot, lambda: "LIVE" in frame(app))
