"""A TCP pipe in front of an engine, to look at what is sent to it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Pipe:
    """Passes requests on, counts them, and may hold or guard them.

    Args:
        engine_url: where it leads.
        hold: requests whose first line begins like this are swallowed and never answered.
        key: requests without this Bearer token are answered 401, as SGLang does.
    """

    engine_url: str
    hold: str = ""
    key: str = ""
    url: str = ""
    requests: list[str] = field(default_factory=list)
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> Pipe:
        self._server = await asyncio.start_server(self._open, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def asked(self, line: str) -> int:
        """How many requests began like this."""
        return sum(one.startswith(line) for one in self.requests)

    def _open(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(self._carry(reader, writer)))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parts = urlsplit(self.engine_url)
        engine_reader, engine_writer = await asyncio.open_connection(parts.hostname, parts.port)
        back = asyncio.create_task(_copy(engine_reader, writer))
        try:
            while data := await reader.read(65536):
                line = data.split(b"\r\n", 1)[0].decode()
                self.requests.append(line)
                if self.hold and line.startswith(self.hold):
                    continue
                if self.key and f"authorization: Bearer {self.key}".encode() not in data:
                    body = b'{"error":"Unauthorized"}'
                    writer.write(
                        b"HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\n"
                        + f"content-length: {len(body)}\r\n\r\n".encode()
                        + body
                    )
                    continue
                engine_writer.write(data)
        finally:
            back.cancel()
            for one in (writer, engine_writer):
                one.close()
            with contextlib.suppress(OSError):
                await asyncio.gather(
                    back, writer.wait_closed(), engine_writer.wait_closed(), return_exceptions=True
                )


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
