"""The list of decisions, engine changes and gaps, and the pane that explains the selected one."""

from __future__ import annotations

from collections.abc import Sequence

from console.evidence import explained, page
from console.journal import Sieve, drawn, found, heading, sifted
from console.scene import Scene
from console.spans import Line, Role, Span, line, pad, rule
from console.widgets.row_list import RowList
from console.widgets.scene_view import SceneView


class JournalList(RowList):
    """Newest first."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.sieve = Sieve()
        self._shown: tuple[str, ...] = ()

    def sift(self, sieve: Sieve) -> None:
        """List other entries."""
        self.sieve = sieve
        self.redraw()

    def heading(self, scene: Scene, cells: int) -> Sequence[Line]:
        """What is listed."""
        self._shown = tuple(entry.key for entry in sifted(scene, self.sieve))
        return heading(scene, cells, self.sieve, len(self._shown))

    def keys(self, scene: Scene) -> Sequence[str]:  # noqa: ARG002
        """The entries' keys."""
        return self._shown

    def rows(self, scene: Scene, cells: int, keys: Sequence[str]) -> Sequence[Line]:
        """The entries' lines."""
        return drawn(scene, cells, keys, self.selected)

    def empty(self, scene: Scene, cells: int) -> Sequence[Line]:
        """Why there is none."""
        filtered = bool(scene.board.log)
        text = "nothing matches: esc clears the filter, f lists other kinds"
        return (pad(line(Span(f" {text if filtered else 'none yet'}", Role.LABEL)), cells),)


class WhyPane(SceneView):
    """The selected entry in full."""

    def __init__(self, entries: JournalList, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._entries = entries

    def draw(self, scene: Scene) -> Sequence[Line]:
        """Clauses, evidence, what would have to change."""
        cells, height = self.size
        title = rule((Span("why", Role.TITLE),), (), cells, scene.glyphs)
        entry = found(scene, self._entries.selected)
        if entry is None:
            return (title,)
        rows = page(explained(scene, entry), cells)[1:-1]
        if len(rows) > height - 1:
            rows = rows[: max(height - 2, 0)]
            more = line(Span(f" {scene.glyphs.ellipsis} enter shows all", Role.LABEL))
            rows = (*rows, more)
        return tuple(pad(row, cells, scene.glyphs) for row in (title, *rows))
