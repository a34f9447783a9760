"""The screen as text: what a terminal shows, without its colours.

    python -m tests.frames     writes docs/frames and puts them into the pages that show them

A page shows a frame between ``<!-- frame: NAME -->`` and ``<!-- /frame -->``, and the keys between
``<!-- keys -->`` and ``<!-- /keys -->``.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from textual.app import App

ROOT = Path(__file__).resolve().parent.parent
FRAMES = ROOT / "docs" / "frames"
PAGES = (ROOT / "README.md", ROOT / "docs" / "console.md", ROOT / "docs" / "sessions.md")

_FRAME = re.compile(r"(<!-- frame: ([\w-]+) -->\n).*?(<!-- /frame -->)", re.DOTALL)
_KEYS = re.compile(r"(<!-- keys -->\n).*?(<!-- /keys -->)", re.DOTALL)


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


def filled(page: str, keys: str) -> str:
    """``page`` with every frame it shows, and the table of keys, as they are now."""

    def shown(match: re.Match[str]) -> str:
        text = (FRAMES / f"{match[2]}.txt").read_text("utf-8")
        return f"{match[1]}```text\n{text}```\n{match[3]}"

    page = _FRAME.sub(shown, page)
    return _KEYS.sub(lambda match: f"{match[1]}{keys}{match[2]}", page)


def main() -> None:
    """Write every documented picture, and the pages that show them."""
    from tests.console_pictures import PICTURES, key_table, taken
    from tests.console_replay_pictures import all_taken

    FRAMES.mkdir(parents=True, exist_ok=True)
    for old in FRAMES.glob("*.txt"):
        old.unlink()
    for picture in PICTURES:
        if picture.shows:
            (FRAMES / f"{picture.name}.txt").write_text(asyncio.run(taken(picture)), "utf-8")
    for name, text in asyncio.run(all_taken()).items():
        (FRAMES / f"{name}.txt").write_text(text, "utf-8")
    keys = asyncio.run(key_table())
    for page in PAGES:
        before = page.read_text("utf-8")
        after = filled(before, keys)
        if after != before:
            page.write_text(after, "utf-8")


if __name__ == "__main__":
    main()
