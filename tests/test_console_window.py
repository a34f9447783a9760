"""A change of the terminal's size that was missed is made up for."""

from __future__ import annotations

import pytest
from textual.geometry import Size
from textual.timer import Timer

from console.window import refit, terminal_size
from tests.console_pictures import BY_NAME, opened


async def test_a_change_that_nobody_told_is_noticed() -> None:
    async with opened(BY_NAME["live-80x24"]) as (app, pilot):
        assert not refit(app, Size(120, 40))
        await pilot.pause(0.1)
        assert app.size == app.screen.outer_size == Size(120, 40)
        assert refit(app, Size(120, 40))


async def test_a_change_whose_timer_never_runs_reaches_the_screen() -> None:
    async with opened(BY_NAME["live-80x24"]) as (app, pilot):
        # What is left when the process was suspended between two lines of Textual's timer.
        app._resize_timer = Timer(app, 1 / 120)
        assert not refit(app, Size(120, 40))
        await pilot.pause(0.1)
        assert app.size == Size(120, 40)
        assert app.screen.outer_size == Size(80, 24)
        assert not refit(app, Size(120, 40))
        await pilot.pause(0.1)
        assert app.screen.outer_size == Size(120, 40)


async def test_a_dialog_and_the_screen_under_it_are_both_fitted() -> None:
    async with opened(BY_NAME["override-dialog"]) as (app, pilot):
        refit(app, Size(100, 30))
        await pilot.pause(0.1)
        assert {screen.outer_size for screen in app.screen_stack} == {Size(100, 30)}
        assert refit(app, Size(100, 30))


def test_without_a_terminal_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.__stdout__", None)
    assert terminal_size() is None
