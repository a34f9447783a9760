"""``/server_info`` without waiting for it: asked once per start of a server, in the background."""

from __future__ import annotations

import asyncio

from controlplane.clock import Clock
from controlplane.polled import EngineError
from controlplane.prometheus_text import MetricsError
from controlplane.server_info import ServerInfo, read_server_info
from controlplane.transport import EngineHttp

SERVER_INFO = "/server_info"
PATIENCE_S = 300.0
"""How long it may take; a busy scheduler answers after minutes."""
AGAIN_MS = 60_000
"""Pause before it is asked again after it brought nothing."""


class BackgroundInfo:
    """What ``/server_info`` told about the present start, as soon as it did."""

    def __init__(self, http: EngineHttp, clock: Clock) -> None:
        self._http = http
        self._clock = clock
        self._info: ServerInfo | None = None
        self._boot_id = ""
        self._task: asyncio.Task[ServerInfo | None] | None = None
        self._not_before_ms = 0

    @property
    def told(self) -> ServerInfo | None:
        """What is known; None while it is not."""
        return self._info

    def look(self, boot_id: str) -> ServerInfo | None:
        """Take in an answer that came, ask if nothing is known, and return what is.

        Args:
            boot_id: the present start; another one than before forgets what is known.
        """
        if boot_id != self._boot_id:
            self._info, self._boot_id, self._not_before_ms = None, boot_id, 0
            if self._task is not None:
                self._task.cancel()
                self._task = None
        now = self._clock.mono_ms()
        if self._task is not None and self._task.done():
            self._info = self._task.result()
            self._task = None
            self._not_before_ms = now + AGAIN_MS
        if self._info is None and self._task is None and now >= self._not_before_ms:
            self._task = asyncio.create_task(self._ask())
        return self._info

    async def aclose(self) -> None:
        """Drop a question that is still open."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None

    async def _ask(self) -> ServerInfo | None:
        try:
            answer = await self._http.get(SERVER_INFO, PATIENCE_S)
            return read_server_info(answer.body) if answer.status == 200 else None
        except (EngineError, MetricsError):
            return None
