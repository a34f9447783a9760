"""The trend table: fixed ranges, gaps blank, the mode strip on the same time axis."""

from __future__ import annotations

from collections.abc import Sequence

from console.gauges import table
from console.layout import GAUGES
from console.scene import Scene
from console.spans import Line
from console.widgets.scene_view import SceneView


class TrendTable(SceneView):
    """A heading, five trends of equal height, and the mode strip."""

    def draw(self, scene: Scene) -> Sequence[Line]:
        """The table at the height the screen gave it."""
        return table(scene, self.size.width, max((self.size.height - 2) // GAUGES, 1))
