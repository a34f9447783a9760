"""The row of screens; a click opens one."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.message import Message

from console.scene import Scene
from console.spans import Line
from console.tabs import tabs
from console.widgets.scene_view import SceneView


class TabRow(SceneView):
    """One row."""

    ALLOW_SELECT = False

    class Picked(Message):
        """A tab was clicked."""

        def __init__(self, place: str) -> None:
            super().__init__()
            self.place = place

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self._places: tuple[tuple[int, int, str], ...] = ()

    def draw(self, scene: Scene) -> Sequence[Line]:
        """The tabs."""
        row, self._places = tabs(scene, self.size.width)
        return (row,)

    def on_click(self, event: events.Click) -> None:
        """A click on a tab opens its screen."""
        for start, end, place in self._places:
            if start <= event.x < end:
                self.post_message(self.Picked(place))
