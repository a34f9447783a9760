"""Pages of the replay screen that are read: the what-if, the verification, the help."""

from __future__ import annotations

from collections.abc import Sequence

from console.formatting import plain_ascii
from console.replay_board import ReplayBoard
from console.replay_lines import sign_rows
from console.replay_whatif import page, verify_page
from console.scene import Scene
from console.screens.help import Help
from console.screens.reader import Reader
from console.spans import BLANK, Line, Role, Span, line, rule


class WhatIfPage(Reader):
    """Everything about a what-if."""

    heading = "What if"

    def __init__(self, scene: Scene, replay: ReplayBoard) -> None:
        super().__init__(scene)
        self._replay = replay

    def lines(self, scene: Scene, cells: int) -> Sequence[Line]:
        """The page."""
        return page(scene, self._replay, cells)


class VerifyPage(Reader):
    """Everything about a verification."""

    heading = "Verify"

    def __init__(self, scene: Scene, replay: ReplayBoard) -> None:
        super().__init__(scene)
        self._replay = replay

    def lines(self, scene: Scene, cells: int) -> Sequence[Line]:
        """The page."""
        assert self._replay.verified is not None
        return verify_page(scene, self._replay.verified, cells)


class ReplayHelp(Help):
    """The help of live, and the time line's signs."""

    def lines(self, scene: Scene, cells: int) -> Sequence[Line]:
        """The help text."""
        rows = [*super().lines(scene, cells)]
        rows += [BLANK, rule((Span("time line", Role.TITLE),), (), cells, scene.glyphs)]
        for sign, words in sign_rows(scene.glyphs):
            text = plain_ascii(words) if scene.glyphs.ascii else words
            rows.append(line(Span(f" {sign:<13}", Role.VALUE), text))
        return rows
