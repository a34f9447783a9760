"""The list of named sessions of a control plane.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from console.formatting import MISSING, fill, moment, seconds
from console.scene import Scene
from console.spans import Line, Role, Span, line, pad, recolour, rule
from controlplane.sessions_messages import SessionInfo

ENGINE, BEGUN, LENGTH, STATE = 16, 13, 8, 10
"""Widths of the columns in cells; the name takes what is left."""


@dataclass(frozen=True, slots=True)
class SessionsBoard:
    """The sessions, newest first.

    Args:
        opening: name of the one that is being read; "" for none.
        trouble: why something could not be read; "" if all is well.
        asked: whether the list has come at least once.
    """

    sessions: tuple[SessionInfo, ...] = ()
    opening: str = ""
    trouble: str = ""
    asked: bool = False

    def of(self, key: str) -> SessionInfo | None:
        """The session with that row's key."""
        return next((one for one in self.sessions if str(one.id) == key), None)


def heading(scene: Scene, board: SessionsBoard, size: int) -> tuple[Line, ...]:
    """How many, and the titles."""
    count = len(board.sessions)
    word = "1 session" if count == 1 else f"{count} sessions"
    note = f"reading {board.opening}" if board.opening else "enter replays"
    role = Role.BANNER if board.opening else Role.LABEL
    rows = [rule((Span(word, Role.TITLE),), (Span(note, role),), size, scene.glyphs)]
    if board.trouble:
        text = f" {scene.glyphs.alarm} {board.trouble}"
        rows.append(pad(line(Span(text, Role.ALARM)), size, scene.glyphs))
    room = _room(size)
    titles = f"  {'session':<{room}} {'engine':<{ENGINE}} {'begun':<{BEGUN}} {'length':<{LENGTH}}"
    rows.append(pad(line(Span(titles, Role.LABEL)), size, scene.glyphs))
    return tuple(rows)


def drawn(
    scene: Scene, board: SessionsBoard, size: int, keys: Sequence[str], cursor: str | None
) -> tuple[Line, ...]:
    """One row for each of ``keys``."""
    found: list[Line] = []
    for key in keys:
        session = board.of(key)
        if session is not None:
            row = pad(_row(scene, session, size, key == cursor), size, scene.glyphs)
            found.append(recolour(row, Role.CURSOR) if key == cursor else row)
    return tuple(found)


def _room(size: int) -> int:
    return max(size - 2 - ENGINE - BEGUN - LENGTH - STATE - 4, 8)


def _row(scene: Scene, session: SessionInfo, size: int, selected: bool) -> Line:
    glyphs = scene.glyphs
    begun, ended = session.started_utc_ms, session.ended_utc_ms
    until = ended if ended is not None else scene.now_ms
    lasted = MISSING if begun is None else seconds(max(until - begun, 0) / 1000)
    state = "ended" if session.complete else "recording"
    return line(
        Span(f"{glyphs.cursor if selected else ' '} "),
        Span(fill(session.name, _room(size), glyphs), Role.VALUE),
        Span(f" {fill(session.engine_id, ENGINE, glyphs)} ", Role.TEXT),
        Span(f"{MISSING if begun is None else moment(begun, scene.zone):<{BEGUN}} ", Role.LABEL),
        Span(f"{lasted:<{LENGTH}} ", Role.TEXT),
        Span(state, Role.LABEL if session.complete else Role.ON),
    )


def empty(board: SessionsBoard, size: int) -> tuple[Line, ...]:
    """Why there is none."""
    text = "asking the control plane"
    if board.asked:
        text = "no named session: specdeck record start NAME --engine ID begins one"
    return (pad(line(Span(f" {board.trouble or text}", Role.LABEL)), size),)
