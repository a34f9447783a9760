"""Ties virtual time to wall time, and measures how well that works.

One timer, no task per request: when the next event of any replica is due, all of them advance.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine_patch.embedded.core import Engine
from engine_patch.embedded.requests import Request

EARLY_MS = 1.0
"""Events this close are handled now: an event loop's timers are a millisecond coarse."""
LAG_LIMIT = 0.02
WINDOW_MS = 10_000.0
JUDGED_AFTER_MS = 1000.0
"""Request time that a window, or a run, must hold before it is judged."""


@dataclass(slots=True)
class _Slot:
    second: int
    late_ms: float = 0.0
    lasted_ms: float = 0.0


class Lag:
    """How far answers fell behind the simulated times.

    The lag is the time by which answers left late, as a share of the time their requests took: over
    the last ten seconds, and over the run.  What is overdue at the moment counts as well.  Time
    before the answer leaves is ours (the simulation, and the queue of the event loop); the network
    is not.
    """

    def __init__(self) -> None:
        self._slots: deque[_Slot] = deque()
        self._late_ms = 0.0
        self._lasted_ms = 0.0
        self.broken = False

    def answered(self, late_ms: float, lasted_ms: float, now_ms: float) -> None:
        """An answer left ``late_ms`` after its simulated time; its request took ``lasted_ms``."""
        second = int(now_ms // 1000)
        if not self._slots or self._slots[-1].second != second:
            self._slots.append(_Slot(second))
        late_ms = max(0.0, late_ms)
        slot = self._slots[-1]
        slot.late_ms += late_ms
        slot.lasted_ms += lasted_ms
        self._late_ms += late_ms
        self._lasted_ms += lasted_ms
        self.judge(now_ms)

    def judge(self, now_ms: float, overdue_ms: float = 0.0) -> tuple[float, bool]:
        """The greater of both lags, and whether the run is still valid."""
        oldest = (now_ms - WINDOW_MS) // 1000
        while self._slots and self._slots[0].second < oldest:
            self._slots.popleft()
        window = _share(
            sum(slot.late_ms for slot in self._slots) + overdue_ms,
            sum(slot.lasted_ms for slot in self._slots) + overdue_ms,
        )
        lag = max(window, _share(self._late_ms + overdue_ms, self._lasted_ms + overdue_ms))
        if lag > LAG_LIMIT:
            self.broken = True
        return lag, not self.broken


def _share(late_ms: float, lasted_ms: float) -> float:
    return min(1.0, late_ms / lasted_ms) if lasted_ms >= JUDGED_AFTER_MS else 0.0


class Pacer:
    """Advances replicas as wall time passes.

    Args:
        clock_ms: virtual now.
        left: called with each request that left its engine.
        progressed: called with each streaming request that got tokens.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        clock_ms: Callable[[], float],
        left: Callable[[Request], None],
        progressed: Callable[[Request], None],
    ) -> None:
        self.engines = engines
        self._clock_ms = clock_ms
        self._left = left
        self._progressed = progressed
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0.0
        self._closed = False

    def catch_up(self) -> float:
        """Advance everything to now; returns virtual now."""
        now = self._clock_ms()
        for engine in self.engines:
            for request in engine.advance(now + EARLY_MS):
                self._left(request)
            if engine.progressed:
                news, engine.progressed = engine.progressed, []
                for request in news:
                    self._progressed(request)
        self._arm(now)
        return now

    def overdue_ms(self) -> float:
        """By how much the next event is late."""
        due = self._next()
        return 0.0 if due is None else max(0.0, self._clock_ms() - due - EARLY_MS)

    def submitted(self) -> None:
        """Something new may be due earlier than what was waited for."""
        self._arm(self._clock_ms())

    def close(self) -> None:
        """Stop for good."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _next(self) -> float | None:
        dues = [due for engine in self.engines if (due := engine.next_event_ms) is not None]
        return min(dues, default=None)

    def _arm(self, now_ms: float) -> None:
        due = None if self._closed else self._next()
        if self._timer is not None:
            if due is not None and self._due_ms <= due:
                return
            self._timer.cancel()
            self._timer = None
        if due is not None:
            wait_s = max(0.0, due - EARLY_MS - now_ms) / 1000
            self._due_ms = due
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.catch_up()
