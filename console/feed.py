"""The feed: follows one engine's ticks and comes back by itself.  Knows no widget.

One feed runs per shown engine.  It posts what it reads and touches nothing else.
"""

from __future__ import annotations

import asyncio
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

HISTORY_TICKS = 300
HISTORY_DECISIONS = 100
RETRY_MAX_S = 5.0
REFUSED_RETRY_S = 10.0
"""A refusal (a revoked token, say) is tried again slowly: somebody may repair it meanwhile."""
SILENT_POLLS = 20
SILENT_LEAST_S = 10.0
"""A stream that brings nothing for this long is not trusted: polls that fail are ticks too."""
STATUS_EVERY_S = 30.0


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
        self._last_id: int | None = None
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
        """Read who answers and, at the first time, what was stored before."""
        await self._status()
        if self._last_id is not None:
            return
        ticks = await self._client.ticks(self._engine_id, HISTORY_TICKS)
        decisions = await self._client.decisions(self._engine_id, HISTORY_DECISIONS)
        switches = await self._client.switches(self._engine_id, HISTORY_DECISIONS)
        # With the newest stored id the stream starts where the history ends: none is lost between.
        self._last_id = max((tick.id for tick in ticks), default=0)
        self._post(HistoryArrived(self._engine_id, tuple(ticks), tuple(decisions), tuple(switches)))

    async def _status(self) -> None:
        self._ask.clear()
        about = await self._client.about()
        self._clock.set(about.now_utc_ms)
        engines = tuple(await self._client.engines())
        for status in engines:
            if status.engine.engine_id == self._engine_id:
                self._silent_s = max(SILENT_LEAST_S, SILENT_POLLS * status.poll_s)
        self._post(StatusArrived(about, engines))

    async def _watch_status(self) -> None:
        while True:
            try:
                async with asyncio.timeout(STATUS_EVERY_S):
                    await self._ask.wait()
            except TimeoutError:
                pass
            await self._status()

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
                    self._last_id = tick.id
                    self._post(TickArrived(tick))
        except TimeoutError:
            raise UnreachableError(
                f"{self._client.url} is connected but sent no tick for {self._silent_s:.0f} s; "
                "is the control plane hanging?"
            ) from None


def _first(group: BaseExceptionGroup[ControlPlaneError]) -> ControlPlaneError:
    """One of the errors in the group; both tasks fail together when the connection goes."""
    for error in group.exceptions:
        return _first(error) if isinstance(error, BaseExceptionGroup) else error
    raise AssertionError("an exception group is never empty")
