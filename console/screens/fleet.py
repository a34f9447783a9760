"""The fleet: every engine in a row; enter opens one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget

from console.fleet import side
from console.fleet_choice import ordered
from console.fleet_notices import fleet_notices
from console.messages import EngineWanted
from console.scene import Scene
from console.screens.place import Place
from console.spans import Line, plain
from console.widgets.filter_box import FilterBox
from console.widgets.fleet_list import FleetList, FleetSide
from console.widgets.still import StillHorizontal

SIDE_FROM = 140
"""Columns from which on the selected engine is shown in full."""


class FleetScreen(Place):
    """A list; state of how it is looked at lives in the list."""

    AUTO_FOCUS = "FleetList"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort", "Sort", id="fleet.sort", tooltip="Order by the next column"),
        Binding(
            "S", "turn", "Reverse", show=False, id="fleet.reverse", tooltip="The other way round"
        ),
        Binding("slash", "filter", "Filter", id="filter", tooltip="Show only what matches"),
        Binding("g", "group", "Groups", id="fleet.groups", tooltip="Rows under their groups"),
        Binding(
            "A",
            "app.stances",
            "Pause all",
            id="stances",
            tooltip="Automation of all listed engines",
        ),
        Binding(
            "p",
            "app.freeze",
            "Freeze",
            show=False,
            id="freeze",
            tooltip="Hold the picture, not the loop",
        ),
    ]
    essential = False

    def parts(self) -> Iterable[Widget]:
        """The list, the selected engine, the filter."""
        rows = FleetList(id="fleet")
        yield StillHorizontal(rows, FleetSide(rows, id="fleet-side"), id="fleet-body")
        yield FilterBox()

    def lay_out(self, columns: int, rows: int) -> None:  # noqa: ARG002
        """The selected engine in full where there is room."""
        self.give("#fleet-side", columns >= SIDE_FROM, width=44)

    def notice_lines(self, scene: Scene, columns: int) -> tuple[Line, ...]:
        """What concerns all of them."""
        return fleet_notices(scene, columns)

    @property
    def list(self) -> FleetList:
        """The list."""
        return self.query_one(FleetList)

    @on(FleetList.Chosen)
    def _chosen(self, message: FleetList.Chosen) -> None:
        self.post_message(EngineWanted(message.key))

    def exports(self) -> str:
        """The fleet."""
        return "fleet"

    def copied(self) -> str | None:
        """The selected engine in full."""
        if self.scene is None:
            return None
        lines = side(self.scene, 100, 60, self.list.selected)
        return "".join(f"{plain(line).strip()}\n" for line in lines)

    def meant(self) -> tuple[str, ...]:
        """The engines that match the filter."""
        return tuple(row.engine_id for row in ordered(self.list.engines, self.list.choice))

    @on(FleetList.Moved)
    def _moved(self) -> None:
        self.query_one(FleetSide).redraw()

    def action_sort(self) -> None:
        """Order by the next column."""
        self.list.look(self.list.choice.next_sort())

    def action_turn(self) -> None:
        """The other way round."""
        choice = self.list.choice
        self.list.look(replace(choice, backwards=not choice.backwards))

    def action_group(self) -> None:
        """Under their groups, or not."""
        choice = self.list.choice
        self.list.look(replace(choice, grouped=not choice.grouped))

    def action_filter(self) -> None:
        """Write a filter."""
        self.query_one(FilterBox).open()

    @on(FilterBox.Filtered)
    def _filtered(self, message: FilterBox.Filtered) -> None:
        self.list.look(replace(self.list.choice, words=message.words))

    @on(FilterBox.Left)
    def _left(self) -> None:
        self.list.focus()
