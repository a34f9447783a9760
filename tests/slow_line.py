"""A TCP line with latency and loss, by injected delay: nothing is lost for good, it comes late."""

from __future__ import annotations

import asyncio
import contextlib
import random
from urllib.parse import urlsplit

RETRANSMIT_S = 0.4
"""What a lost packet costs: the sender waits for twice the round trip and sends it again."""


class SlowLine:
    """Carries bytes to ``url`` and back, each way ``one_way_s`` late.

    Args:
        loss: share of the pieces that are sent again after ``RETRANSMIT_S``; all behind such a
            piece wait too, as in TCP.
    """

    def __init__(self, url: str, one_way_s: float, loss: float) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "", parts.port or 0)
        self.one_way_s = one_way_s
        self._loss = loss
        self._chance = random.Random(1)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""
        self.lost = 0
        """Pieces that came late."""

    async def __aenter__(self) -> SlowLine:
        self._server = await asyncio.start_server(self._open, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _open(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.create_task(self._carry(reader, writer)))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._target)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._late(reader, back))
                tasks.create_task(self._late(there, writer))
        except* OSError:
            pass
        finally:
            for end in (writer, back):
                with contextlib.suppress(OSError):
                    end.close()

    async def _late(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due, data = await pieces.get()
                await asyncio.sleep(max(due - loop.time(), 0))
                if not data:
                    writer.close()
                    return
                writer.write(data)
                await writer.drain()

        async def take() -> None:
            latest = 0.0
            while True:
                data = await reader.read(1400)
                late = self.one_way_s
                if self._chance.random() < self._loss:
                    self.lost += 1
                    late += RETRANSMIT_S
                # In order: a late piece holds back what follows.
                latest = max(latest, loop.time() + late)
                pieces.put_nowait((latest, data))
                if not data:
                    return

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(deliver())
            tasks.create_task(take())
