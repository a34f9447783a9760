"""What the console knows of a replay: where it stands, its time line, what was asked of it.  Pure.

The engine itself is a ``console.board.Board``, built by the same ``apply`` as live.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from console.board import LEAST_TOPS, WINDOW_MS, Board, seeded, with_status
from console.formatting import ASCII, UNICODE, Glyphs
from console.trend import nice_top
from controlplane.messages import EngineStatus
from controlplane.replay_messages import Verification
from controlplane.replay_player import FASTEST, SLOWEST
from controlplane.sessions_messages import ReplayRequest, ReplayState, StripAnswer
from controlplane.whatif_messages import WhatIf
from store.records import Decision, EngineSwitch, Marker, Tick

SPEEDS = (SLOWEST, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 125.0, 250.0, 500.0, FASTEST)
MARKER_TICKS = 20
"""A marker is shown for so many ticks after its own."""
SEED_LEAST, SEED_MOST = 60, 1000
"""Ticks read up to a position: what the trends show, within these bounds."""

GLYPHS = replace(UNICODE, box=("╔", "╗", "╚", "╝", "═", "║"))
ASCII_GLYPHS = replace(ASCII, box=("=", "=", "=", "=", "=", "|"))
"""Other frames than live, so that the two cannot be taken for each other."""


@dataclass(frozen=True, slots=True)
class ReplayBoard:
    """A replay as the console knows it.

    Args:
        board: the engine at the position.
        state: None until the replay has answered.
        strip: the time line, for the width it was last asked for.
        markers: all of the recording, in order.
        busy: what is being computed, in a word; "" for nothing.
        trouble: why the replay does not answer; "" if it does.
    """

    board: Board
    state: ReplayState | None = None
    strip: StripAnswer | None = None
    markers: tuple[Marker, ...] = ()
    what_if: WhatIf | None = None
    verified: Verification | None = None
    busy: str = ""
    trouble: str = ""

    @property
    def now_ms(self) -> int:
        """The recording's wall time at the position."""
        tick = self.board.tick
        if tick is not None:
            return tick.observation.at_utc_ms
        return 0 if self.state is None or self.state.at_utc_ms is None else self.state.at_utc_ms

    @property
    def marker(self) -> Marker | None:
        """The marker that the position has just passed."""
        seq = None if self.state is None else self.state.seq
        if seq is None:
            return None
        near = [one for one in self.markers if seq - MARKER_TICKS < one.seq <= seq]
        return near[-1] if near else None


def glyphs_of(ascii_only: bool) -> Glyphs:
    """The signs of a replay."""
    return ASCII_GLYPHS if ascii_only else GLYPHS


def seed_count(poll_s: float) -> int:
    """Ticks that fill the trends at this poll period."""
    wanted = round((WINDOW_MS + 10_000) / 1000 / max(poll_s, 0.001)) + 1
    return min(max(wanted, SEED_LEAST), SEED_MOST)


def seen_from(
    status: EngineStatus,
    strip: StripAnswer | None,
    ticks: Iterable[Tick],
    decisions: Iterable[Decision],
    switches: Iterable[EngineSwitch],
) -> Board:
    """The engine at a position, from what lies before it.

    The ends of the ranges are those of the whole recording, so that heights compare wherever the
    replay stands.
    """
    most = {} if strip is None else strip.most
    tops = {name: max(least, nice_top(most.get(name) or 0.0)) for name, least in LEAST_TOPS.items()}
    board = replace(Board(status.engine.engine_id), tops=tops)
    return seeded(with_status(board, status), ticks, decisions, switches)


def other_speed(speed: float, step: int) -> float:
    """The next faster (1) or slower (-1) speed of the ladder."""
    if step > 0:
        return next((one for one in SPEEDS if one > speed), FASTEST)
    return next((one for one in reversed(SPEEDS) if one < speed), SLOWEST)


def merged(orders: Sequence[ReplayRequest]) -> list[ReplayRequest]:
    """The orders with neighbouring steps added up: a key that is held down is one request."""
    kept: list[ReplayRequest] = []
    for order in orders:
        last = kept[-1] if kept else None
        if last is not None and last.step is not None and order.step is not None:
            kept[-1] = ReplayRequest(step=last.step + order.step)
        else:
            kept.append(order)
    return kept
