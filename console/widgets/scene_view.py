"""The base of all parts of a screen: draws lines computed from a scene, and only changed ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from console.scene import Scene
from console.spans import BLANK, Line, Role, plain, safe


class SceneView(Widget):
    """Draws what ``draw`` computes; a row is painted again only when its spans changed.

    Text reaches the terminal through ``render_line`` alone, which takes out everything that a
    terminal would act on; no markup is ever parsed.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"scene-view--{role.value}" for role in Role}

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self._scene: Scene | None = None
        self._lines: tuple[Line, ...] = ()
        self._styles_by_role: dict[Role, Style] = {}

    @property
    def scene(self) -> Scene | None:
        """The scene on display."""
        return self._scene

    def draw(self, scene: Scene) -> Sequence[Line]:
        """The lines for this widget's size; to be overridden."""
        raise NotImplementedError

    def show(self, scene: Scene) -> None:
        """Display ``scene``."""
        self._scene = scene
        self.redraw()

    def redraw(self) -> None:
        """Compute the lines again and paint the rows that differ."""
        if self._scene is None or not self.size.width or not self.size.height or not self.display:
            return
        scene = self._scene
        lines = tuple(safe(spans, scene.glyphs) for spans in self.draw(scene))
        before, self._lines = self._lines, lines
        for row in range(max(len(before), len(lines))):
            if before[row : row + 1] != lines[row : row + 1]:
                self.refresh_row(row)

    def refresh_row(self, row: int) -> None:
        """Paint one row again."""
        self.refresh(Region(0, row, self.size.width, 1))

    def on_resize(self) -> None:
        """A new size needs new lines."""
        self._lines = ()
        self.redraw()
        self.refresh()

    def notify_style_update(self) -> None:
        """A theme or a style sheet changed."""
        super().notify_style_update()
        self._styles_by_role.clear()

    def _style(self, role: Role, base: Style) -> Style:
        # Kept here because Textual forgets its own copies with every painted row.
        if role not in self._styles_by_role:
            self._styles_by_role[role] = base + self.get_component_rich_style(f"scene-view--{role}")
        return self._styles_by_role[role]

    def text_lines(self) -> list[str]:
        """The text on display, row by row."""
        return [plain(spans) for spans in self._lines]

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The text under the mouse selection."""
        return selection.extract("\n".join(self.text_lines())), "\n"

    def render_line(self, y: int) -> Strip:
        """The strip of row ``y``."""
        spans = self._lines[y] if y < len(self._lines) else BLANK
        base = self.rich_style
        segments = [Segment(span.text, self._style(span.role, base)) for span in spans]
        strip = Strip(segments, sum(cell_len(span.text) for span in spans))
        strip = strip.adjust_cell_length(self.size.width, base)
        selection = self.text_selection
        if selection is not None and (selected := selection.get_span(y)) is not None:
            start, end = selected
            end = strip.cell_length if end == -1 else min(end, strip.cell_length)
            style = self.screen.get_component_rich_style("screen--selection")
            start = min(start, end)
            parts = (
                strip.crop(0, start),
                Strip([Segment(strip.crop(start, end).text, style)], end - start),
                strip.crop(end),
            )
            strip = Strip.join(parts)
        return strip.apply_offsets(0, y)
