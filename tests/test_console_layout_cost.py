"""A row of notices that comes or goes costs one layout, and is painted at once as it should be."""

from __future__ import annotations

import pytest
from textual.screen import Screen

from tests.console_pictures import BY_NAME, opened
from tests.frames import frame


@pytest.mark.parametrize("key", ["1", "2", "3"])
@pytest.mark.parametrize("picture", ["live-80x24", "live-120x40"])
async def test_holding_the_picture_lays_the_screen_out_once(picture: str, key: str) -> None:
    async with opened(BY_NAME[picture]) as (app, pilot):
        await pilot.press(key)
        await pilot.pause(0.1)
        before, layouts = frame(app), 0

        def laid_out(_: Screen[object]) -> None:
            nonlocal layouts
            layouts += 1

        app.screen.screen_layout_refresh_signal.subscribe(app.screen, laid_out, immediate=True)
        await pilot.press("p")
        await pilot.pause(0.1)
        held, first = frame(app), layouts
        await pilot.press("p")
        await pilot.pause(0.1)
        after = frame(app)
    assert "FROZEN" in held
    assert "p goes on" in held
    assert after == before
    assert (first, layouts) == (1, 2)
