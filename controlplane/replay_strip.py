"""A recording's time line in a fixed number of cells.  Pure.

A day is 172,800 ticks; a line on a screen is a few dozen cells.  What a person looks for - a gap, a
switch, an alarm - may be one tick long, so that cells are made from all ticks and not from each
so-manieth one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controlplane.replay_player import Tape
from controlplane.sessions_messages import StripAnswer
from controlplane.whatif_messages import WhatIf
from store.session_track import Track


def cell_of(place: int, ticks: int, cells: int) -> int:
    """The cell of a tick's place; the first and the last tick stand in the outermost cells."""
    if ticks <= 1 or cells <= 1:
        return 0
    return min(max((2 * place * (cells - 1) + ticks - 1) // (2 * (ticks - 1)), 0), cells - 1)


def place_of(cell: int, ticks: int, cells: int) -> int:
    """The place that a cell stands for: its middle."""
    if ticks <= 1 or cells <= 1:
        return 0
    return min(max((2 * cell * (ticks - 1) + cells - 1) // (2 * (cells - 1)), 0), ticks - 1)


def strip(track: Track, tape: Tape, cells: int, what_if: WhatIf | None = None) -> StripAnswer:
    """The time line of a recording.

    Args:
        what_if: the last one asked; its tiers stand beside the recorded ones.
    """
    count = len(tape.seqs)
    tiers: list[str | None] = [None] * cells
    filled = [False] * cells
    gaps: set[int] = set()
    recorded: list[str | None] = track["engine_tier"]
    for place, (tier, gap) in enumerate(zip(recorded, track["gap"], strict=True)):
        cell = cell_of(place, count, cells)
        filled[cell] = True
        if gap:
            gaps.add(cell)
        elif tier is not None:
            tiers[cell] = tier
    asked = () if what_if is None else tuple(_asked(tape, recorded, track["gap"], what_if, cells))
    for cell in range(cells):
        if not filled[cell]:
            tiers[cell] = recorded[place_of(cell, count, cells)]
    return StripAnswer(
        cells=cells,
        tiers=tuple(tiers),
        what_if=asked,
        gaps=tuple(sorted(gaps)),
        marks={
            mark: tuple(sorted({cell_of(tape.place_of(seq), count, cells) for seq in seqs}))
            for mark, seqs in tape.marks.items()
        },
        first_utc_ms=tape.utc_ms[0],
        last_utc_ms=tape.utc_ms[-1],
        most={
            "concurrency": _most(track["concurrency"]),
            "decode": _most(track["decode_tok_s"]),
            "queue": _most(track["queued"]),
        },
    )


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _asked(
    tape: Tape, recorded: Sequence[str | None], gaps: Sequence[int], found: WhatIf, cells: int
) -> Iterable[str | None]:
    """The tier of each cell under the other policy, as far as its changes are listed."""
    turns = found.what_if.turns
    complete = len(turns) == found.what_if.switches
    first = next((tier for tier in recorded if tier is not None), None)
    changes = [(0, turns[0].from_tier if turns else first)]
    changes += [(tape.place_of(turn.seq), turn.to_tier) for turn in turns]
    count, at = len(tape.seqs), 0
    for cell in range(cells):
        place = place_of(cell, count, cells)
        while at + 1 < len(changes) and changes[at + 1][0] <= place:
            at += 1
        known = complete or at + 1 < len(changes)
        yield changes[at][1] if known and not gaps[place] else None
