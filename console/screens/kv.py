"""KV slots of one engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget

from console.kv_lines import lines
from console.scene import Scene
from console.screens.engine_keys import engine_keys
from console.screens.place import Place
from console.spans import Line
from console.widgets.card_row import CardRow
from console.widgets.scene_view import SceneView


class KvView(SceneView):
    """All lines, as tall as they are."""

    def draw(self, scene: Scene) -> Sequence[Line]:
        """Slots, reserve per tier, cap."""
        return lines(scene, self.size.width)

    def redraw(self) -> None:
        """Draw, and take the height the lines need."""
        super().redraw()
        if self._lines and self.size.height != len(self._lines):
            self.styles.height = len(self._lines)


class KvScreen(Place):
    """One scrolling page."""

    AUTO_FOCUS = "#kv-scroll"
    BINDINGS: ClassVar[list[BindingType]] = [*engine_keys()]

    def copied(self) -> str | None:
        """The whole page."""
        return "".join(f"{text.rstrip()}\n" for text in self.query_one(KvView).text_lines())

    def parts(self) -> Iterable[Widget]:
        """The page."""
        yield CardRow(id="card-row")
        yield VerticalScroll(KvView(id="kv"), id="kv-scroll")
