"""The list of engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from console.fleet import drawn, empty, heading, side, sort_at
from console.fleet_choice import GROUP, Choice, Sort, listed
from console.scene import Scene
from console.spans import Line
from console.widgets.row_list import RowList
from console.widgets.scene_view import SceneView
from controlplane.messages import FleetRow


class FleetList(RowList):
    """Engines and group headings; how it is looked at is kept here."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.choice = Choice()

    @property
    def engines(self) -> tuple[FleetRow, ...]:
        """All of them, matching or not."""
        return () if self.scene is None else self.scene.looked.rows

    def look(self, choice: Choice) -> None:
        """Look at the list another way."""
        self.choice = choice
        self.redraw()

    def heading(self, scene: Scene, cells: int) -> Sequence[Line]:
        """Totals and titles."""
        return heading(scene, cells, self.choice)

    def keys(self, scene: Scene) -> Sequence[str]:
        """Engine ids and groups."""
        return listed(scene.looked.rows, self.choice)

    def rows(self, scene: Scene, cells: int, keys: Sequence[str]) -> Sequence[Line]:
        """The engines' rows."""
        return drawn(scene, cells, self.choice, keys, self.selected)

    def empty(self, scene: Scene, cells: int) -> Sequence[Line]:
        """Why there is none."""
        return empty(scene, cells, self.choice)

    def action_choose(self) -> None:
        """Open an engine; a group opens and closes."""
        key = self.selected
        if key is not None and key.startswith(GROUP):
            self.look(self.choice.toggled(key[len(GROUP) :]))
        else:
            super().action_choose()

    def head_clicked(self, x: int, y: int) -> None:
        """A column's title orders by it; again, the other way round."""
        sort = sort_at(self.size.width, x) if y == 1 else None
        if sort is not None:
            again = sort is self.choice.sort
            back = again and not self.choice.backwards
            if again and self.choice.backwards:
                sort = Sort.GIVEN
            self.look(replace(self.choice, sort=sort, backwards=back))


class FleetSide(SceneView):
    """The selected engine in full."""

    def __init__(self, rows: FleetList, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._rows = rows

    def draw(self, scene: Scene) -> Sequence[Line]:
        """Everything the row knows."""
        return side(scene, *self.size, self._rows.selected)
