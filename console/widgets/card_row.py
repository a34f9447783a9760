"""What runs, in one row, on the screens of one engine."""

from __future__ import annotations

from collections.abc import Sequence

from console.card_line import card_line
from console.scene import Scene
from console.spans import Line
from console.widgets.scene_view import SceneView


class CardRow(SceneView):
    """Desired against confirmed, and who steers."""

    def draw(self, scene: Scene) -> Sequence[Line]:
        """One line."""
        return (card_line(scene, self.size.width),)
