"""Reads what the open screen needs beside the stream of ticks.  Knows no widget.

One task per need, at most one request of each at a time, so that a slow answer delays only itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from textual.message import Message

from console.lookups import EVERY_S, FLEET_ASIDE_S
from console.messages import LookedUp
from console.places import Need
from controlplane.client import ControlPlaneClient, ControlPlaneError
from controlplane.messages import Fleet

AUDIT_ROWS = 500


class Asker:
    """Keeps what is needed up to date.

    Args:
        post: takes each message; must not block.
        wanted: the engine that is shown and what the open screen needs.
    """

    def __init__(
        self,
        client: ControlPlaneClient,
        post: Callable[[Message], object],
        wanted: Callable[[], tuple[str, frozenset[Need]]],
    ) -> None:
        self._client = client
        self._post = post
        self._wanted = wanted
        self._wake = {need: asyncio.Event() for need in Need}

    def soon(self, *needs: Need) -> None:
        """Read ``needs`` (all, if none is named) at once if they are wanted."""
        for need in needs or tuple(Need):
            self._wake[need].set()

    async def run(self) -> None:
        """Read for ever; ends only by cancellation."""
        async with asyncio.TaskGroup() as tasks:
            for need in Need:
                tasks.create_task(self._keep(need))

    async def _keep(self, need: Need) -> None:
        wake = self._wake[need]
        while True:
            wake.clear()
            engine_id, needs = self._wanted()
            if need in needs or need is Need.FLEET:
                await self._look(need, engine_id)
            pause = EVERY_S[need]
            if need is Need.FLEET and need not in needs:
                pause = FLEET_ASIDE_S
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await wake.wait()

    async def _look(self, need: Need, engine_id: str) -> None:
        try:
            value = await self._ask(need, engine_id)
        except ControlPlaneError as error:
            self._post(LookedUp(need, engine_id, None, str(error)))
        else:
            self._post(LookedUp(need, engine_id, value))

    async def _ask(self, need: Need, engine_id: str) -> object:
        client = self._client
        match need:
            case Need.FLEET:
                fleet: Fleet = await client.fleet()
                return fleet
            case Need.COSTS:
                return await client.costs(engine_id)
            case Need.POLICIES:
                return tuple(await client.policies(engine_id))
            case Need.AUDIT:
                return tuple(await client.audit(AUDIT_ROWS))
