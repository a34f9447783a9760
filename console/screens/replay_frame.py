"""The replay screen's parts and their places: what is shown, not what it does."""

from __future__ import annotations

from dataclasses import replace
from datetime import tzinfo

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widget import Widget

from console.board import Board
from console.formatting import ASCII, UNICODE, clean
from console.layout import GAUGES
from console.lookups import Lookups
from console.replay_board import ReplayBoard, glyphs_of
from console.replay_layout import ReplayPlan, replay_plan
from console.replay_lines import replay_notices
from console.scene import Scene
from console.widgets.essentials import Essentials
from console.widgets.key_bar import KeyBar
from console.widgets.mode_card import ModeCard
from console.widgets.replay_parts import (
    ReplayHeader,
    ReplayLog,
    ReplayNotices,
    ReplayView,
    TimeLine,
    WhatIfPane,
)
from console.widgets.scene_view import SceneView
from console.widgets.side_panel import SidePanel
from console.widgets.still import StillHorizontal, StillVertical
from console.widgets.trend_table import TrendTable

READ_ONLY = "this is a replay: nothing can be sent to an engine from here"


class ReplayFrame(Screen[None]):
    """Shows a replay board in the widgets of live, and in four of its own.

    Args:
        zone: the zone of all times, None for this machine's.
        ascii_only: draw with ASCII alone.
    """

    DEFAULT_CSS = """
    ReplayFrame { layout: vertical; }
    #replay-header { height: 1; width: 100%; }
    #replay-line { height: 2; width: 100%; }
    #replay-notices { height: 0; width: 100%; display: none; }
    #replay-pane { height: 0; width: 100%; display: none; }
    """

    def __init__(self, *, zone: tzinfo | None = None, ascii_only: bool = False) -> None:
        super().__init__()
        self.zone = zone
        self.ascii_only = ascii_only
        self.replay = ReplayBoard(Board(""))
        self.looked = Lookups()
        self.pane_shown = False
        self._placed: ReplayPlan | None = None

    def compose(self) -> ComposeResult:
        """All parts; the plan says which of them have room."""
        yield ReplayHeader(id="replay-header")
        yield TimeLine(id="replay-line")
        yield ReplayNotices(id="replay-notices")
        with StillHorizontal(id="body"):
            with StillVertical(id="main"):
                yield ModeCard(id="card")
                yield TrendTable(id="trends")
                yield WhatIfPane(id="replay-pane")
                yield ReplayLog(id="log")
            yield SidePanel(id="panel")
        yield Essentials(id="essentials")
        yield KeyBar(id="keys")

    def scene(self) -> Scene:
        """The engine at the position; its clock is the recording's."""
        return Scene(
            board=self.replay.board,
            now_ms=self.replay.now_ms,
            zone=self.zone,
            glyphs=glyphs_of(self.ascii_only),
            readonly=READ_ONLY,
            place="replay",
            looked=self.looked,
        )

    def dialog_scene(self) -> Scene:
        """The same with the usual signs: dialogs have frames of their own."""
        return replace(self.scene(), glyphs=ASCII if self.ascii_only else UNICODE)

    def redraw(self) -> None:
        """Draw the replay in every part that has room."""
        if not self.is_mounted:
            return
        scene = self.scene()
        self._fit(scene)
        for view in self.query(SceneView):
            if isinstance(view, ReplayView):
                view.replay = self.replay
            view.show(scene)

    def _fit(self, scene: Scene) -> None:
        columns, rows = self.size
        asked = self.replay.what_if is not None
        count = len(replay_notices(scene, self.replay, columns))
        plan = replay_plan(columns, rows, count, asked, asked and self.pane_shown)
        if plan == self._placed:
            return
        self._placed = plan
        small = plan.essentials
        self._give("#essentials", small)
        for part in ("#body", "#keys"):
            self._give(part, not small)
        self._give("#replay-line", not small, plan.line)
        self._give("#replay-notices", plan.notices > 0, plan.notices)
        self._give("#panel", plan.panel > 0).styles.width = max(plan.panel, 1)
        self._give("#trends", plan.trend_rows > 0, 2 + GAUGES * plan.trend_rows)
        self._give("#replay-pane", plan.pane > 0, plan.pane)
        self._give("#log", plan.log)

    def _give(self, part: str, shown: bool, height: int | None = None) -> Widget:
        widget = self.query_one(part)
        widget.display = shown
        if shown and height is not None:
            widget.styles.height = height
        return widget

    def say(self, words: str, *, severe: bool = False) -> None:
        """A passing note."""
        self.notify(clean(words), severity="warning" if severe else "information", markup=False)
