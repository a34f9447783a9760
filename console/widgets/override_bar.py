"""The override in force, or how to set one."""

from __future__ import annotations

from collections.abc import Sequence

from console.override import section
from console.scene import Scene
from console.spans import Line
from console.widgets.scene_view import SceneView


class OverrideBar(SceneView):
    """A rule and one row."""

    def draw(self, scene: Scene) -> Sequence[Line]:
        """The override section."""
        return section(scene, self.size.width)
