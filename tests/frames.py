"""The screen as text: what a terminal shows, without its colours."""

from __future__ import annotations

from typing import Any

from rich.cells import cell_len
from textual.app import App


def frame(app: App[Any]) -> str:
    """All rows of the present screen, modals over what lies under them.

    Reads the compositor's strips, which Textual keeps private: this is the one place that does.
    """
    width, height = app.size
    update = app.screen._compositor.render_update(full=True, screen_stack=app._background_screens)
    rows = ["".join(strip.text for strip in row) for row in update.strips]
    assert len(rows) == height, f"{len(rows)} rows on a screen of {height}"
    for row in rows:
        assert cell_len(row) == width, f"a row of {cell_len(row)} cells on {width}: {row!r}"
    return "".join(f"{row.rstrip()}\n" for row in rows)
