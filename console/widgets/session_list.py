"""The list of sessions."""

from __future__ import annotations

from collections.abc import Sequence

from console.scene import Scene
from console.session_rows import SessionsBoard, drawn, empty, heading
from console.spans import Line
from console.widgets.row_list import RowList


class SessionList(RowList):
    """Newest first."""

    board = SessionsBoard()

    def heading(self, scene: Scene, cells: int) -> Sequence[Line]:
        """How many there are."""
        return heading(scene, self.board, cells)

    def keys(self, scene: Scene) -> Sequence[str]:  # noqa: ARG002
        """The sessions' ids."""
        return tuple(str(one.id) for one in self.board.sessions)

    def rows(self, scene: Scene, cells: int, keys: Sequence[str]) -> Sequence[Line]:
        """Their rows."""
        return drawn(scene, self.board, cells, keys, self.selected)

    def empty(self, scene: Scene, cells: int) -> Sequence[Line]:  # noqa: ARG002
        """Why there is none."""
        return empty(self.board, cells)
