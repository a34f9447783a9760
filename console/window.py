"""Keeps the picture as large as the terminal, also when a change of its size was missed.

A change is told by one signal, and Textual passes it on by a timer of 8 ms that is never run if the
process is suspended for longer just then; two changes at once can overtake each other.  Either
leaves a picture of the old size for good, so that the size is asked for once more.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any

from textual.app import App
from textual.events import Resize
from textual.geometry import Size


def terminal_size() -> Size | None:
    """Columns and rows of the terminal that is drawn on; None where there is none."""
    stream = sys.__stdout__
    if stream is None or not stream.isatty():
        return None
    return Size(*shutil.get_terminal_size())


def follow_terminal() -> None:
    """Let the terminal alone say how large it is.

    An exported COLUMNS or LINES, left over from another terminal or a job runner, would hold the
    picture at one size whatever the window does.
    """
    stream = sys.__stdout__
    if stream is not None and stream.isatty():
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)


def refit(app: App[Any], size: Size | None) -> bool:
    """Have ``app`` drawn at ``size`` if it is not; returns whether it was."""
    if not size:
        return True
    if app.size != size:
        app.post_message(Resize(size, size))
        return False
    late = [screen for screen in app.screen_stack if screen.outer_size != size]
    for screen in late:
        screen.post_message(Resize(size, size))
    return not late
