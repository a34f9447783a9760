"""Commands of one engine on their way: in the background, one at a time, the newest counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine

from controlplane.pace import SOON_S, renews
from store.records import Command, CommandOutcome, OutcomeKind


class Sender:
    """Sends, so that polling goes on meanwhile.

    Args:
        put: carries a command to the engine; never raises for what an engine does.
        start: runs the sending beside everything else.
        told: hears each outcome.
        wake: asks for a poll at once.
    """

    def __init__(
        self,
        put: Callable[[Command], Awaitable[CommandOutcome]],
        *,
        start: Callable[[Coroutine[None, None, None]], None],
        told: Callable[[CommandOutcome], None],
        wake: Callable[[], None],
    ) -> None:
        self._put = put
        self._start = start
        self._told = told
        self._wake = wake
        self._next: Command | None = None
        self._taken: Command | None = None
        self._look_soon = False
        self._sending = False

    def send(self, command: Command, *, awaited: bool) -> None:
        """Send soon; of those that wait only the newest counts.

        Args:
            awaited: whether a decision waits for what the ranks do.
        """
        self._look_soon = awaited or not renews(command, self._taken)
        self._next = command
        if not self._sending:
            self._sending = True
            self._start(self._send_all())

    async def _send_all(self) -> None:
        try:
            while (command := self._next) is not None:
                self._next = None
                outcome = await self._put(command)
                self._taken = command if outcome.kind is OutcomeKind.ACCEPTED else None
                self._told(outcome)
                if self._next is None and self._look_soon:
                    # Whether the ranks obeyed, for a true latency.
                    asyncio.get_running_loop().call_later(SOON_S, self._wake)
        finally:
            self._sending = False
