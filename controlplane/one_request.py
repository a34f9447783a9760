"""At most one request at a time to one endpoint, however long the engine takes.

A poller that gives up and asks again piles requests up on an engine that hangs.  Here a request
that was given up stays the only one until it ends; what it brings then is thrown away, because it
tells of an earlier time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class OneRequest(Generic[T]):
    """The line to one endpoint."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._left: asyncio.Task[T] | None = None

    async def ask(self, send: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        """Send a request once the line is free, and wait for its answer.

        Args:
            send: sends it; must end by itself in bounded time, else the line stays taken.
            timeout_s: seconds to wait, for the line and for the answer together.

        Raises:
            TimeoutError: no answer in time; the request is left alone and nothing else is sent
                until it ended.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        async with asyncio.timeout_at(until):
            await self._turn.acquire()
        try:
            if self._left is not None:
                await asyncio.wait({self._left}, timeout=max(0.0, until - loop.time()))
                if not self._left.done():
                    raise TimeoutError
                self._left = None
            task = asyncio.ensure_future(send())
            # Nobody may ever ask for the outcome of a request that was left.
            task.add_done_callback(_look_at)
            self._left = task
            await asyncio.wait({task}, timeout=max(0.0, until - loop.time()))
            if not task.done():
                raise TimeoutError
            self._left = None
            return task.result()
        finally:
            self._turn.release()

    async def close(self) -> None:
        """Give up a request that is still out."""
        if self._left is not None:
            self._left.cancel()
            await asyncio.wait({self._left})
            self._left = None


def _look_at(task: asyncio.Future[T]) -> None:
    if not task.cancelled():
        task.exception()
