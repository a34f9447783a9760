"""Pictures of the whole screen, and what must hold for every one of them."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from console.formatting import cells
from tests import console_replay_pictures
from tests.console_fleet_story import looked
from tests.console_pictures import (
    BY_NAME,
    PICTURES,
    PLACE_KEYS,
    SIZES,
    Picture,
    key_table,
    opened,
    taken,
)
from tests.frames import FRAMES, PAGES, filled, frame


@pytest.mark.parametrize("name", [picture.name for picture in PICTURES])
async def test_the_screen_reads_without_colour(name: str, snapshot: SnapshotAssertion) -> None:
    picture = BY_NAME[name]
    text = await taken(picture)
    assert text == snapshot
    if picture.options.get("ascii"):
        assert text.isascii(), sorted({char for char in text if not char.isascii()})
    if picture.shows:
        documented = (FRAMES / f"{name}.txt").read_text("utf-8")
        assert documented == text, "the documentation is behind: run python -m tests.frames"


@pytest.mark.parametrize("option", ["", "ascii", "no_color"])
async def test_every_screen_reads_at_every_size(option: str, snapshot: SnapshotAssertion) -> None:
    # One console for all of them: starting it takes longer than drawing.
    options = {option: True} if option else {}
    async with opened(Picture("any", looked=looked, options=options)) as (app, pilot):
        for columns, rows in SIZES if not option else SIZES[1:2]:
            await pilot.resize_terminal(columns, rows)
            for place, keys in ({"live": ("2",)} | PLACE_KEYS).items():
                await pilot.press(*keys)
                await pilot.pause()
                await pilot.pause()
                text = frame(app)
                name = f"{place}-{columns}x{rows}{f'-{option}' if option else ''}"
                assert text == snapshot(name=name)
                assert all(cells(row) <= columns for row in text.splitlines()), name
                assert "age " in text, name
                if option == "ascii":
                    assert text.isascii(), sorted({char for char in text if not char.isascii()})


async def test_every_size_is_filled_exactly_and_keeps_mode_and_age() -> None:
    async with opened(Picture("any")) as (app, pilot):
        for width in (20, 37, 59, 60, 79, 80, 99, 100, 119, 200):
            for height in (6, 15, 16, 20, 24, 31, 45):
                await pilot.resize_terminal(width, height)
                await pilot.pause()
                text = frame(app)
                rows = text.splitlines()
                assert len(rows) == height
                assert all(cells(row) <= width for row in rows)
                assert "▲ ON s3k1d4" in text, (width, height, text)
                assert "age 0.3s" in text, (width, height, text)


async def test_without_colour_the_terminals_own_are_used_and_the_words_are_the_same() -> None:
    async with opened(BY_NAME["live-no-color-80x24"]) as (app, _):
        assert app.native_ansi_color
        assert frame(app) == await taken(BY_NAME["live-80x24"])


async def test_the_pages_show_the_present_frames_and_keys() -> None:
    keys = await key_table()
    for page in PAGES:
        text = page.read_text("utf-8")
        assert filled(text, keys) == text, f"{page.name} is behind: run python -m tests.frames"


def test_every_documented_frame_belongs_to_a_picture() -> None:
    documented = {path.stem for path in FRAMES.glob("*.txt")}
    told = {picture.name for picture in PICTURES if picture.shows}
    assert documented == told | set(console_replay_pictures.SHOWN)
