"""The decision log: decisions, the engine's own changes and gaps, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from console.events import Log, Logged
from console.log import heading, rows
from console.scene import Scene
from console.spans import Line
from console.widgets.scene_view import SceneView


class DecisionLog(SceneView, can_focus=True):
    """A rule and as many entries as fit; the selected one stays selected while others come in."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Select a newer decision", show=False, id="list.up"),
        Binding("down", "move(1)", "Select an older decision", show=False, id="list.down"),
        Binding("enter", "explain", "Why, and what became of it", show=False, id="list.open"),
        Binding("pageup", "page(-1)", "A page newer", show=False, id="list.page_up"),
        Binding("pagedown", "page(1)", "A page older", show=False, id="list.page_down"),
        Binding("end", "oldest", "The oldest decision", show=False, id="list.last"),
        Binding("escape,home", "newest", "Follow the newest", show=False, id="list.first"),
    ]

    class Chosen(Message):
        """An entry's details are wanted."""

        def __init__(self, entry: Logged) -> None:
            super().__init__()
            self.entry = entry

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self._cursor: str | None = None

    def draw(self, scene: Scene) -> Sequence[Line]:
        """The rule and the entries around the selected one."""
        cells, height = self.size
        count = max(height - 1, 0)
        first = self._first(scene.board.log, count)
        return (heading(scene, cells, first), *rows(scene, cells, first, count, self._cursor))

    def _first(self, log: Log, count: int) -> int:
        """The first entry shown: the newest, unless the selected one lies below."""
        place = self._place(log)
        return 0 if place is None else max(place - count + 1, 0)

    def _place(self, log: Log) -> int | None:
        if self._cursor is None:
            return None
        return next((i for i, entry in enumerate(log) if entry.key == self._cursor), None)

    @property
    def entry(self) -> Logged | None:
        """The selected entry."""
        log = () if self.scene is None else self.scene.board.log
        place = self._place(log)
        return None if place is None else log[place]

    def _select(self, place: int) -> None:
        log = () if self.scene is None else self.scene.board.log
        if log:
            self._cursor = log[min(max(place, 0), len(log) - 1)].key
            self.redraw()

    def action_move(self, step: int) -> None:
        """Select the neighbour; the first key selects the newest entry."""
        log = () if self.scene is None else self.scene.board.log
        place = self._place(log)
        self._select(0 if place is None else place + step)

    def action_page(self, step: int) -> None:
        """Select one page further."""
        self.action_move(step * max(self.size.height - 2, 1))

    def action_newest(self) -> None:
        """Let go of the selection and follow the newest entries."""
        self._cursor = None
        self.redraw()

    def action_oldest(self) -> None:
        """Select the oldest entry that is kept."""
        self._select(10**9)

    def action_explain(self) -> None:
        """Ask for the details of the selected entry, else of the newest."""
        log = () if self.scene is None else self.scene.board.log
        if log:
            self.post_message(self.Chosen(log[self._place(log) or 0]))

    def on_click(self, event: events.Click) -> None:
        """Select the row under the pointer; a second click asks for its details."""
        log = () if self.scene is None else self.scene.board.log
        place = self._first(log, max(self.size.height - 1, 0)) + event.y - 1
        if event.y >= 1 and place < len(log):
            again = self._cursor == log[place].key
            self._select(place)
            if again:
                self.action_explain()
