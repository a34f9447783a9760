"""A list with a cursor: the selected row stays selected while others come and go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from console.scene import Scene
from console.spans import Line
from console.widgets.scene_view import SceneView


class RowList(SceneView, can_focus=True):
    """Heading lines, then as many rows as fit; only those are drawn.

    Rows are known by a key of their own, so that the cursor follows one row through any order.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Select the row above", show=False, id="list.up"),
        Binding("down", "move(1)", "Select the row below", show=False, id="list.down"),
        Binding("pageup", "page(-1)", "A page up", show=False, id="list.page_up"),
        Binding("pagedown", "page(1)", "A page down", show=False, id="list.page_down"),
        Binding("home", "first", "The first row", show=False, id="list.first"),
        Binding("end", "last", "The last row", show=False, id="list.last"),
        Binding("enter", "choose", "Open", id="list.open", tooltip="Open the selected row"),
    ]
    follow: ClassVar[bool] = False
    """Whether, without a selection, the first row counts as selected for ``enter`` alone."""

    class Moved(Message):
        """Another row is selected."""

        def __init__(self, rows: RowList, key: str) -> None:
            super().__init__()
            self.rows = rows
            self.key = key

        @property
        def control(self) -> RowList:
            """The list."""
            return self.rows

    class Chosen(Moved):
        """A row is to be opened."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.cursor: str | None = None
        self._top = 0
        self._keys: tuple[str, ...] = ()
        self._head = 0

    def heading(self, scene: Scene, cells: int) -> Sequence[Line]:
        """The lines above the rows."""
        raise NotImplementedError

    def keys(self, scene: Scene) -> Sequence[str]:
        """The rows' keys in the order they stand."""
        raise NotImplementedError

    def rows(self, scene: Scene, cells: int, keys: Sequence[str]) -> Sequence[Line]:
        """The rows of ``keys``; ``cursor`` names the selected one."""
        raise NotImplementedError

    def empty(self, scene: Scene, cells: int) -> Sequence[Line]:
        """What stands there without any row."""
        raise NotImplementedError

    @property
    def selected(self) -> str | None:
        """The selected row, the first one if none was selected yet."""
        if self.cursor in self._keys:
            return self.cursor
        return self._keys[0] if self._keys and not self.follow else None

    def draw(self, scene: Scene) -> Sequence[Line]:
        """The heading, and the rows around the selected one."""
        cells, height = self.size
        head = tuple(self.heading(scene, cells))[:height]
        self._head = len(head)
        self._keys = tuple(self.keys(scene))
        count = max(height - len(head), 0)
        if not self._keys:
            return (*head, *self.empty(scene, cells))[:height]
        place = self._place()
        if place is None:
            self._top = 0
        elif place < self._top:
            self._top = place
        elif place >= self._top + count:
            self._top = place - count + 1
        self._top = max(min(self._top, len(self._keys) - count), 0)
        return (*head, *self.rows(scene, cells, self._keys[self._top : self._top + count]))

    def _place(self) -> int | None:
        selected = self.selected
        return None if selected is None else self._keys.index(selected)

    def select(self, place: int) -> None:
        """Select the row at ``place``, or the nearest end."""
        if self._keys:
            key = self._keys[min(max(place, 0), len(self._keys) - 1)]
            if key != self.cursor:
                self.cursor = key
                self.redraw()
                self.post_message(self.Moved(self, key))

    def action_move(self, step: int) -> None:
        """Select the neighbour."""
        place = self._place()
        self.select(0 if place is None else place + step)

    def action_page(self, step: int) -> None:
        """Select one page further."""
        self.action_move(step * max(self.size.height - self._head - 1, 1))

    def action_first(self) -> None:
        """Select the first row."""
        self.select(0)

    def action_last(self) -> None:
        """Select the last row."""
        self.select(len(self._keys))

    def action_choose(self) -> None:
        """Open the selected row, else the first."""
        key = self.selected or (self._keys[0] if self._keys else None)
        if key is not None:
            self.post_message(self.Chosen(self, key))

    def on_click(self, event: events.Click) -> None:
        """Select the row under the pointer; a second click opens it."""
        place = self._top + event.y - self._head
        if event.y < self._head:
            self.head_clicked(event.x, event.y)
        elif place < len(self._keys):
            again = self.cursor == self._keys[place]
            self.select(place)
            if again:
                self.action_choose()

    def head_clicked(self, x: int, y: int) -> None:
        """The heading was clicked at cell ``x`` of its line ``y``."""

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel moves the selection."""
        event.stop()
        self.action_move(1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel moves the selection."""
        event.stop()
        self.action_move(-1)
