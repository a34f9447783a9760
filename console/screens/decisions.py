"""Decisions, the engine's own changes and gaps together, each explained."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget

from console.events import Logged
from console.evidence import as_text
from console.journal import Sieve, found
from console.messages import EvidenceWanted
from console.scene import Scene
from console.screens.details import Details
from console.screens.engine_keys import QUIET_KEYS
from console.screens.place import Place
from console.widgets.card_row import CardRow
from console.widgets.filter_box import FilterBox
from console.widgets.journal_list import JournalList, WhyPane
from console.widgets.row_list import RowList
from console.widgets.still import StillVertical
from store.records import Decision

SIDE_FROM = 120
"""Columns from which on the pane stands beside the list."""
PANE_LEAST = 8


class Decisions(Place):
    """A list and a pane."""

    AUTO_FOCUS = "JournalList"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter", id="filter", tooltip="Show only what matches"),
        Binding(
            "f",
            "kind",
            "Kinds",
            id="decisions.kinds",
            tooltip="Automation, people, the engine itself, trouble",
        ),
        Binding("y", "app.copy", "Copy", id="copy", tooltip="Copy the selected row as text"),
        Binding("E", "app.export", "Export", id="export", tooltip="CSV or JSON lines"),
        *QUIET_KEYS,
    ]

    def parts(self) -> Iterable[Widget]:
        """The list, the pane, the filter."""
        entries = JournalList(id="journal")
        yield CardRow(id="card-row")
        yield StillVertical(entries, WhyPane(entries, id="why-pane"), id="decisions-body")
        yield FilterBox()

    def lay_out(self, columns: int, rows: int) -> None:
        """The pane beside the list, under it, or away."""
        body = self.query_one("#decisions-body")
        beside = columns >= SIDE_FROM
        body.set_class(beside, "-beside")
        pane = self.query_one(WhyPane)
        if beside:
            self.give("#why-pane", True, width=max(columns - 80, 44))
            pane.styles.height = "100%"
        else:
            height = max(rows // 2 - 1, 0)
            self.give("#why-pane", height >= PANE_LEAST, height=height)
            pane.styles.width = "100%"

    @property
    def entries(self) -> JournalList:
        """The list."""
        return self.query_one(JournalList)

    @property
    def entry(self) -> Logged | None:
        """The selected entry."""
        return None if self.scene is None else found(self.scene, self.entries.selected)

    def show(self, scene: Scene) -> None:
        """Display it, and read the evidence of what is selected."""
        super().show(scene)
        self._want()

    def _want(self) -> None:
        event = None if self.entry is None else self.entry.event
        known = {} if self.scene is None else self.scene.looked.evidence
        if isinstance(event, Decision) and event.seq not in known:
            self.post_message(EvidenceWanted(event.seq))

    @on(RowList.Moved)
    def _moved(self) -> None:
        self._want()
        self.query_one(WhyPane).redraw()

    @on(RowList.Chosen)
    def _explain(self) -> None:
        """The selected entry on a page of its own."""
        if self.entry is not None and self.scene is not None:
            self.app.push_screen(Details(self.scene, self.entry))

    def action_kind(self) -> None:
        """List the next kind."""
        self.entries.sift(self.entries.sieve.next_kind())
        self.query_one(WhyPane).redraw()

    def action_filter(self) -> None:
        """Write a filter."""
        self.query_one(FilterBox).open()

    @on(FilterBox.Filtered)
    def _filtered(self, message: FilterBox.Filtered) -> None:
        self.entries.sift(Sieve(self.entries.sieve.kind, message.words))
        self.query_one(WhyPane).redraw()

    @on(FilterBox.Left)
    def _left(self) -> None:
        self.entries.focus()

    def moment(self) -> int | None:
        """The observation of the selected decision."""
        event = None if self.entry is None else self.entry.event
        return event.seq if isinstance(event, Decision) else None

    def exports(self) -> str:
        """Decisions."""
        return "decisions"

    def point_to(self, seq: int) -> None:
        """Select the decision on observation ``seq``, if it is listed."""
        self.entries.cursor = f"decision {seq}"

    def copied(self) -> str | None:
        """The selected entry as text."""
        if self.entry is None or self.scene is None:
            return None
        return as_text(self.scene, self.entry)
