"""The base of pages that are read: they scroll, and any way back leaves them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen

from console.scene import Scene
from console.spans import Line
from console.widgets.scene_view import SceneView


class Page(SceneView):
    """All lines of a reader, as tall as they are."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(id="page")
        self._reader = reader

    def draw(self, scene: Scene) -> Sequence[Line]:
        """The reader's lines."""
        return self._reader.lines(scene, self.size.width)

    def redraw(self) -> None:
        """Draw, and take the height the lines need."""
        super().redraw()
        if self._lines and self.size.height != len(self._lines):
            self.styles.height = len(self._lines)


class Reader(ModalScreen[None]):
    """A framed page over the live screen."""

    AUTO_FOCUS = "#scroll"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back", show=False),
        Binding("q", "leave", "Back", show=False),
        Binding("enter", "leave", "Back", show=False),
    ]
    heading = ""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self.scene = scene

    def lines(self, scene: Scene, cells: int) -> Sequence[Line]:
        """The page in ``cells`` cells."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        """A scrolling frame."""
        with VerticalScroll(id="scroll", classes="-ascii" if self.scene.glyphs.ascii else ""):
            yield Page(self)

    def on_mount(self) -> None:
        """Show the page."""
        frame = self.query_one("#scroll")
        frame.border_title = self.heading
        frame.border_subtitle = "esc back"
        self.query_one(Page).show(self.scene)

    def show(self, scene: Scene) -> None:
        """The same page, by what is known now."""
        self.scene = scene
        self.query_one(Page).show(scene)

    def action_leave(self) -> None:
        """Back to the live screen."""
        self.dismiss(None)
