"""Actions of the frame against a running control plane and an embedded engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Button, Input, Static

from console.app import Console, Options
from console.scene import LinkState
from console.screens.export import Export
from console.screens.fleet import FleetScreen
from console.screens.live import Live
from console.screens.pin_tier import PinTier
from console.screens.roll_back import RollBack
from console.screens.set_stance import SetStance
from console.screens.set_stances import SetStances
from console.screens.set_thresholds import SetThresholds
from console.screens.tiers import Tiers
from console.widgets.choice import Choice
from controlplane.client import ControlPlaneClient
from controlplane.messages import OverrideRequest, PolicyRequest
from engine_patch.contract_words import Mode
from engine_patch.quiet_port import quiet_port
from engine_patch.tier import Boundary
from store.policies import GoodputPolicy, HysteresisPolicy, Stance
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
from tests.test_console_live import TOKEN, act, reads, shown

POLICY = {
    "kind": "hysteresis",
    "tiers": ["s3k1d4", "s1k1d2", "off"],
    "boundaries": [{"up_at": 24, "down_at": 16}, {"up_at": 40, "down_at": 32}],
}


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    """One engine for the whole file; each test heals what it broke."""
    with embedded_engine("--tp", "2", "--tiers", "off,s1k1d2,s3k1d4") as running:
        yield running


@asynccontextmanager
async def console(
    running: Running, token: str | None = None, size: tuple[int, int] = (100, 40), **options: Any
) -> AsyncIterator[tuple[Console, Pilot[None]]]:
    """The console on ``running`` once it shows a tick."""
    chosen = Options(**{"engine_id": ENGINE, "author": "op1", "zone": UTC} | options)
    app = Console(ControlPlaneClient(running.url, token), chosen)
    async with app.run_test(size=size, notifications=True) as pilot:
        await shown(pilot, lambda: app.link.state is LinkState.LIVE)
        await shown(pilot, lambda: app.board is not None and app.board.tick is not None)
        yield app, pilot


async def test_thresholds_are_edited_followed_until_they_run_and_rolled_back(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, engine.url, engine={"policy": POLICY})
    async with (
        control_plane(settings) as running,
        console(running, place="tiers") as (app, pilot),
        running.client() as client,
    ):
        await reads(pilot, "cost of a decode step", "simulation table", "thresholds · hysteresis")
        await pilot.press("t")
        await shown(pilot, lambda: isinstance(app.screen, SetThresholds))
        assert isinstance(app.focused, Button)
        assert app.focused.id == "cancel"
        app.screen.query_one("#up-0", Input).value = "20"
        app.screen.query_one("#reason", Input).value = "tighter"
        await pilot.pause()
        assert "s1k1d2 at 24 → 20 req" in str(app.screen.query_one("#effect", Static).render())
        sent = str(app.screen.query_one("#sends", Static).render())
        assert f"PUT /v1/engines/{ENGINE}/policy" in sent
        assert '"up_at": 20' in sent
        await act(pilot)
        await shown(pilot, lambda: isinstance(app.screen, Tiers))
        await reads(pilot, "confirmed after", "policy version 2", "v2 by op1", "↑20 for")
        assert app.asks == ()
        newest = (await client.policies(ENGINE))[0]
        assert isinstance(newest.policy, HysteresisPolicy)
        assert newest.policy.boundaries[0] == Boundary(up_at=20, down_at=16)
        assert (newest.author, newest.reason) == ("op1", "tighter")

        await reads(pilot, '"tighter" s1k1d2 at 24 → 20 req')
        await pilot.press("b")
        await shown(pilot, lambda: isinstance(app.screen, RollBack))
        await reads(pilot, "version 3 with the policy of version 1", "s1k1d2 at 20 → 24 req")
        sent = str(app.screen.query_one("#sends", Static).render())
        assert f'POST /v1/engines/{ENGINE}/policy/rollback {{"version": 1' in sent
        assert sent.endswith('If-Match: "policy-2"')
        await act(pilot)
        await reads(pilot, "back to version 1", "↑24 for")
        newest = (await client.policies(ENGINE))[0]
        assert (newest.version, newest.reason) == (3, "back to version 1")


async def test_thresholds_that_somebody_else_changed_meanwhile_are_refused(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, engine.url, engine={"policy": POLICY})
    async with (
        control_plane(settings) as running,
        console(running, place="tiers") as (app, pilot),
        running.client() as client,
    ):
        await reads(pilot, "thresholds · hysteresis")
        await pilot.press("t")
        await shown(pilot, lambda: isinstance(app.screen, SetThresholds))
        app.screen.query_one("#up-0", Input).value = "x"
        await act(pilot)
        await reads(pilot, "write a whole number")
        app.screen.query_one("#up-0", Input).value = "45"
        await reads(pilot, "boundaries must rise")
        app.screen.query_one("#up-0", Input).value = "22"
        await pilot.pause()
        policy = HysteresisPolicy.model_validate(POLICY | {"min_dwell_s": 9.0})
        await client.set_policy(ENGINE, PolicyRequest(policy=policy, author="op2"))
        await act(pilot)
        await reads(pilot, "! refused:", "op2")
        assert isinstance(app.screen, SetThresholds)
        assert app.asks == ()


async def test_the_limits_of_a_goodput_policy_are_shown_edited_and_confirmed(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    goodput = {"kind": "goodput", "tiers": ["s3k1d4", "s1k1d2", "off"], "tpot_ms": 50.0}
    settings = settings_of(tmp_path, engine.url, engine={"policy": goodput})
    async with (
        control_plane(settings) as running,
        console(running, place="tiers") as (app, pilot),
        running.client() as client,
    ):
        await reads(pilot, "thresholds · goodput", "50 ms per token at most", "5 % ahead for 3.0s")
        await pilot.press("t")
        await shown(pilot, lambda: isinstance(app.screen, SetThresholds))
        app.screen.query_one("#tpot_ms", Input).value = "35"
        await reads(pilot, "tpot ms 50.0 → 35.0", "version 2 replaces 1")
        await act(pilot)
        await reads(pilot, "confirmed after", "policy version 2", "35 ms per token at most")
        newest = (await client.policies(ENGINE))[0]
        assert isinstance(newest.policy, GoodputPolicy)
        assert newest.policy.tpot_ms == 35.0


async def test_an_override_that_somebody_else_set_meanwhile_is_not_replaced(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    async with (
        control_plane(settings_of(tmp_path, engine.url)) as running,
        console(running, place="tiers") as (app, pilot),
        running.client() as client,
    ):
        await reads(pilot, "ON s3k1d4")
        await pilot.press("i")
        await shown(pilot, lambda: isinstance(app.screen, PinTier))
        await reads(pilot, 'If-Match: "override-none"')
        theirs = OverrideRequest(mode=Mode.OFF, length_s=600, author="op2", reason="theirs")
        await client.set_override(ENGINE, theirs)
        await act(pilot)
        await reads(pilot, "! refused:", "op2")
        held = await client.override(ENGINE)
        assert held is not None
        assert held.reason == "theirs"


async def test_the_stance_that_runs_already_is_not_sent_again(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    async with (
        control_plane(settings_of(tmp_path, engine.url)) as running,
        console(running) as (app, pilot),
    ):
        await reads(pilot, "ON s3k1d4")
        await pilot.press("a")
        await shown(pilot, lambda: isinstance(app.screen, SetStance))
        await reads(pilot, "already: choose another stance")
        await act(pilot)
        assert isinstance(app.screen, SetStance)
        app.screen.query_one("#stance", Choice).choose("paused")
        await reads(pilot, f"PUT /v1/engines/{ENGINE}/stance")
        await act(pilot)
        await reads(pilot, "confirmed after", "automation paused")


async def test_one_tier_is_pinned_with_guards_suspended(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    async with (
        control_plane(settings_of(tmp_path, engine.url)) as running,
        console(running, place="tiers") as (app, pilot),
        running.client() as client,
    ):
        await reads(pilot, "ON s3k1d4")
        await pilot.press("i")
        await shown(pilot, lambda: isinstance(app.screen, PinTier))
        app.screen.query_one("#tier", Choice).choose("s1k1d2")
        await pilot.pause()
        assert "guards are suspended" in frame(app)
        await act(pilot)
        await reads(pilot, "confirmed after", "override on s1k1d2 for 10m")
        held = await client.override(ENGINE)
        assert held is not None
        assert (held.tier, held.guards, held.reason) == ("s1k1d2", Guards.SUSPEND, "evaluation")
        assert engine.state()["desired_tier"] == "s1k1d2"


async def test_what_is_not_confirmed_yet_is_said_on_every_screen(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    async with (
        control_plane(settings_of(tmp_path, engine.url)) as running,
        console(running, place="tiers") as (app, pilot),
    ):
        await reads(pilot, "ON s3k1d4")
        engine.fault(lie=True)
        try:
            await pilot.press("i")
            await shown(pilot, lambda: isinstance(app.screen, PinTier))
            app.screen.query_one("#tier", Choice).choose("off")
            await act(pilot)
            await reads(pilot, "not confirmed yet: override off for 10m", "the engine runs s3k1d4")
            await pilot.press("5")
            await reads(pilot, "not confirmed yet: override off for 10m")
            await pilot.press("1")
            await reads(pilot, "not confirmed yet: override off for 10m")
        finally:
            engine.fault(clear=True)
        await pilot.press("2")
        await reads(pilot, "confirmed after", seconds=30)
        assert app.asks == ()


async def test_automation_of_all_engines_is_paused_and_what_is_refused_is_named(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, engine.url)
    second = settings.engines[0].model_copy(update={"id": "e2", "holder": "specdeck@other"})
    gone = settings.engines[0].model_copy(
        update={"id": "e3", "url": "http://127.0.0.1:9", "timeout_s": 0.2}
    )
    three = settings.model_copy(update={"engines": (settings.engines[0], second, gone)})
    async with (
        control_plane(three) as running,
        console(running, place="fleet") as (app, pilot),
        running.client() as client,
    ):
        await reads(pilot, "3 engines", "e2", "e3")
        await pilot.press("A")
        await shown(pilot, lambda: isinstance(app.screen, SetStances))
        await reads(pilot, "for 3 engines: e1, e2, e3", 'POST /v1/pause {"engines": []')
        await act(pilot)
        await reads(pilot, "! refused: 1 of 3 engines refused, 2 took it; e3:")
        assert isinstance(app.screen, SetStances)
        await pilot.press("escape")
        await reads(pilot, "PAUSED")
        for name in (ENGINE, "e2"):
            told = await client.engine(name)
            assert told.policy is not None
            assert told.policy.stance is Stance.PAUSED
        await pilot.press("A")
        await shown(pilot, lambda: isinstance(app.screen, SetStances))
        app.screen.query_one("#stance", Choice).choose("resume")
        await reads(pilot, "POST /v1/resume", "before it was paused")
        await act(pilot)
        await reads(pilot, "! refused: 1 of 3 engines refused")
        await pilot.press("escape")
        for name in (ENGINE, "e2"):
            told = await client.engine(name)
            assert told.policy is not None
            assert told.policy.stance is not Stance.PAUSED
        # Only what the filter lists is meant.
        await pilot.press("slash", *"e2", "enter", "A")
        await shown(pilot, lambda: isinstance(app.screen, SetStances))
        await reads(pilot, "for 1 engine: e2", 'POST /v1/pause {"engines": ["e2"]')
        app.screen.query_one("#stance", Choice).choose("shadow")
        await reads(pilot, "PUT /v1/engines/e2/stance")
        await act(pilot)
        await shown(pilot, lambda: isinstance(app.screen, FleetScreen))
        told = await client.engine("e2")
        assert told.policy is not None
        assert told.policy.stance is Stance.SHADOW
        told = await client.engine(ENGINE)
        assert told.policy is not None
        assert told.policy.stance is not Stance.SHADOW


async def test_enter_in_the_fleet_opens_that_engine_live(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, engine.url)
    second = settings.engines[0].model_copy(update={"id": "e2", "holder": "specdeck@other"})
    both = settings.model_copy(update={"engines": (settings.engines[0], second)})
    async with control_plane(both) as running, console(running, place="fleet") as (app, pilot):
        await reads(pilot, "2 engines")
        await pilot.press("down", "enter")
        await shown(pilot, lambda: isinstance(app.screen, Live))
        await reads(pilot, "e2 [2/2]", "ON s3k1d4")
        await pilot.press("1")
        await reads(pilot, "2 engines")


async def test_a_decision_is_explained_with_its_evidence_and_copied(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    async with (
        control_plane(settings_of(tmp_path, engine.url)) as running,
        console(running, place="tiers") as (app, pilot),
    ):
        await reads(pilot, "ON s3k1d4")
        await pilot.press("i")
        await shown(pilot, lambda: isinstance(app.screen, PinTier))
        app.screen.query_one("#tier", Choice).choose("off")
        await act(pilot)
        await reads(pilot, "confirmed after")
        await pilot.press("3")
        await reads(pilot, "evidence  concurrency", "change if op1 asks for something else")
        await pilot.press("y")
        await shown(pilot, lambda: "evidence: concurrency" in app.clipboard)
        assert app.clipboard.startswith(f"engine: {ENGINE}\n")
        assert "evaluation" in app.clipboard


async def test_a_link_opens_the_same_moment_held(engine: EmbeddedEngine, tmp_path: Path) -> None:
    async with control_plane(settings_of(tmp_path, engine.url)) as running:
        async with console(running) as (app, pilot):
            await shown(pilot, lambda: app.board is not None and len(app.board.history) > 5)
            await pilot.press("p", "L")
            await shown(pilot, lambda: "#engine=" in app.clipboard)
            link = app.clipboard
            held = app.shown().board.tick
        assert held is not None
        assert f"seq={held.observation.seq}" in link
        assert "screen=live" in link
        await asyncio.sleep(0.5)
        async with console(running, moment=held.observation.seq) as (app, pilot):
            await reads(pilot, "FROZEN", f"observation {held.observation.seq} of", "p goes on")
            told = app.shown().board.tick
            assert told is not None
            assert told.observation == held.observation
            await pilot.press("p")
            await reads(pilot, "LIVE ●")
        async with console(running, moment=10**9) as (app, pilot):
            await reads(pilot, "is not stored any more")


async def test_the_window_is_exported_once_and_nothing_is_overwritten(
    engine: EmbeddedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a long name would break the words that are looked for
    async with (
        control_plane(settings_of(tmp_path, engine.url)) as running,
        console(running) as (app, pilot),
    ):
        await shown(pilot, lambda: app.board is not None and len(app.board.history) > 5)
        await pilot.press("E")
        await shown(pilot, lambda: isinstance(app.screen, Export))
        app.screen.query_one("#file", Input).value = "window"
        await pilot.pause()
        await act(pilot)
        await reads(pilot, "written:")
        lines = (tmp_path / "window.csv").read_text().splitlines()
        assert lines[0].startswith("at_utc,engine,observation,gap,concurrency_req")
        assert len(lines) > 5
        await pilot.press("E")
        await shown(pilot, lambda: isinstance(app.screen, Export))
        app.screen.query_one("#file", Input).value = "window"
        await pilot.pause()
        await act(pilot)
        await reads(pilot, "exists: write another name")
        app.screen.query_one("#form", Choice).choose("jsonl")
        await pilot.pause()
        await act(pilot)
        await reads(pilot, "written:")
        told = [json.loads(text) for text in (tmp_path / "window.jsonl").read_text().splitlines()]
        assert told[0]["engine_id"] == ENGINE


async def test_readonly_and_a_reading_token_refuse_every_new_action(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    token = {"name": "eyes", "role": "read", "token_file": str(tmp_path / "token")}
    settings = settings_of(tmp_path, engine.url, tokens=[token], engine={"policy": POLICY})
    async with control_plane(settings) as running:
        for options in ({"readonly": True}, {}):
            async with console(running, TOKEN, **options) as (app, pilot):
                await reads(pilot, "read-only:")
                for place, keys in (("4", "tbi"), ("1", "A")):
                    await pilot.press(place)
                    for key in keys:
                        before = app.screen
                        await pilot.press(key)
                        await pilot.pause()
                        assert app.screen is before, key
                titles = {one.title for one in app.get_system_commands(app.screen)}
                assert not [one for one in titles if "Automation" in one or "Threshold" in one]
        # The server would refuse it too: the screen is not what keeps the token from acting.
        async with ControlPlaneClient(running.url, TOKEN) as client:
            policy = HysteresisPolicy.model_validate(POLICY)
            with pytest.raises(Exception, match="role read"):
                await client.set_policy(ENGINE, PolicyRequest(policy=policy, author="eyes"))


async def test_a_lost_control_plane_is_said_on_every_screen_and_comes_back(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, engine.url, listen={"port": quiet_port()})
    async with control_plane(settings) as first, console(first, place="fleet") as (app, pilot):
        await reads(pilot, "1 engine", "LIVE ●")
        await first.stop()
        await reads(pilot, "LOST !", "control plane lost:")
        await reads(pilot, "STALE", seconds=30)
        assert app.refusal("stances")
        await pilot.press("6")
        await reads(pilot, "not read:")
        async with control_plane(settings):
            await reads(pilot, "LIVE ●", "service.start", seconds=30)
            await pilot.press("1")
            await reads(pilot, "LIVE ●", "s3k1d4", seconds=30)


async def test_a_request_without_an_answer_says_so_and_is_sent_again_after_the_return(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, engine.url, listen={"port": quiet_port()})
    async with control_plane(settings) as first, console(first, place="tiers") as (app, pilot):
        await reads(pilot, "ON s3k1d4")
        await pilot.press("i")
        await shown(pilot, lambda: isinstance(app.screen, PinTier))
        app.screen.query_one("#tier", Choice).choose("off")
        await first.stop()
        await shown(pilot, lambda: app.link.state is LinkState.LOST)
        await act(pilot)
        await reads(pilot, "! no answer:", "look before you send it again")
        assert app.asks == ()
        async with control_plane(settings) as second, second.client() as client:
            await shown(pilot, lambda: app.link.state is LinkState.LIVE)
            assert await client.override(ENGINE) is None
            await act(pilot)
            await reads(pilot, "confirmed after", "override off for 10m")
            held = await client.override(ENGINE)
            assert held is not None
            assert held.mode is Mode.OFF
