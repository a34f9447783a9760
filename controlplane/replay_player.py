"""Where a replay stands: play, pause, seek, speed, jumps.  Pure: time is an argument.

The tape is ordered by sequence number.  Its time is the recording's own monotonic time, so that a
wall clock that was set back meanwhile neither stops nor repeats anything; a longer pause of the
recorder is shortened to ``LONGEST_MS``.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from store.session_track import Track

SLOWEST, FASTEST = 0.25, 1000.0
LONGEST_MS = 10_000


class Mark(StrEnum):
    """What a replay can jump to."""

    DECISION = "decision"
    DIFFERENCE = "difference"
    """Where a what-if or a verification parts from the recording."""
    MARKER = "marker"
    ALARM = "alarm"


@dataclass(frozen=True)
class Tape:
    """The ticks of a recording on one time line.

    Args:
        seqs: sequence numbers, rising.
        times_ms: when each stands on the tape, from 0, never falling.
        utc_ms: wall time of each, for people.
        marks: sequence numbers to jump to, by kind, rising.
    """

    seqs: tuple[int, ...]
    times_ms: tuple[int, ...]
    utc_ms: tuple[int, ...]
    marks: Mapping[Mark, tuple[int, ...]]

    @classmethod
    def of(cls, track: Track, markers: Iterable[int] = ()) -> Self:
        """The tape of a track.

        Args:
            markers: observations at which markers stand.
        """
        times: list[int] = []
        at = last_mono = last_utc = 0
        clock: str | None = None
        for mono, utc, name in zip(
            track["at_mono_ms"], track["at_utc_ms"], track["clock_id"], strict=True
        ):
            if clock is not None:
                passed = mono - last_mono if name == clock else utc - last_utc
                at += min(max(passed, 0), LONGEST_MS)
            times.append(at)
            clock, last_mono, last_utc = name, mono, utc
        seqs = tuple(track["seq"])
        alarms, before = [], 0
        for seq, raised in zip(seqs, track["alarms"], strict=True):
            if raised > before:
                alarms.append(seq)
            before = raised
        decisions = (
            seq for seq, made in zip(seqs, track["decision"], strict=True) if made is not None
        )
        marks = {
            Mark.DECISION: tuple(decisions),
            Mark.DIFFERENCE: (),
            Mark.MARKER: tuple(sorted(set(markers))),
            Mark.ALARM: tuple(alarms),
        }
        return cls(seqs, tuple(times), tuple(track["at_utc_ms"]), marks)

    def with_differences(self, seqs: Sequence[int]) -> Self:
        """The tape with the places at which a what-if or a verification parts from it."""
        return replace(self, marks={**self.marks, Mark.DIFFERENCE: tuple(sorted(set(seqs)))})

    def place_of(self, seq: int) -> int:
        """The place of a sequence number, or of the last one before it."""
        return max(bisect.bisect_right(self.seqs, seq) - 1, 0)

    def place_at(self, utc_ms: int) -> int:
        """The last place whose wall time is not later; wall time may have been set back, so the
        tape is searched from its end."""
        for place in range(len(self.utc_ms) - 1, -1, -1):
            if self.utc_ms[place] <= utc_ms:
                return place
        return 0

    @property
    def length_ms(self) -> int:
        """How long it plays at speed 1."""
        return self.times_ms[-1] if self.times_ms else 0


@dataclass(frozen=True)
class Player:
    """A position on the tape that moves with time.

    Args:
        tape_ms: position when ``since_ms`` was now.
        speed: tape time per time, from ``SLOWEST`` to ``FASTEST``.
    """

    tape: Tape
    tape_ms: float = 0.0
    since_ms: float = 0.0
    speed: float = 1.0
    playing: bool = False

    def time_ms(self, now_ms: float) -> float:
        """The position on the tape now."""
        if not self.playing:
            return self.tape_ms
        moved = self.tape_ms + (now_ms - self.since_ms) * self.speed
        return min(max(moved, 0.0), float(self.tape.length_ms))

    def place(self, now_ms: float) -> int:
        """The last tick that the position has reached."""
        return max(bisect.bisect_right(self.tape.times_ms, self.time_ms(now_ms)) - 1, 0)

    def ended(self, now_ms: float) -> bool:
        """Whether the last tick is reached."""
        return self.time_ms(now_ms) >= self.tape.length_ms

    def play(self, now_ms: float) -> Self:
        """Go on from here; from the beginning if the end was reached."""
        at = 0.0 if self.ended(now_ms) else self.time_ms(now_ms)
        return replace(self, tape_ms=at, since_ms=now_ms, playing=True)

    def pause(self, now_ms: float) -> Self:
        """Stay here."""
        return replace(self, tape_ms=self.time_ms(now_ms), since_ms=now_ms, playing=False)

    def at_speed(self, speed: float, now_ms: float) -> Self:
        """Another speed from here on, within the bounds."""
        bounded = min(max(speed, SLOWEST), FASTEST)
        return replace(self, tape_ms=self.time_ms(now_ms), since_ms=now_ms, speed=bounded)

    def sought(self, place: int, now_ms: float) -> Self:
        """At another tick."""
        place = min(max(place, 0), max(len(self.tape.seqs) - 1, 0))
        at = float(self.tape.times_ms[place]) if self.tape.times_ms else 0.0
        # Several ticks may share a time; the position must name this one while it stands still.
        return replace(self, tape_ms=at, since_ms=now_ms)

    def sought_time(self, tape_ms: float, now_ms: float) -> Self:
        """At a moment of recorded time, within its bounds."""
        at = min(max(tape_ms, 0.0), float(self.tape.length_ms))
        return replace(self, tape_ms=at, since_ms=now_ms)

    def jumped(self, mark: Mark, now_ms: float, *, back: bool = False) -> Self | None:
        """At the next (or last) mark of a kind; None if there is none that way."""
        marks = self.tape.marks.get(mark, ())
        here = self.tape.seqs[self.place(now_ms)] if self.tape.seqs else 0
        at = bisect.bisect_left(marks, here) - 1 if back else bisect.bisect_right(marks, here)
        if not 0 <= at < len(marks):
            return None
        return self.sought(self.tape.place_of(marks[at]), now_ms)
