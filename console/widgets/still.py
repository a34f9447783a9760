"""Containers that hold a screen's parts in their places and never scroll.

Textual lays a screen out once more for every widget whose scrollable area has changed, and paints
containers row by row under what they hold.  Here nothing scrolls and the parts cover everything:
a row of notices that comes or goes costs one layout and one painting.
"""

from __future__ import annotations

from typing import ClassVar

from textual.containers import Horizontal, Vertical
from textual.geometry import Size
from textual.reactive import Reactive


class StillVertical(Vertical):
    """Parts one above the other."""

    BLANK: ClassVar[bool] = True
    virtual_size = Reactive(Size(0, 0), repaint=False)


class StillHorizontal(Horizontal):
    """Parts side by side."""

    BLANK: ClassVar[bool] = True
    virtual_size = Reactive(Size(0, 0), repaint=False)
