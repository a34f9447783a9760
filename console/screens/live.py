"""The live screen: one engine, everything an operator needs to trust or overrule it."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import Screen

from console.header import notices
from console.layout import GAUGES, Plan, plan
from console.scene import Scene
from console.widgets.decision_log import DecisionLog
from console.widgets.essentials import Essentials
from console.widgets.header import Header
from console.widgets.key_bar import KeyBar
from console.widgets.mode_card import ModeCard
from console.widgets.notices import Notices
from console.widgets.override_bar import OverrideBar
from console.widgets.scene_view import SceneView
from console.widgets.side_panel import SidePanel
from console.widgets.trend_table import TrendTable


class Live(Screen[None]):
    """Shows scenes; state lives in the app, actions too, so that keys, mouse and palette agree."""

    AUTO_FOCUS = "DecisionLog"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "app.override", "Override", id="override", tooltip="Set a mode for a time"),
        Binding("x", "app.release", "Release", id="release", tooltip="End the override now"),
        Binding("e", "app.extend", "Extend", id="extend", tooltip="Give the override more time"),
        Binding("p", "app.freeze", "Freeze", id="freeze", tooltip="Hold the picture, not the loop"),
        Binding("a", "app.stance", "Automation: active, shadow or paused", id="stance", show=False),
        Binding("left_square_bracket", "app.engine(-1)", "Previous engine", show=False),
        Binding("right_square_bracket", "app.engine(1)", "Next engine", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._plan: Plan | None = None
        self._scene: Scene | None = None
        self._parts: list[SceneView] = []

    def compose(self) -> ComposeResult:
        """All parts; ``plan`` says which of them have room."""
        yield Header(id="header")
        yield Notices(id="notices")
        with Horizontal(id="body"):
            with Vertical(id="main"):
                yield ModeCard(id="card")
                yield TrendTable(id="trends")
                yield DecisionLog(id="log")
                yield OverrideBar(id="override")
            yield SidePanel(id="panel")
        yield Essentials(id="essentials")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Know the parts: they are shown twice a second."""
        self._parts = list(self.query(SceneView))

    def show(self, scene: Scene) -> None:
        """Display ``scene`` in all parts that have room."""
        self._scene = scene
        self._arrange(scene)
        for part in self._parts:
            part.show(scene)

    def on_resize(self) -> None:
        """Another size may show other parts."""
        if self._scene is not None:
            self._arrange(self._scene)

    def _arrange(self, scene: Scene) -> None:
        """Give every part its place; layout is touched only when the plan changes."""
        columns, rows = self.size
        chosen = plan(columns, rows, len(notices(scene, columns)))
        if chosen == self._plan:
            return
        self._plan = chosen
        self._give("#essentials", chosen.essentials)
        for part in ("#header", "#body", "#keys"):
            self._give(part, not chosen.essentials)
        self._give("#notices", chosen.notices > 0, height=chosen.notices)
        self._give("#panel", chosen.panel > 0, width=chosen.panel)
        self._give("#trends", chosen.trend_rows > 0, height=2 + GAUGES * chosen.trend_rows)

    def _give(
        self, part: str, shown: bool, *, height: int | None = None, width: int | None = None
    ) -> None:
        widget = self.query_one(part)
        widget.display = shown
        if shown and height is not None:
            widget.styles.height = height
        if shown and width is not None:
            widget.styles.width = width
