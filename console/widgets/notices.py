"""Notices: a lost link, a gap, alarms, warnings; no rows while there are none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from console.header import notices
from console.scene import Scene
from console.spans import Line
from console.widgets.scene_view import SceneView


class Notices(SceneView):
    """As many rows as there are notices, three at most.

    Args:
        lines: what is drawn in so many cells.
    """

    def __init__(
        self,
        lines: Callable[[Scene, int], Sequence[Line]] = notices,
        *,
        id: str | None = None,  # noqa: A002  (Textual's own name)
    ) -> None:
        super().__init__(id=id)
        self._notice_lines = lines

    def draw(self, scene: Scene) -> Sequence[Line]:
        """The notices, worst first."""
        return self._notice_lines(scene, self.size.width)
