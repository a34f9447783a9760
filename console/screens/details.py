"""Everything known of one entry of the decision log."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from console.events import Logged
from console.formatting import clean
from console.log import details
from console.scene import Scene
from console.screens.reader import Reader
from console.spans import BLANK, Line, Role, Span, line


class Details(Reader):
    """Why a change was asked for, and what became of it."""

    heading = "Why"

    def __init__(self, scene: Scene, entry: Logged) -> None:
        super().__init__(scene)
        self._entry = entry

    def lines(self, scene: Scene, cells: int) -> Sequence[Line]:
        """The entry as labelled rows."""
        rows: list[Line] = [BLANK]
        for label, text in details(scene, self._entry):
            parts = wrap(clean(text), max(cells - 12, 10)) or [""]
            rows += [
                line(Span(f" {label if row == 0 else '':<9} ", Role.LABEL), part)
                for row, part in enumerate(parts)
            ]
        return (*rows, BLANK)
