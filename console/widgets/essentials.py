"""What a terminal under 60x16 shows."""

from __future__ import annotations

from collections.abc import Sequence

from console.header import essentials
from console.scene import Scene
from console.spans import Line
from console.widgets.scene_view import SceneView


class Essentials(SceneView):
    """Mode, why and age."""

    def draw(self, scene: Scene) -> Sequence[Line]:
        """The essentials."""
        return essentials(scene, *self.size)
