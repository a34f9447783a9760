"""The feed: follows one engine's ticks and comes back by itself.  Knows no widget.

One feed runs per shown engine.  It posts what it reads and touches nothing else.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import aclosing

from textual.message import Message

from console.clock import Clock
from console.messages import HistoryArrived, LinkChanged, StatusArrived, TickArrived
from console.scene import Link, LinkState
from controlplane.client import (
    RETRY_FIRST_S,
    ControlPlaneClient,
    ControlPlaneError,
    UnreachableError,
)
from store.records import Tick

HISTORY_S = 130.0
"""How far back ticks are read at first: what the trends show, and a little more."""
HISTORY_TICKS = 600
HISTORY_DECISIONS = 100
MISSED_TICKS = 2000
"""With more than so many missed, after a night asleep say, it begins anew and reads the newest."""
RETRY_MAX_S = 5.0
REFUSED_RETRY_S = 10.0
"""A refusal (a revoked token, say) is tried again slowly: somebody may repair it meanwhile."""
SILENT_POLLS = 20
SILENT_LEAST_S = 10.0
"""A stream that brings nothing for this long is not trusted: polls that fail are ticks too."""
STATUS_EVERY_S = 30.0
STATUS_LEAST_S = 2.0
"""Between two reads of the status, however often a tick hints at a change."""


class Feed:
    """Reads one engine's ticks from a control plane and posts them.

    Args:
        post: takes each message; must not block.
        clock: set from each answer that carries the control plane's time.
    """

    def __init__(
        self,
        client: ControlPlaneClient,
        engine_id: str,
        post: Callable[[Message], object],
        clock: Clock,
    ) -> None:
        self._client = client
        self._engine_id = engine_id
        self._post = post
        self._clock = clock
        self._last: Tick | None = None
        self._last_id = 0
        self._unstored: Tick | None = None
        self._silent_s = SILENT_LEAST_S
        self._wait_s = RETRY_FIRST_S
        self._ask = asyncio.Event()

    def ask_status(self) -> None:
        """Read the engines' identity and policy again soon: a tick says that they changed."""
        self._ask.set()

    async def run(self) -> None:
        """Follow for ever; ends only by cancellation."""
        while True:
            try:
                await self._catch_up()
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._follow())
                    tasks.create_task(self._watch_status())
            except* ControlPlaneError as group:
                error = _first(group)
            patient = isinstance(error, UnreachableError)
            wait_s = self._wait_s if patient else REFUSED_RETRY_S
            self._wait_s = min(2 * self._wait_s, RETRY_MAX_S)
            retry_at = self._clock.now_ms() + int(wait_s * 1000)
            self._post(LinkChanged(Link(LinkState.LOST, str(error), retry_at)))
            await asyncio.sleep(wait_s)

    async def _catch_up(self) -> None:
        """Read who answers, and what was stored before unless the stream can go on from there."""
        newest, poll_s = await self._status()
        if continues(self._last, newest):
            return
        limit = min(HISTORY_TICKS, math.ceil(HISTORY_S / poll_s))
        ticks = await self._client.ticks(self._engine_id, limit)
        decisions = await self._client.decisions(self._engine_id, HISTORY_DECISIONS)
        switches = await self._client.switches(self._engine_id, HISTORY_DECISIONS)
        # With the newest stored id the stream starts where the history ends: none is lost between.
        self._last = max(ticks, key=lambda tick: tick.id, default=None)
        self._last_id = 0 if self._last is None else self._last.id
        self._unstored = None
        self._post(HistoryArrived(self._engine_id, tuple(ticks), tuple(decisions), tuple(switches)))

    async def _status(self) -> tuple[Tick | None, float]:
        """Post who answers and the engine; its newest tick and its poll period."""
        self._ask.clear()
        about = await self._client.about()
        self._clock.set(about.now_utc_ms)
        status = await self._client.engine(self._engine_id)
        self._silent_s = max(SILENT_LEAST_S, SILENT_POLLS * status.poll_s)
        self._post(StatusArrived(about, (status,)))
        return status.tick, status.poll_s

    async def _watch_status(self) -> None:
        while True:
            try:
                async with asyncio.timeout(STATUS_EVERY_S):
                    await self._ask.wait()
            except TimeoutError:
                pass
            await self._status()
            await asyncio.sleep(STATUS_LEAST_S)

    async def _follow(self) -> None:
        def changed(error: ControlPlaneError | None) -> None:
            # Raised into the generator, it ends it: waiting is done here, where it can be shown.
            if error is not None:
                raise error
            self._post(LinkChanged(Link(LinkState.LIVE)))

        stream = self._client.events(self._engine_id, self._last_id, on_link=changed)
        loop = asyncio.get_running_loop()
        try:
            async with aclosing(stream), asyncio.timeout(self._silent_s) as limit:
                async for tick in stream:
                    limit.reschedule(loop.time() + self._silent_s)
                    self._wait_s = RETRY_FIRST_S
                    self._last_id = tick.id or self._last_id
                    # It comes again with its id once it is stored, or came with it already.
                    if was_shown(tick, self._unstored if tick.id else self._last):
                        continue
                    if not tick.id:
                        self._unstored = tick
                    self._last = tick
                    self._post(TickArrived(tick))
            raise UnreachableError(f"{self._client.url} ended the event stream")
        except TimeoutError:
            raise UnreachableError(
                f"{self._client.url} is connected but sent no tick for {self._silent_s:.0f} s; "
                "is the control plane hanging?"
            ) from None


def was_shown(tick: Tick, newest: Tick | None) -> bool:
    """Whether it was shown with or before ``newest``.

    A control plane that starts anew may give numbers out again that were never stored: those are
    later observations.
    """
    if newest is None:
        return False
    one, other = tick.observation, newest.observation
    return one.seq <= other.seq and one.at_utc_ms <= other.at_utc_ms


def continues(seen: Tick | None, newest: Tick | None) -> bool:
    """Whether a stream can go on behind ``seen``: the same store, and not too much missed.

    Row ids are shared by all engines of a control plane, so that counting takes the sequence.
    """
    if seen is None or newest is None or 0 < newest.id < seen.id:
        return False
    return 0 <= newest.observation.seq - seen.observation.seq <= MISSED_TICKS


def _first(group: BaseExceptionGroup[ControlPlaneError]) -> ControlPlaneError:
    """One of the errors in the group; both tasks fail together when the connection goes."""
    for error in group.exceptions:
        return _first(error) if isinstance(error, BaseExceptionGroup) else error
    raise AssertionError("an exception group is never empty")
