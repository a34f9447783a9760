"""The screen as text: what a terminal shows, without its colours.

python -m tests.frames     writes docs/frames, which docs/console.md shows
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from textual.app import App

FRAMES = Path(__file__).resolve().parent.parent / "docs" / "frames"


def frame(app: App[Any]) -> str:
    """All rows of the present screen, modals over what lies under them.

    Reads the compositor's strips, which Textual keeps private: this is the one place that does.
    """
    width, height = app.size
    screens = app._background_screens
    update = app.screen._compositor.render_update(full=True, screen_stack=screens)
    rows = ["".join(strip.text for strip in row) for row in update.strips]
    assert len(rows) == height, f"{len(rows)} rows on a screen of {height}"
    for row in rows:
        assert cell_len(row) == width, f"a row of {cell_len(row)} cells on {width}: {row!r}"
    return "".join(f"{row.rstrip()}\n" for row in rows)


def main() -> None:
    """Write every documented picture."""
    from tests.console_pictures import PICTURES, taken

    FRAMES.mkdir(parents=True, exist_ok=True)
    for picture in PICTURES:
        if picture.shows:
            (FRAMES / f"{picture.name}.txt").write_text(asyncio.run(taken(picture)), "utf-8")


if __name__ == "__main__":
    main()
