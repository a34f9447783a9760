"""Readers of the event stream that come back again and again, over raw sockets."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Reader:
    """One reader: it cuts its stream after a few events, sometimes in the middle of one, and comes
    back with the last id that it read whole.

    Args:
        ids: every event read whole, in its order.
        endings: how its streams ended.
    """

    port: int
    chance: random.Random
    last: int
    ids: list[int] = field(default_factory=list)
    endings: Counter[str] = field(default_factory=Counter)

    async def once(self) -> None:
        """Connect, read some events, cut."""
        wanted = self.chance.choice((0, 1, 1, 2, 5, 20))
        how = self.chance.choice(("close", "close", "abort", "torn", "unread"))
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**22)
        try:
            asked = f"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: {self.last}"
            writer.write(asked.encode() + b"\r\n\r\n")
            if how == "unread":
                # Gone before the answer.
                self.endings[how] += 1
                return
            assert b" 200 " in await reader.readuntil(b"\r\n")
            await reader.readuntil(b"\r\n\r\n")
            whole = b""
            while wanted > 0:
                size = int(await reader.readuntil(b"\r\n"), 16)
                assert size, "the stream ended by itself"
                whole += (await reader.readexactly(size + 2))[:size]
                *events, whole = whole.split(b"\n\n")
                for event in events:
                    fields = dict(
                        line.split(b": ", 1) for line in event.split(b"\n") if b": " in line
                    )
                    if b"id" in fields and wanted > 0:
                        self.last = int(fields[b"id"])
                        self.ids.append(self.last)
                        wanted -= 1
            if how == "torn":
                await reader.read(100)
            self.endings[how] += 1
        finally:
            if how == "abort":
                writer.transport.abort()
            writer.close()


async def come_back(readers: list[Reader], times: int) -> None:
    """Let all readers reconnect side by side, ``times`` each."""

    async def all_times(one: Reader) -> None:
        for _ in range(times):
            await one.once()

    await asyncio.gather(*(all_times(one) for one in readers))
