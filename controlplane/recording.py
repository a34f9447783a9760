"""What one engine's loop writes down.  Control never waits for the store longer than a moment.

A tick is published with its row id once it is stored.  One that is not stored in time goes on with
id 0: its write waits in memory until the database can be written again (``store.backlog``).  Only
when too many wait is a tick left out; that is counted, and a marker says so where recording goes
on.  Decisions, engine switches and ends of overrides are kept here then, and written later.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from controlplane.clock import SystemClock
from store.db import Record, Store
from store.errors import StoreError, StoreOverloaded, StoreRefused
from store.marks import AUTHOR, NOT_RECORDED
from store.records import ControlInput, Marker, RawScrape, Tick

log = logging.getLogger("specdeck.engine")

WAIT_S = 1.0
"""Seconds that control waits for a write; a healthy disk takes milliseconds."""
OWED_LIMIT = 1000
"""Records kept here for later, per engine."""


@dataclass
class _Lost:
    """Observations in a row that were left out."""

    first_seq: int
    last_seq: int
    count: int
    why: str


class Recorder:
    """Writes for one engine.

    Args:
        publish: told every stored tick, with its id; of all engines in the order of ids.
        lost: called when a tick and its inputs are lost to a replay.
    """

    def __init__(
        self,
        engine_id: str,
        store: Store,
        clock: SystemClock,
        *,
        publish: Callable[[Tick], None],
        lost: Callable[[], None],
    ) -> None:
        self._engine_id = engine_id
        self._store = store
        self._clock = clock
        self._publish = publish
        self._told_lost = lost
        self._owed: deque[Record] = deque()
        self._late = 0
        self._lost: _Lost | None = None
        self.trouble = ""
        """Why the newest tick is not stored, in a sentence; "" if it is."""
        self.unrecorded = 0
        """Ticks left out since the start."""
        self.owed_lost = 0
        """Decisions and other records given up since the start, because too many waited here."""

    @property
    def owed(self) -> int:
        """Decisions and other records kept here for later."""
        return len(self._owed)

    async def record(
        self, tick: Tick, inputs: Sequence[ControlInput], records: Sequence[Record]
    ) -> Tick:
        """The tick as stored, or with id 0 if it is not stored in time; ``trouble`` tells why."""
        parts: list[Record] = [tick, *inputs, *records]
        known = self._late > 0 or bool(self._store.state.trouble)
        written = self._store.write(parts, keep=True)
        refused = written.exception() if written.done() else None
        if isinstance(refused, StoreOverloaded):
            self._leave_out(tick, records, refused)
            return tick
        self._go_on(tick)
        future = asyncio.wrap_future(written)
        late = _Late()
        future.add_done_callback(lambda done: self._settled(done, late))
        if not known:
            await self._wait_for(future)
        if not future.done():
            late.late = True
            self._late += 1
            self.trouble = self._waits()
            return tick
        error = future.exception()
        if isinstance(error, StoreRefused) and records:
            # One record contradicts the store: the tick and the others are still worth keeping.
            stored = await self.record(tick, inputs, ())
            for record in records:
                self.keep([record])
            self.trouble = self._failed(error)
            return stored
        if error is not None:
            assert isinstance(error, StoreError)
            self._leave_out(tick, records, error)
            return tick
        stored_tick = future.result()[0]
        assert isinstance(stored_tick, Tick)
        self.trouble = ""
        self._pay()
        return stored_tick

    async def _wait_for(self, future: asyncio.Future[list[Record]]) -> None:
        """A moment, in two halves: a process that was stopped meanwhile only misses one of them."""
        for _ in range(2):
            await asyncio.wait({future}, timeout=WAIT_S / 2)
            if future.done():
                return

    def keep(self, records: Sequence[Record]) -> Future[list[Record]]:
        """Store records that must not be lost, now or later; nobody needs to wait for it."""
        written = self._store.write(records, keep=True)
        written.add_done_callback(lambda done: self._kept(done, records))
        return written

    async def keep_soon(self, records: Sequence[Record]) -> None:
        """As ``keep``, waiting for it a moment."""
        future = asyncio.wrap_future(self.keep(records))
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait({future}, timeout=WAIT_S)

    def _kept(self, done: Future[list[Record]], records: Sequence[Record]) -> None:
        """Runs on any thread."""
        error = done.exception()
        if isinstance(error, StoreOverloaded):
            self._owe(records)
        elif error is not None:
            log.error("engine %s: not recorded: %s", self._engine_id, error)

    def _settled(self, done: asyncio.Future[list[Record]], late: _Late) -> None:
        """A tick's write came to its end; those of all engines do in the order of their ids."""
        if done.cancelled():
            return
        error = done.exception()
        self._late -= late.late
        if error is None:
            stored = done.result()[0]
            assert isinstance(stored, Tick)
            self._publish(stored)
        elif late.late:
            self.unrecorded += 1
            self._told_lost()
            log.error("engine %s: a late tick is not recorded: %s", self._engine_id, error)

    def _leave_out(self, tick: Tick, records: Sequence[Record], error: StoreError) -> None:
        seq = tick.observation.seq
        if self._lost is None:
            self._lost = _Lost(seq, seq, 0, str(error))
        self._lost.last_seq = seq
        self._lost.count += 1
        self.unrecorded += 1
        self._owe([one for one in records if not isinstance(one, RawScrape)])
        # A replay cannot know what was missed: it goes on from the next checkpoint.
        self._told_lost()
        self.trouble = self._failed(error)

    def _go_on(self, tick: Tick) -> None:
        """Recording goes on: say in the record what is missing before it."""
        lost, self._lost = self._lost, None
        if lost is not None:
            log.warning(
                "engine %s is recorded again; %d observations were not (%d to %d)",
                self._engine_id,
                lost.count,
                lost.first_seq,
                lost.last_seq,
            )
            marker = Marker(
                engine_id=self._engine_id,
                at_utc_ms=self._clock.utc_ms(),
                seq=tick.observation.seq,
                kind=NOT_RECORDED,
                author=AUTHOR,
                text=f"{lost.count} observations before this one ({lost.first_seq} to "
                f"{lost.last_seq}) were not recorded: {lost.why}",
            )
            self._owe([marker])

    def _owe(self, records: Sequence[Record]) -> None:
        for record in records:
            if len(self._owed) >= OWED_LIMIT:
                self.owed_lost += 1
                log.error("engine %s: given up, too much waits: %r", self._engine_id, record)
            else:
                self._owed.append(record)

    def _pay(self) -> None:
        """Write what is kept here, each on its own: one that is refused takes no other along."""
        for _ in range(len(self._owed)):
            self.keep([self._owed.popleft()])

    def _waits(self) -> str:
        state = self._store.state
        why = state.trouble or f"the database did not answer within {WAIT_S:g} s"
        return (
            f"engine {self._engine_id} is recorded in memory alone for now, {state.waiting} writes "
            f"wait: {why}"
        )

    def _failed(self, error: BaseException) -> str:
        owed = f" {self.owed} decisions and other records wait in memory." if self._owed else ""
        return f"engine {self._engine_id} is not recorded: {error}{owed}"


@dataclass
class _Late:
    """Whether control went on before the tick was stored."""

    late: bool = False
