"""The header: engine, state of the link, age of the numbers, time."""

from __future__ import annotations

from collections.abc import Sequence

from console.fleet_notices import fleet_header
from console.header import header
from console.places import BY_ID
from console.scene import Scene
from console.spans import Line
from console.widgets.scene_view import SceneView


class Header(SceneView):
    """One row, painted once a second."""

    def draw(self, scene: Scene) -> Sequence[Line]:
        """The header's line."""
        drawn = header if BY_ID[scene.place].engine else fleet_header
        return (drawn(scene, self.size.width),)
