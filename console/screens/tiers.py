"""Tiers and thresholds: what each tier costs, where the load is, what decides, and its history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget

from console import cost_table, threshold_lines
from console.cost_table import BANDS
from console.scene import Scene
from console.screens.engine_keys import QUIET_KEYS
from console.screens.place import Place
from console.spans import Line
from console.widgets.card_row import CardRow
from console.widgets.scene_view import SceneView
from engine_patch.costs import ContextBand


class CostView(SceneView):
    """The cost table of one context band."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.band: ContextBand | None = None

    def draw(self, scene: Scene) -> Sequence[Line]:
        """The table around the present load."""
        return cost_table.lines(scene, *self.size, band=self.band)

    def next_band(self) -> None:
        """Show the next band; after the last one the present band again."""
        order = (None, *BANDS)
        self.band = order[(order.index(self.band) + 1) % len(order)]
        self.redraw()


class ThresholdView(SceneView):
    """Thresholds and history, as tall as they are."""

    def draw(self, scene: Scene) -> Sequence[Line]:
        """The lines."""
        width = self.size.width
        return (*threshold_lines.lines(scene, width), *threshold_lines.history(scene, width))

    def redraw(self) -> None:
        """Draw, and take the height the lines need."""
        super().redraw()
        if self._lines and self.size.height != len(self._lines):
            self.styles.height = len(self._lines)


class Tiers(Place):
    """The table above, the thresholds below."""

    AUTO_FOCUS = "#threshold-scroll"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "t",
            "app.thresholds",
            "Thresholds",
            id="thresholds",
            tooltip="Edit those of the policy in force",
        ),
        Binding("b", "app.rollback", "Roll back", id="rollback", tooltip="To an earlier version"),
        Binding("c", "band", "Context", id="tiers.context", tooltip="Costs at longer contexts"),
        Binding("i", "app.pin", "Pin", id="pin", tooltip="Hold one tier for an evaluation"),
        *QUIET_KEYS,
    ]

    def parts(self) -> Iterable[Widget]:
        """Both."""
        yield CardRow(id="card-row")
        yield CostView(id="costs")
        yield VerticalScroll(ThresholdView(id="thresholds"), id="threshold-scroll")

    def lay_out(self, columns: int, rows: int) -> None:  # noqa: ARG002
        """About half for each."""
        self.give("#costs", rows >= 12, height=max(rows // 2 - 1, 0))

    def copied(self) -> str | None:
        """Table, thresholds and history."""
        lines = self.query_one(CostView).text_lines()
        lines += self.query_one(ThresholdView).text_lines()
        return "".join(f"{text.rstrip()}\n" for text in lines)

    def action_band(self) -> None:
        """Costs of the next context band."""
        self.query_one(CostView).next_band()
