"""The console against a running control plane and an embedded engine."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Button, Input, Static

from console.app import Console, Options
from console.scene import LinkState
from console.screens.live import Live
from console.screens.set_override import SetOverride
from console.widgets.choice import Choice
from controlplane.client import ControlPlaneClient
from engine_patch.contract_words import Mode
from engine_patch.quiet_port import quiet_port
from store.records import Guards
from tests.controlplane_rig import (
    ENGINE,
    EmbeddedEngine,
    Running,
    control_plane,
    embedded_engine,
    settings_of,
)
from tests.frames import frame

TOKEN = "a-token-of-the-tests-that-is-long-enough-0123"


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    """One engine for the whole file; each test heals what it broke."""
    with embedded_engine("--tp", "2", "--tiers", "off,s1k1d2,s3k1d4") as running:
        yield running


@asynccontextmanager
async def console(
    running: Running, token: str | None = None, **options: Any
) -> AsyncIterator[tuple[Console, Pilot[None]]]:
    """The console on ``running``, once the engine runs its policy's tier again."""
    chosen = Options(**{"engine_id": ENGINE, "author": "op1", "zone": UTC} | options)
    app = Console(ControlPlaneClient(running.url, token), chosen)
    async with app.run_test(size=(80, 24)) as pilot:
        await shown(pilot, lambda: app.link.state is LinkState.LIVE)
        await shown(pilot, lambda: confirmed(app) == "s3k1d4")
        yield app, pilot


def confirmed(app: Console) -> str | None:
    """The tier of the newest tick."""
    tick = None if app.board is None else app.board.tick
    return None if tick is None else tick.confirmed


