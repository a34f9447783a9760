"""The keys that work now, generated from the bindings; those that do not are dimmed."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.screen import Screen

from console.scene import Scene
from console.spans import Line, Role, Span, crop, line, width
from console.widgets.scene_view import SceneView


class KeyBar(SceneView):
    """One row; a key that has no room is left out, the last two (help and quit) never are."""

    ALLOW_SELECT = False

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self._places: list[tuple[int, int, str]] = []

    def on_mount(self) -> None:
        """Follow the screen's bindings."""
        self.screen.bindings_updated_signal.subscribe(self, self._bindings_changed)

    def _bindings_changed(self, _screen: Screen[object]) -> None:
        self.redraw()

    def draw(self, scene: Scene) -> Sequence[Line]:
        """The row of keys."""
        shown: list[tuple[str, Line]] = []
        seen: set[str] = set()
        for _node, binding, enabled, _tip in self.screen.active_bindings.values():
            if not binding.show or binding.action in seen:
                continue
            seen.add(binding.action)
            key = self.app.get_key_display(binding)
            roles = (Role.KEY, Role.TEXT) if enabled else (Role.STALE, Role.STALE)
            text = line(Span(key, roles[0]), Span(f" {binding.description}", roles[1]))
            shown.append((binding.key, text))
        palette = self.app.COMMAND_PALETTE_BINDING
        if palette in self.screen.active_bindings:
            text = line(Span(f"^{palette.removeprefix('ctrl+')}", Role.KEY), " More")
            shown.insert(-2, (palette, text))
        while len(shown) > 2 and _needed(shown) > self.size.width:
            shown.pop(-3)
        spans: list[Span] = [Span(" ")]
        self._places = []
        for key, text in shown:
            start = width(tuple(spans))
            spans += [*text, Span("  ")]
            self._places.append((start, start + width(text), key))
        return (crop(tuple(spans[:-1]), self.size.width, scene.glyphs),)

    def on_click(self, event: events.Click) -> None:
        """A click on a key is the key."""
        for start, end, key in self._places:
            if start <= event.x < end:
                self.app.simulate_key(key)


def _needed(shown: Sequence[tuple[str, Line]]) -> int:
    return 1 + sum(width(text) for _, text in shown) + 2 * (len(shown) - 1)
