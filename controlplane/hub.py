"""The subscribers of live ticks: bounded queues, so that nobody can hold up the loop.

A subscriber that falls too far behind is dropped, not waited for: its stream ends, and it comes
back with ``Last-Event-ID``, to be served what it missed from the store.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Self

from fastapi.sse import format_sse_event

QUEUE_EVENTS = 256
"""Events a subscriber may lag behind before it is dropped."""
GATHER_S = 0.1
"""Seconds between two batches of one subscriber: with hundreds of engines a chunk for each tick
would cost more than all the rest.  The first event after a pause is not held back."""


@dataclass(frozen=True)
class Event:
    """A tick, ready to be sent.

    Args:
        id: the tick's row id; 0 while it is not stored.
        data: the tick as JSON, made once for all subscribers.
    """

    id: int
    engine_id: str
    data: str

    @cached_property
    def frame(self) -> bytes:
        """The server-sent event, made once for all subscribers too.

        Without an id while it is not stored: a client that comes back asks for what follows the
        last id, and gets this one as well.
        """
        row_id = str(self.id) if self.id else None
        return format_sse_event(event="tick", id=row_id, data_str=self.data)

    def follows(self, last: int | None) -> bool:
        """Whether a client that has seen row ``last`` has still to see it."""
        return not self.id or last is None or self.id > last


class HubFullError(Exception):
    """No further subscriber is taken."""


class Subscription:
    """One subscriber's queue; a context manager that leaves the hub at its end."""

    def __init__(self, hub: Hub, engine_id: str | None, limit: int) -> None:
        self._hub = hub
        self._engine_id = engine_id
        self._limit = limit
        self._events: deque[Event] = deque()
        self._wake = asyncio.Event()
        self._crowded = asyncio.Event()
        self._ended = False
        self.dropped = False
        """Whether the stream ended because its reader was too slow."""

    def offer(self, event: Event) -> None:
        """Queue ``event``, or end the stream if the reader is too far behind.  Never waits."""
        if self._ended or (self._engine_id is not None and event.engine_id != self._engine_id):
            return
        if len(self._events) >= self._limit:
            # What is queued is given up too: the reader must not take it for the newest.
            self._events.clear()
            self.dropped = True
            self.end()
            return
        self._events.append(event)
        self._wake.set()
        if len(self._events) >= self._limit // 2:
            self._crowded.set()

    def end(self) -> None:
        """End the stream after what is queued."""
        self._ended = True
        self._wake.set()
        self._crowded.set()

    async def batches(self, silence_s: float | None = None) -> AsyncGenerator[list[Event], None]:
        """The queued and coming events, until the hub closes or the reader is dropped.

        Args:
            silence_s: after so many seconds without an event an empty batch is yielded.
        """
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        while True:
            wait_s = next_s - loop.time()
            if wait_s > 0 and not self._ended and len(self._events) < self._limit // 2:
                await self._pause(wait_s)
            if self._events:
                batch = list(self._events)
                self._events.clear()
                yield batch
                next_s = loop.time() + GATHER_S
            elif self._ended:
                return
            else:
                self._wake.clear()
                try:
                    async with asyncio.timeout(silence_s):
                        await self._wake.wait()
                except TimeoutError:
                    yield []

    async def events(self, silence_s: float | None = None) -> AsyncGenerator[Event | None, None]:
        """As ``batches``, one by one; None stands for an empty batch."""
        async with aclosing(self.batches(silence_s)) as batches:
            async for batch in batches:
                if not batch:
                    yield None
                for event in batch:
                    yield event

    async def _pause(self, seconds: float) -> None:
        """Let events gather, but not into the last half of the queue."""
        self._crowded.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._crowded.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hub.leave(self)


class Hub:
    """Hands each published event to every subscriber.  For one event loop only."""

    def __init__(self, *, queue_events: int = QUEUE_EVENTS, max_subscribers: int = 1000) -> None:
        self._queue_events = queue_events
        self._max_subscribers = max_subscribers
        self._subscriptions: set[Subscription] = set()
        self._closed = False
        self.dropped = 0
        """Subscribers dropped for being slow, since the start."""

    @property
    def clients(self) -> int:
        """Subscribers now."""
        return len(self._subscriptions)

    def subscribe(self, engine_id: str | None = None) -> Subscription:
        """A new subscriber, of one engine or of all.

        Raises:
            HubFullError: there are as many as are allowed.
        """
        if len(self._subscriptions) >= self._max_subscribers:
            raise HubFullError(f"{self._max_subscribers} event streams are open, the limit")
        subscription = Subscription(self, engine_id, self._queue_events)
        if self._closed:
            subscription.end()
        else:
            self._subscriptions.add(subscription)
        return subscription

    def publish(self, event: Event) -> None:
        """Offer ``event`` to everybody; events come in the order of their ids."""
        for subscription in tuple(self._subscriptions):
            subscription.offer(event)
            if subscription.dropped:
                self.dropped += 1
                self._subscriptions.discard(subscription)

    def leave(self, subscription: Subscription) -> None:
        """Forget a subscriber."""
        self._subscriptions.discard(subscription)

    def close(self) -> None:
        """End every stream, so that the server can stop without cutting them."""
        self._closed = True
        for subscription in tuple(self._subscriptions):
            subscription.end()
        self._subscriptions.clear()