async def shown(pilot: Pilot[None], condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until ``condition`` holds, or fail with what is on the screen."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s:\n{frame(pilot.app)}"
        await pilot.pause(0.02)


async def reads(pilot: Pilot[None], *words: str, seconds: float = 30.0) -> None:
    """Wait until all ``words`` are on the screen."""
    await shown(pilot, lambda: all(word in frame(pilot.app) for word in words), seconds)


async def fill_override(pilot: Pilot[None], **fields: str) -> None:
    """Open the dialog and fill it in."""
    await pilot.press("m")
    await shown(pilot, lambda: isinstance(pilot.app.screen, SetOverride))
    for name, value in fields.items():
        field = pilot.app.screen.query_one(f"#{name}")
        if isinstance(field, Choice):
            field.choose(value)
        elif isinstance(field, Input):
            field.value = value
    await pilot.pause()


async def act(pilot: Pilot[None]) -> None:
    """Press the button that acts, with the keyboard."""
    button = pilot.app.screen.query_one("#act", Button)
    # Textual ignores a second press while the first one is still being shown.
    await shown(pilot, lambda: not button.has_class("-active"))
    button.focus()
    await pilot.press("enter")


async def test_an_override_set_in_the_dialog_reaches_the_engine_and_is_released(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    async with (
        control_plane(settings_of(tmp_path, engine.url)) as running,
        console(running) as (app, pilot),
    ):
        await reads(pilot, "ON s3k1d4", "engine confirms s3k1d4 on 2/2 ranks", "SIMULATED h200-8b")
        await fill_override(pilot, mode="off", length="5m", reason="load test", guards="suspend")
        assert isinstance(app.focused, Button)
        assert app.focused.id == "cancel"
        sent = str(app.screen.query_one("#sends", Static).render())
        assert f"PUT /v1/engines/{ENGINE}/override" in sent
        assert '"guards": "suspend"' in sent
        await act(pilot)
        await reads(pilot, "OVERRIDE", "○ OFF", "engine confirms off on 2/2 ranks")
        await reads(pilot, 'off · "load test" by op1 · until')
        assert engine.state()["desired_tier"] == "off"
        async with running.client() as client:
            held = await client.override(ENGINE)
        assert held is not None
        assert (held.mode, held.author, held.granted_s) == (Mode.OFF, "op1", 300.0)
        assert held.guards is Guards.SUSPEND

        await pilot.press("e")
        await pilot.pause()
        app.screen.query_one("#extra", Input).value = "10m"
        await act(pilot)
        await shown(
            pilot, lambda: (app.override_in_force or held).granted_s == pytest.approx(900.0)
        )
        await pilot.press("x")
        await pilot.pause()
        await act(pilot)
        await reads(pilot, "▲ ON s3k1d4", "none · m sets one")
        assert engine.state()["desired_tier"] == "s3k1d4"


async def test_cancel_and_escape_send_nothing(engine: EmbeddedEngine, tmp_path: Path) -> None:
    async with (
        control_plane(settings_of(tmp_path, engine.url)) as running,
        console(running) as (app, pilot),
    ):
        await fill_override(pilot, mode="off", reason="by mistake")
        await pilot.press("enter")
        await shown(pilot, lambda: isinstance(app.screen, Live))
        await fill_override(pilot, mode="off", reason="by mistake")
        await pilot.press("escape")
        await shown(pilot, lambda: isinstance(app.screen, Live))
        async with running.client() as client:
            assert await client.override(ENGINE) is None
            assert all(entry.action != "override.set" for entry in await client.audit())


async def test_an_incomplete_override_cannot_be_sent(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    async with (
        control_plane(settings_of(tmp_path, engine.url)) as running,
        console(running) as (app, pilot),
    ):
        await fill_override(pilot, mode="off", reason="  ")
        await act(pilot)
        await reads(pilot, "! write a reason")
        await fill_field(pilot, "reason", "why not")
        await fill_field(pilot, "length", "soon")
        await act(pilot)
        await reads(pilot, "is no length of time")
        assert isinstance(app.screen, SetOverride)
        async with running.client() as client:
            assert await client.override(ENGINE) is None


async def fill_field(pilot: Pilot[None], name: str, value: str) -> None:
    """Write into one field of the open dialog."""
    pilot.app.screen.query_one(f"#{name}", Input).value = value
    await pilot.pause()


async def test_a_refusal_stays_on_the_dialog_with_the_servers_reason(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, engine.url, override_max_s=60)
    async with control_plane(settings) as running, console(running) as (app, pilot):
        await fill_override(pilot, mode="off", length="2h", reason="too long")
        assert "longer than this control plane allows (1m)" in frame(app)
        await act(pilot)
        await reads(pilot, "! refused:", "60")
        assert isinstance(app.screen, SetOverride)
        await fill_field(pilot, "length", "30s")
        await act(pilot)
        await reads(pilot, "OVERRIDE", "○ OFF")


async def test_asked_and_confirmed_are_told_apart_while_a_rank_refuses(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    async with (
        control_plane(settings_of(tmp_path, engine.url)) as running,
        console(running) as (app, pilot),
    ):
        engine.fault(lie=True)
        try:
            await fill_override(pilot, mode="off", reason="load test")
            await act(pilot)
            await reads(pilot, "asked off, engine still s3k1d4")
        finally:
            engine.fault(clear=True)
        assert app.board is not None


async def test_an_engine_that_hangs_is_stale_in_words_and_comes_back(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, engine.url, engine={"poll_s": 0.2, "timeout_s": 0.5})
    async with control_plane(settings) as running, console(running) as (app, pilot):
        await reads(pilot, "LIVE ●", "age 0.")
        engine.fault(hang=2.5)
        await reads(pilot, "STALE !", "last known ▲ ON s3k1d4", "not confirmed since")
        await reads(pilot, "gap ", "so far")
        await reads(pilot, "LIVE ●", "engine confirms s3k1d4 on 2/2 ranks")
        assert "so far" not in frame(app)


async def test_a_lost_control_plane_is_said_and_the_stream_goes_on_without_a_loss(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, engine.url, listen={"port": quiet_port()})
    async with control_plane(settings) as first, console(first) as (app, pilot):
        await first.stop()
        await reads(pilot, "LOST !", "control plane lost, retry in")
        await reads(pilot, "STALE")
        assert app.refusal("override") == (
            "no connection to the control plane: nothing can be sent"
        )
        assert app.board is not None
        assert app.board.tick is not None
        last = app.board.tick.observation.seq
        async with control_plane(settings) as second:
            assert second.url == first.url
            await reads(pilot, "LIVE ●", "engine confirms s3k1d4", seconds=30)
            board = app.board
            assert board.tick is not None
            newest = board.tick.observation.seq
            assert newest > last
            async with second.client() as client:
                stored = [t.observation.seq for t in await client.ticks(ENGINE, 500)]
            assert len(board.history) == len([seq for seq in stored if seq <= newest])


async def test_a_control_plane_with_another_store_is_followed_from_its_start(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, engine.url, listen={"port": quiet_port()})
    async with control_plane(settings) as first, console(first) as (app, pilot):
        await shown(pilot, lambda: app.board is not None and len(app.board.history) > 15)
        await first.stop()
        await reads(pilot, "LOST !")
        assert app.board is not None
        before = app.board.history[-1].at_ms
        again = settings.model_copy(update={"database": str(tmp_path / "another.sqlite3")})
        async with control_plane(again):
            await reads(pilot, "LIVE ●", "engine confirms s3k1d4", seconds=30)
            assert app.board.history[0].at_ms > before


async def test_readonly_refuses_every_change_and_says_why(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    async with (
        control_plane(settings_of(tmp_path, engine.url)) as running,
        console(running, readonly=True) as (app, pilot),
    ):
        await reads(pilot, "none · read-only: started with --readonly")
        for key in "mxea":
            await pilot.press(key)
            await pilot.pause()
            assert isinstance(app.screen, Live)
        await reads(pilot, "read-only: started with --readonly")
        offered = [command.title for command in app.get_system_commands(app.screen)]
        assert not [title for title in offered if "verride" in title or "Automation" in title]


async def test_a_token_that_may_only_look_is_read_only(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    token = {"name": "eyes", "role": "read", "token_file": str(tmp_path / "token")}
    settings = settings_of(tmp_path, engine.url, tokens=[token])
    async with control_plane(settings) as running, console(running, TOKEN) as (app, pilot):
        await reads(pilot, "read-only: this token may look, not operate")
        await pilot.press("m")
        await pilot.pause()
        assert isinstance(app.screen, Live)
        assert TOKEN not in frame(app)


async def test_the_screen_can_be_held_while_the_loop_goes_on(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    async with (
        control_plane(settings_of(tmp_path, engine.url)) as running,
        console(running) as (app, pilot),
    ):
        await pilot.press("p")
        await reads(pilot, "FROZEN", "frozen at")
        held = frame(app).splitlines()[4:]
        assert app.board is not None
        assert app.board.tick is not None
        before = app.board.tick.observation.seq
        await shown(
            pilot,
            lambda: (
                app.board is not None
                and app.board.tick is not None
                and app.board.tick.observation.seq > before + 5
            ),
        )
        app.redraw()
        await pilot.pause()
        assert frame(app).splitlines()[4:] == held
        await pilot.press("p")
        await reads(pilot, "LIVE ●")


async def test_the_next_engine_is_one_key_away(engine: EmbeddedEngine, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, engine.url)
    other = settings.engines[0].model_copy(update={"id": "e2", "holder": "specdeck@other"})
    both = settings.model_copy(update={"engines": (settings.engines[0], other)})
    async with control_plane(both) as running, console(running) as (app, pilot):
        await reads(pilot, "e1 [1/2]")
        await pilot.press("right_square_bracket")
        await reads(pilot, "e2 [2/2]", "ON s3k1d4")
        await pilot.press("right_square_bracket")
        await reads(pilot, "e1 [1/2]", "ON s3k1d4")
        assert app.board is not None
        assert app.board.engine_id == ENGINE


async def test_automation_is_paused_from_the_palette(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    async with (
        control_plane(settings_of(tmp_path, engine.url)) as running,
        console(running) as (app, pilot),
    ):
        await pilot.press("ctrl+p", *"paused")
        await pilot.pause(0.3)
        await pilot.press("enter")
        await reads(pilot, "automation rests")
        await act(pilot)
        await reads(pilot, "PAUSED")
        assert isinstance(app.screen, Live)
