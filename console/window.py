"""Keeps the picture as large as the terminal, also when a change of its size was missed.

A change is told by one signal, and Textual passes it on by a timer of 8 ms that is never run if the
process is suspended for longer just then; two changes at once can overtake each other.  Either
leaves a picture of the old size for good, so that the size is asked for once more.
"""

from __future__ import annotations

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
    # The same question as Textual's own, so that both agree where COLUMNS or LINES is set.
    return Size(*shutil.get_terminal_size())


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
