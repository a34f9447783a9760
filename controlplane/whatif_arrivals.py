"""The same arrivals under another tier: how many requests would have been running.  Pure.

A faster tier answers sooner, so fewer requests run at a time; with the load as recorded that is
left out.  Here every recorded arrival is replayed as work: the decode tokens that its request got
in the recording, all running requests sharing the tokens alike.  Under the recorded tiers this
gives the recorded course again; under other tiers requests finish earlier or later.

What cannot be known: which request finished when (the first to come is taken to be the first to
go), and whether clients would have sent other requests had they been answered at another time.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from controlplane.whatif_moments import Moment


@dataclass(frozen=True)
class Arrivals:
    """Recorded requests as work.

    Args:
        works: by moment, the decode tokens of each request that arrives until the next moment;
            the first moment of a start also holds those that were there already.
        mean: of the requests that were seen to finish.
        cut: requests whose end was not seen; their work is at least the mean.
    """

    works: tuple[tuple[float, ...], ...]
    mean: float
    cut: int


class _Reader:
    """Follows the recorded requests: where each came, and how much it got while it ran."""

    def __init__(self, count: int) -> None:
        self.works: list[list[float]] = [[] for _ in range(count)]
        self.done = 0
        self.tokens = 0.0
        self.unended: list[tuple[int, float]] = []
        self.waiting: deque[int] = deque()
        self.running: deque[tuple[int, float]] = deque()
        self.level = 0.0

    def come(self, place: int, count: int) -> None:
        self.waiting.extend([place] * count)

    def admit(self, running: int, level: float) -> None:
        while self.waiting and len(self.running) < running:
            self.running.append((self.waiting.popleft(), level))

    def go(self, count: int, level: float) -> None:
        for _ in range(count):
            if not self.running:
                if not self.waiting:
                    return
                self.running.append((self.waiting.popleft(), self.level))
            place, start = self.running.popleft()
            work = max(level - start, 1.0)
            self.works[place].append(work)
            self.done += 1
            self.tokens += work

    def cut(self) -> None:
        """What is present now is not seen to end."""
        self.unended += [(place, self.level - start) for place, start in self.running]
        self.unended += [(place, 0.0) for place in self.waiting]
        self.running.clear()
        self.waiting.clear()


def arrivals_of(moments: Sequence[Moment]) -> Arrivals | None:
    """The arrivals of a recording; None if the engine does not count finished requests."""
    if not any(moment.finished for moment in moments):
        return None
    reader = _Reader(len(moments))
    known = False
    for at, moment in enumerate(moments):
        if not known or moment.first:
            reader.cut()
            reader.come(at, moment.total + (moment.waiting or 0))
            reader.admit(moment.total, reader.level)
        known = moment.dt_ms > 0 and at + 1 < len(moments)
        if not known:
            continue
        following = moments[at + 1]
        done = moment.finished or 0
        before = moment.total + (moment.waiting or 0)
        after = following.total + (following.waiting or 0)
        share = (moment.tokens or 0) / max((moment.total + following.total) / 2, 0.5)
        # Half an interval is what a request that comes or goes in it gets on average.
        middle = reader.level + share / 2
        reader.come(at, max(after - before + done, 0))
        reader.admit(following.total + done, middle)
        reader.go(done, middle)
        reader.level += share
    reader.cut()
    # What came out is known exactly; how it was shared is not.
    told = reader.tokens + sum(got for _, got in reader.unended)
    scale = sum(one.tokens or 0 for one in moments) / told if told else 1.0
    mean = scale * reader.tokens / max(reader.done, 1)
    works = [[work * scale for work in one] for one in reader.works]
    for place, got in reader.unended:
        works[place].append(max(got * scale, mean))
    return Arrivals(tuple(tuple(one) for one in works), mean, len(reader.unended))


class Queue:
    """Requests sharing the engine; advanced from moment to moment.

    Args:
        most: ``max_running_requests``; what comes beyond waits.
    """

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._level = 0.0
        self._targets: list[float] = []
        self._waiting: deque[float] = deque()
        self.admitted = 0
        """Requests taken into the running batch so far."""

    @property
    def running(self) -> int:
        """Requests that share the engine."""
        return len(self._targets)

    @property
    def count(self) -> int:
        """Requests that are not done."""
        return len(self._targets) + len(self._waiting)

    def come(self, works: Sequence[float]) -> None:
        """Requests arrive."""
        self._waiting.extend(works)
        self._admit()

    def clear(self) -> None:
        """The engine restarted: what ran is gone."""
        self._targets.clear()
        self._waiting.clear()

    def left(self) -> Iterator[float]:
        """Work that is left, by request."""
        yield from (target - self._level for target in self._targets)
        yield from self._waiting

    def advance(self, tok_s: float, seconds: float) -> float:
        """Decode for so long at so many tokens a second; returns the tokens that came out.

        Args:
            tok_s: of all requests together at their present number; it scales with their number
                while some finish.
        """
        made = 0.0
        while self._targets and seconds > 0 and tok_s > 0:
            each = tok_s / len(self._targets)
            need = (self._targets[0] - self._level) / each
            if need > seconds:
                self._level += each * seconds
                return made + tok_s * seconds
            self._level = self._targets[0]
            made += need * tok_s
            seconds -= need
            heapq.heappop(self._targets)
            self._admit()
            tok_s = each * len(self._targets)
        return made

    def _admit(self) -> None:
        while self._waiting and (self._most is None or len(self._targets) < self._most):
            heapq.heappush(self._targets, self._level + self._waiting.popleft())
            self.admitted += 1
