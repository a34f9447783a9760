"""The parts of the replay screen that live has not: header, time line, what-if, notices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from console.replay_board import ReplayBoard
from console.replay_lines import EDGE, header, replay_notices, small, time_line
from console.replay_whatif import pane
from console.scene import Scene
from console.spans import Line
from console.widgets.decision_log import DecisionLog
from console.widgets.scene_view import SceneView
from controlplane.replay_strip import place_of


class ReplayView(SceneView):
    """A part that is drawn from the replay beside the scene."""

    replay: ReplayBoard | None = None


class ReplayHeader(ReplayView):
    """One row with the mark that never goes."""

    def draw(self, scene: Scene) -> Sequence[Line]:
        """The header."""
        if self.replay is None:
            return ()
        row = header if self.size.width >= 60 else small
        return (row(scene, self.replay, self.size.width),)


class TimeLine(ReplayView):
    """Marks, position and tiers; a click goes there."""

    ALLOW_SELECT = False

    class Picked(Message):
        """A place of the recording was clicked."""

        def __init__(self, place: int) -> None:
            super().__init__()
            self.place = place

    def draw(self, scene: Scene) -> Sequence[Line]:
        """The time line."""
        return () if self.replay is None else time_line(scene, self.replay, *self.size)

    def on_click(self, event: events.Click) -> None:
        """Go to the cell under the pointer."""
        replay = self.replay
        if replay is None or replay.strip is None or replay.state is None:
            return
        cell = event.x - EDGE - 1
        if 0 <= cell < replay.strip.cells:
            self.post_message(self.Picked(place_of(cell, replay.state.ticks, replay.strip.cells)))


class WhatIfPane(ReplayView):
    """The answer of another policy."""

    def draw(self, scene: Scene) -> Sequence[Line]:
        """As much of it as fits."""
        return () if self.replay is None else pane(scene, self.replay, *self.size)


class ReplayNotices(ReplayView):
    """What must be known at the position."""

    def draw(self, scene: Scene) -> Sequence[Line]:
        """One row each."""
        return () if self.replay is None else replay_notices(scene, self.replay, self.size.width)


class ReplayLog(DecisionLog, inherit_bindings=False):
    """The decisions up to the position; home and end are the recording's here."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Select a newer decision", show=False, id="list.up"),
        Binding("down", "move(1)", "Select an older decision", show=False, id="list.down"),
        Binding("enter", "explain", "Why, and what became of it", show=False, id="list.open"),
        Binding("pageup", "page(-1)", "A page newer", show=False, id="list.page_up"),
        Binding("pagedown", "page(1)", "A page older", show=False, id="list.page_down"),
    ]
