"""The base of all parts of a screen: draws lines computed from a scene, and only changed ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.reactive import Reactive
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
    # None of these scrolls: without this, Textual lays the screen out again for each new size.
    virtual_size = Reactive(Size(0, 0), repaint=False)

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self._scene: Scene | None = None
        self._lines: tuple[Line, ...] = ()
        self._drawn_for = Size(0, 0)
        self._styles_by_role: dict[Role, Style] = {}
        self._base: Style | None = None
        self._strips: dict[int, tuple[Line, int, Strip]] = {}

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
        drawn = self._drawn(self._scene)
        before = self._lines
        for row in range(max(len(before), len(drawn))):
            if before[row : row + 1] == tuple(drawn[row : row + 1]):
                # The same object, so that its strip is known by it.
                drawn[row] = before[row]
            else:
                self.refresh_row(row)
        self._lines = tuple(drawn)

    def _drawn(self, scene: Scene) -> list[Line]:
        self._drawn_for = self.size
        return [safe(spans, scene.glyphs) for spans in self.draw(scene)]

    def refresh_row(self, row: int) -> None:
        """Paint one row again."""
        self.refresh(Region(0, row, self.size.width, 1))

    def on_resize(self) -> None:
        """A new size needs new lines; the layout painted all rows, so that only others follow."""
        self.redraw()

    def notify_style_update(self) -> None:
        """A theme or a style sheet changed."""
        super().notify_style_update()
        self._styles_by_role.clear()
        self._strips.clear()
        self._base = None

    # Styles and strips are kept here because Textual forgets its own with every painted row.

    def _base_style(self) -> Style:
        if self._base is None:
            self._base = self.rich_style
        return self._base

    def _style(self, role: Role, base: Style) -> Style:
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
        if self._drawn_for != self.size and self._scene is not None:
            # A layout is painted before anybody is told of it, and is to show the new lines.
            self._lines = tuple(self._drawn(self._scene))
        spans = self._lines[y] if y < len(self._lines) else BLANK
        columns = self.size.width
        selection = self.text_selection
        selected = None if selection is None else selection.get_span(y)
        kept = self._strips.get(y)
        if selected is None and kept is not None and kept[0] is spans and kept[1] == columns:
            return kept[2]
        strip = self._strip(spans, columns)
        if selected is not None:
            start, end = selected
            end = strip.cell_length if end == -1 else min(end, strip.cell_length)
            style = self.screen.get_component_rich_style("screen--selection")
            start = min(start, end)
            parts = (
                strip.crop(0, start),
                Strip([Segment(strip.crop(start, end).text, style)], end - start),
                strip.crop(end),
            )
            return Strip.join(parts).apply_offsets(0, y)
        strip = strip.apply_offsets(0, y)
        self._strips[y] = (spans, columns, strip)
        return strip

    def _strip(self, spans: Line, columns: int) -> Strip:
        base = self._base_style()
        segments = [Segment(span.text, self._style(span.role, base)) for span in spans]
        strip = Strip(segments, sum(cell_len(span.text) for span in spans))
        return strip.adjust_cell_length(columns, base)
