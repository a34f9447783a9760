"""The benchmark page: progress, curves, speed-ups, verdict."""

from __future__ import annotations

from collections.abc import Sequence

from console.bench_board import BenchBoard, page
from console.scene import Scene
from console.spans import Line
from console.widgets.scene_view import SceneView


class BenchView(SceneView):
    """All of the screen between header and keys."""

    board: BenchBoard | None = None

    def draw(self, scene: Scene) -> Sequence[Line]:
        """The page's lines."""
        if self.board is None:
            return ()
        return page(scene, self.board, self.size.width, self.size.height)
