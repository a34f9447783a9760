"""Notices: a lost link, a gap, alarms, warnings; no rows while there are none."""

from __future__ import annotations

from collections.abc import Sequence

from console.header import notices
from console.scene import Scene
from console.spans import Line
from console.widgets.scene_view import SceneView


class Notices(SceneView):
    """As many rows as there are notices, three at most."""

    def draw(self, scene: Scene) -> Sequence[Line]:
        """The notices, worst first."""
        return notices(scene, self.size.width)
