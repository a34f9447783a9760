"""Help: generated from the bindings, with live thresholds and the meaning of every sign."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from console.help import help_lines
from console.scene import Scene
from console.screens.reader import Reader
from console.spans import Line


class Help(Reader):
    """A scrolling page."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "leave", "Back", show=False),
    ]
    heading = "Help"

    def __init__(self, scene: Scene, keys: Sequence[tuple[str, str, bool]]) -> None:
        super().__init__(scene)
        self._keys = tuple(keys)

    def lines(self, scene: Scene, cells: int) -> Sequence[Line]:
        """The help text."""
        return help_lines(scene, self._keys, cells)
