"""The mode card: what runs, whether the engine confirms it, why, what comes next."""

from __future__ import annotations

from collections.abc import Sequence

from console.card import card
from console.scene import Scene
from console.spans import Line
from console.widgets.scene_view import SceneView


class ModeCard(SceneView):
    """Six rows."""

    def draw(self, scene: Scene) -> Sequence[Line]:
        """The framed card."""
        return card(scene, self.size.width)
