"""The row of screens, the open one in brackets.  Pure."""

from __future__ import annotations

from console.places import PLACES
from console.scene import Scene
from console.spans import Line, Role, Span, line, pad, width


def tabs(scene: Scene, cells: int) -> tuple[Line, tuple[tuple[int, int, str], ...]]:
    """The row, and (first cell, end cell, screen id) of each tab for the mouse.

    ``  1 Fleet  [2 Live]  3 Decisions …``; without room only the open one keeps its name.
    """
    names = [f"{entry.key} {entry.name}" for entry in PLACES]
    if sum(map(len, names)) + 2 * len(names) + 2 > cells:
        names = [
            text if entry.id == scene.place else entry.key
            for entry, text in zip(PLACES, names, strict=True)
        ]
    spans: list[Span] = []
    places: list[tuple[int, int, str]] = []
    for entry, text in zip(PLACES, names, strict=True):
        here = entry.id == scene.place
        start = width(tuple(spans))
        if here:
            spans.append(Span(f"[{text}]", Role.TITLE))
        else:
            key, _, name = text.partition(" ")
            spans += [Span(" "), Span(key, Role.KEY), Span(f" {name} " if name else " ")]
        places.append((start, width(tuple(spans)), entry.id))
    return pad(line(*spans), cells, scene.glyphs), tuple(places)
