"""The audit: every act of a person or of the service, newest first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget

from console.audit_lines import drawn, heading, key, rows, sifted
from console.evidence import page
from console.fleet_notices import fleet_notices
from console.scene import Scene
from console.screens.place import Place
from console.screens.reader import Reader
from console.spans import Line, Role, Span, line, pad
from console.widgets.filter_box import FilterBox
from console.widgets.row_list import RowList
from store.records import AuditEntry


class AuditList(RowList):
    """Newest first."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.words = ""
        self._entries: dict[str, AuditEntry] = {}

    @property
    def entry(self) -> AuditEntry | None:
        """The selected entry."""
        return self._entries.get(self.selected or "")

    def heading(self, scene: Scene, cells: int) -> Sequence[Line]:
        """How many are listed."""
        self._entries = {key(entry): entry for entry in sifted(scene, self.words)}
        return heading(scene, cells, self.words, len(self._entries))

    def keys(self, scene: Scene) -> Sequence[str]:  # noqa: ARG002
        """Row ids."""
        return tuple(self._entries)

    def rows(self, scene: Scene, cells: int, keys: Sequence[str]) -> Sequence[Line]:
        """The entries."""
        return drawn(scene, cells, [self._entries[one] for one in keys], self.selected)

    def empty(self, scene: Scene, cells: int) -> Sequence[Line]:
        """Why there is none."""
        read = scene.looked.audit.value is not None
        text = "nothing matches: esc clears the filter" if read and self.words else "nothing yet"
        text = text if read else scene.looked.audit.trouble or "reading the audit"
        return (pad(line(Span(f" {text}", Role.LABEL)), cells, scene.glyphs),)


class AuditDetails(Reader):
    """One entry in full."""

    heading = "Audit"

    def __init__(self, scene: Scene, entry: AuditEntry) -> None:
        super().__init__(scene)
        self._entry = entry

    def lines(self, scene: Scene, cells: int) -> Sequence[Line]:
        """The entry as labelled rows."""
        return page(rows(scene, self._entry), cells)


class Audit(Place):
    """A list."""

    AUTO_FOCUS = "AuditList"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter", id="filter", tooltip="Show only what matches"),
        Binding(
            "p",
            "app.freeze",
            "Freeze",
            show=False,
            id="freeze",
            tooltip="Hold the picture, not the loop",
        ),
        Binding("y", "app.copy", "Copy", id="copy", tooltip="Copy the selected row as text"),
        Binding("E", "app.export", "Export", id="export", tooltip="CSV or JSON lines"),
    ]
    essential = False

    def parts(self) -> Iterable[Widget]:
        """The list and the filter."""
        yield AuditList(id="audit")
        yield FilterBox()

    def notice_lines(self, scene: Scene, columns: int) -> tuple[Line, ...]:
        """What concerns the control plane."""
        return fleet_notices(scene, columns)

    @property
    def list(self) -> AuditList:
        """The list."""
        return self.query_one(AuditList)

    @on(RowList.Chosen)
    def _explain(self) -> None:
        """The selected entry in full."""
        if self.list.entry is not None and self.scene is not None:
            self.app.push_screen(AuditDetails(self.scene, self.list.entry))

    def action_filter(self) -> None:
        """Write a filter."""
        self.query_one(FilterBox).open()

    @on(FilterBox.Filtered)
    def _filtered(self, message: FilterBox.Filtered) -> None:
        self.list.words = message.words
        self.list.redraw()

    @on(FilterBox.Left)
    def _left(self) -> None:
        self.list.focus()

    def exports(self) -> str:
        """The audit."""
        return "audit"

    def copied(self) -> str | None:
        """The selected entry as text."""
        if self.list.entry is None or self.scene is None:
            return None
        return "".join(f"{label}: {text}\n" for label, text in rows(self.scene, self.list.entry))
