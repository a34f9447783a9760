"""The application: messages change state, the bell rings rarely, the selection stays."""

from __future__ import annotations

import pytest

from console.fleet_choice import Sort
from console.messages import LinkChanged, TickArrived
from console.scene import Link, LinkState
from console.screens.bench import Bench
from console.screens.details import Details
from console.screens.fleet import FleetScreen
from console.screens.live import Live
from console.screens.pin_tier import PinTier
from console.screens.sessions import Sessions
from console.screens.set_override import SetOverride
from console.theme import THEMES
from console.widgets.decision_log import DecisionLog
from console.widgets.fleet_list import FleetList
from console.widgets.scene_view import SceneView
from tests.console_fleet_story import looked
from tests.console_pictures import BY_NAME, Picture, ToldConsole, opened
from tests.console_story import DEEP, NARROW, alarm, decision, override, sample, tick
from tests.frames import frame
from tests.test_console_live import shown


@pytest.fixture
def bells(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every ring of the bell."""
    rung: list[str] = []
    monkeypatch.setattr(ToldConsole, "bell", lambda _: rung.append("ring"))
    return rung


async def test_the_bell_rings_once_per_alarm(bells: list[str]) -> None:
    async with opened(Picture("any")) as (app, pilot):
        assert bells == []
        fault = alarm("disagree", "ranks differ")
        for half in range(3):
            app.post_message(TickArrived(tick(sample(121 + half), alarms=(fault,))))
            await pilot.pause()
        assert bells == ["ring"]
        app.post_message(TickArrived(tick(sample(125))))
        await pilot.pause()
        assert bells == ["ring"]


async def test_the_bell_rings_once_when_an_override_is_about_to_end(bells: list[str]) -> None:
    async with opened(BY_NAME["override-in-force"]) as (app, pilot):
        for second, left in ((121, 31.0), (122, 29.9), (123, 28.9)):
            told = tick(sample(second), override=override(), override_left_s=left)
            app.clock.at_ms = told.observation.at_utc_ms  # type: ignore[attr-defined]
            app.post_message(TickArrived(told))
            await pilot.pause()
        assert bells == ["ring"]


async def test_a_flood_of_ticks_is_one_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(Picture("any")) as (app, pilot):
        drawn: list[int] = []
        redraw = ToldConsole.redraw
        monkeypatch.setattr(ToldConsole, "redraw", lambda self: (drawn.append(1), redraw(self)))
        for half in range(50):
            app.post_message(TickArrived(tick(sample(121 + half / 2))))
        await pilot.pause()
        assert app.board is not None
        assert app.board.tick is not None
        assert app.board.tick.observation.seq == 1000 + 242 + 49
        assert len(drawn) <= 3


async def test_only_rows_that_changed_are_painted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(Picture("any")) as (app, pilot):
        await pilot.pause()
        painted: list[tuple[str | None, int]] = []
        monkeypatch.setattr(
            SceneView, "refresh_row", lambda self, row: painted.append((self.id, row))
        )
        app.redraw()
        assert painted == []
        app.clock.at_ms += 1000  # type: ignore[attr-defined]
        app.redraw()
        assert painted == [("header", 0), ("card", 1), ("override", 1)]


async def test_the_selected_decision_stays_selected_while_others_come_in() -> None:
    async with opened(Picture("any", keys=("down", "down"))) as (app, pilot):
        marked = [row for row in frame(app).splitlines() if row.startswith("▸")]
        assert len(marked) == 1
        assert "12:03:45" in marked[0]
        new = decision(121, DEEP, NARROW)
        app.post_message(TickArrived(tick(sample(121), decisions=(new,))))
        await pilot.pause()
        assert [row for row in frame(app).splitlines() if row.startswith("▸")] == marked
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, Details)
        assert "concurrency 15 ≤ 16 req held 5.0s" in frame(app)
        await pilot.press("escape", "escape")
        await pilot.pause()
        assert not [row for row in frame(app).splitlines() if row.startswith("▸")]
        assert "12:04:32" in frame(app)


async def test_a_click_selects_and_a_second_one_explains() -> None:
    async with opened(Picture("any")) as (app, pilot):
        await pilot.click(DecisionLog, offset=(10, 3))
        await pilot.pause()
        assert "▸12:03:09" in frame(app)
        await pilot.click(DecisionLog, offset=(10, 3))
        await pilot.pause()
        assert isinstance(app.screen, Details)


async def test_a_click_on_a_key_is_the_key() -> None:
    async with opened(Picture("any")) as (app, pilot):
        await pilot.click("#keys", offset=(3, 0))
        await pilot.pause()
        assert isinstance(app.screen, SetOverride)


async def test_a_dimmed_key_says_why_and_does_nothing() -> None:
    async with opened(Picture("any")) as (app, pilot):
        await pilot.press("x")
        await pilot.pause()
        assert isinstance(app.screen, Live)
        assert "no override is in force" in frame(app)
        app.post_message(LinkChanged(Link(LinkState.LOST, "gone", None)))
        await pilot.pause()
        await pilot.press("m")
        await pilot.pause()
        assert isinstance(app.screen, Live)
        assert "nothing can be sent" in frame(app)


async def test_the_end_that_a_dialog_promises_moves_with_the_time() -> None:
    async with opened(Picture("any", keys=("m",))) as (app, pilot):
        assert "until 12:14:31 UTC" in frame(app)
        app.clock.at_ms += 60_000  # type: ignore[attr-defined]
        await pilot.pause(1.2)
        assert "until 12:15:31 UTC" in frame(app)


async def test_text_can_be_selected_with_the_mouse() -> None:
    async with opened(Picture("any")) as (app, pilot):
        await pilot.mouse_down("#card", offset=(2, 1))
        await pilot.hover("#card", offset=(13, 1))
        await pilot.mouse_up("#card", offset=(13, 1))
        await pilot.pause()
        assert (app.screen.get_selected_text() or "").startswith("▲ ON s3k1d4")


@pytest.mark.parametrize("theme", [theme.name for theme in THEMES])
async def test_every_theme_shows_the_same_words(theme: str) -> None:
    async with opened(Picture("any")) as (app, pilot):
        before = frame(app)
        app.theme = theme
        await pilot.pause()
        assert frame(app) == before


async def test_growing_and_shrinking_the_terminal_shows_and_hides_parts() -> None:
    async with opened(Picture("any")) as (app, pilot):
        await pilot.resize_terminal(120, 40)
        await pilot.pause()
        assert "─ KV slots ─" in frame(app)
        await pilot.resize_terminal(50, 12)
        await pilot.pause()
        assert "60x16 shows more" in frame(app)
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert "─ decisions ─" in frame(app)
        assert "─ KV slots ─" not in frame(app)


async def test_the_digits_lead_away_from_screens_that_are_laid_over_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for screen in (Bench, Sessions):
        monkeypatch.setattr(screen, "start_feed", lambda _: None)
    async with opened(Picture("any", looked=looked)) as (app, pilot):
        for key, kind in (("7", Bench), ("7", Bench), ("8", Sessions), ("7", Bench)):
            await pilot.press(key)
            await pilot.pause()
            assert isinstance(app.screen, kind)
            assert len(app.screen_stack) == 2
        await pilot.press("4")
        await pilot.pause()
        assert len(app.screen_stack) == 1
        assert "[4 Tiers]" in frame(app)
        await pilot.press("7", "escape", "2")
        await pilot.pause()
        assert "[2 Live]" in frame(app)
        assert len(app.screen_stack) == 1


async def test_tabs_titles_and_rows_follow_the_mouse() -> None:
    async with opened(Picture("any", looked=looked)) as (app, pilot):
        await pilot.click("#tabs", offset=(3, 0))
        await shown(pilot, lambda: isinstance(app.screen, FleetScreen) and app.screen.ready)
        assert isinstance(app.screen, FleetScreen)
        await shown(pilot, lambda: "7 engines" in frame(app))
        rows = app.screen.list
        await pilot.click(FleetList, offset=(3, 1))
        assert rows.choice.sort is Sort.NAME
        await pilot.click(FleetList, offset=(3, 4))
        chosen = rows.cursor
        assert chosen is not None
        await pilot.click(FleetList, offset=(3, 4))
        await shown(pilot, lambda: isinstance(app.screen, Live))
        assert app.board is not None
        assert app.board.engine_id == chosen


async def test_the_palette_opens_what_its_words_say() -> None:
    async with opened(Picture("any", looked=looked)) as (app, pilot):
        await pilot.press("ctrl+p", *"pin a tier")
        await shown(pilot, lambda: "Pin a tier for evaluation" in frame(app))
        await pilot.press("down", "enter")
        await shown(pilot, lambda: isinstance(app.screen, PinTier))
