"""What runs and what the engine confirms, in one line.  Pure."""

from __future__ import annotations

from console.card import corner, mode_line
from console.scene import Scene, freshness
from console.spans import Line, Role, line, pad, recolour, spread, width


def card_line(scene: Scene, cells: int) -> Line:
    """``▲ ON s3k1d4 for 4m12s  confirmed on 2/2 ranks, generation 37     AUTO · hysteresis v3``."""
    right = corner(scene, max(cells // 3, 12))
    room = max(cells - width(right) - 3, 0)
    left = mode_line(scene, room)
    if freshness(scene).stale:
        left = recolour(left, Role.STALE)
    return pad(spread(line(" ", left), line(right, " "), cells, scene.glyphs), cells, scene.glyphs)
