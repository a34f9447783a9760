"""The side panel of a wide terminal."""

from __future__ import annotations

from collections.abc import Sequence

from console.panel import panel
from console.scene import Scene
from console.spans import Line
from console.widgets.scene_view import SceneView


class SidePanel(SceneView):
    """All clauses, all candidates, KV slots, the engine, its tiers."""

    def draw(self, scene: Scene) -> Sequence[Line]:
        """As much of the panel as fits."""
        return panel(scene, *self.size)
