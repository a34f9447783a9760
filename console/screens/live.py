"""The live screen: one engine, everything an operator needs to trust or overrule it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widget import Widget

from console.evidence import as_text
from console.header import notices
from console.layout import GAUGES, TABS_FROM, plan
from console.scene import Scene
from console.screens.engine_keys import ENGINE_KEYS
from console.screens.place import Place
from console.widgets.decision_log import DecisionLog
from console.widgets.essentials import Essentials
from console.widgets.header import Header
from console.widgets.key_bar import KeyBar
from console.widgets.mode_card import ModeCard
from console.widgets.notices import Notices
from console.widgets.override_bar import OverrideBar
from console.widgets.side_panel import SidePanel
from console.widgets.still import StillHorizontal, StillVertical
from console.widgets.tab_row import TabRow
from console.widgets.trend_table import TrendTable
from store.records import Decision


class Live(Place):
    """What ``console.layout`` has room for."""

    AUTO_FOCUS = "DecisionLog"
    BINDINGS: ClassVar[list[BindingType]] = [*ENGINE_KEYS]

    @property
    def decisions(self) -> DecisionLog:
        """The decision log."""
        return self.query_one(DecisionLog)

    def moment(self) -> int | None:
        """The observation of the selected decision."""
        entry = self.decisions.entry
        event = None if entry is None else entry.event
        return event.seq if isinstance(event, Decision) else None

    def copied(self) -> str | None:
        """The selected decision as text, else the newest one."""
        entry = self.decisions.entry
        log = () if self.scene is None else self.scene.board.log
        entry = entry or (log[0] if log else None)
        return None if entry is None or self.scene is None else as_text(self.scene, entry)

    def parts(self) -> Iterable[Widget]:
        """Composed below, because the panel stands beside the others."""
        return ()

    def compose(self) -> ComposeResult:
        """All parts; ``plan`` says which of them have room."""
        yield Header(id="header")
        yield TabRow(id="tabs")
        yield Notices(id="notices")
        with StillHorizontal(id="body"):
            with StillVertical(id="main"):
                yield ModeCard(id="card")
                yield TrendTable(id="trends")
                yield DecisionLog(id="log")
                yield OverrideBar(id="override")
            yield SidePanel(id="panel")
        yield Essentials(id="essentials")
        yield KeyBar(id="keys")

    def _fit(self, scene: Scene) -> None:
        """Give every part its place; layout is touched only when the plan changes."""
        columns, rows = self.size
        chosen = plan(columns, rows, len(notices(scene, columns)))
        tabbed = rows >= TABS_FROM and not chosen.essentials
        if (chosen, tabbed) == self._placed:
            return
        self._placed = (chosen, tabbed)
        self.give("#essentials", chosen.essentials)
        for part in ("#header", "#body", "#keys"):
            self.give(part, not chosen.essentials)
        self.give("#tabs", tabbed)
        self.give("#notices", chosen.notices > 0, height=chosen.notices)
        self.give("#panel", chosen.panel > 0, width=chosen.panel)
        self.give("#trends", chosen.trend_rows > 0, height=2 + GAUGES * chosen.trend_rows)
