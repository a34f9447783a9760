"""Everything known of one entry of the decision log."""

from __future__ import annotations

from collections.abc import Sequence

from console.events import Logged
from console.evidence import explained, page
from console.scene import Scene
from console.screens.reader import Reader
from console.spans import Line


class Details(Reader):
    """Why a change was asked for, what became of it, what would have to change."""

    heading = "Why"

    def __init__(self, scene: Scene, entry: Logged) -> None:
        super().__init__(scene)
        self.entry = entry

    def lines(self, scene: Scene, cells: int) -> Sequence[Line]:
        """The entry as labelled rows."""
        return page(explained(scene, self.entry), cells)
