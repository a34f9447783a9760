"""A small HTTP/1.1 client for one kept-alive connection, as cheap as a load generator needs.

The load generator must not be the bottleneck it measures.  Measured here with 256 clients in a
closed loop (one request of 128 prompt ids each, answers of 256 ids): one shared httpx client 50 to
70 ms of processor time per request (its pool walks all connections for each of them), one httpx
client per connection 0.85 ms, this module 0.09 ms.  Only what ``/generate`` needs is spoken: one
request at a time, bodies with a length or in chunks.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

LONGEST_LINE = 4 * 2**20
LONGEST_BODY = 64 * 2**20


class BadAnswerError(Exception):
    """The peer does not speak HTTP/1.1 as this client understands it."""


class DroppedError(Exception):
    """A kept-alive connection was closed by the peer before it answered; it may be sent again."""


@functools.cache
def tls_context() -> ssl.SSLContext:
    """One context for all connections: making one reads every certificate of the machine."""
    return ssl.create_default_context()


@dataclass(frozen=True, slots=True)
class Head:
    """Status and the headers that frame the body."""

    status: int
    length: int | None
    chunked: bool
    close: bool


class Connection:
    """One connection to one server, opened when first needed and again after it was closed."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        prefix: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._prefix = prefix
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        shown = f"[{host}]" if ":" in host else host
        more = "".join(f"\r\n{name}: {value}" for name, value in (headers or {}).items())
        self._host_header = f"{shown}:{port}{more}".encode()

    def encode(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The bytes of one request; made ahead so that nothing is formatted while timing."""
        return (
            f"{method} {self._prefix}{path} HTTP/1.1\r\nhost: ".encode()
            + self._host_header
            + b"\r\naccept: */*\r\ncontent-type: application/json\r\n"
            + f"content-length: {len(body)}\r\n\r\n".encode()
            + body
        )

    async def open(self) -> None:
        """Connect unless connected.

        Raises:
            OSError: nobody listens, or the name does not resolve.
        """
        if self._writer is not None and self._reader is not None and not self._reader.at_eof():
            return
        self.close()
        self._reader, self._writer = await asyncio.open_connection(
            self._host, self._port, ssl=self._tls, limit=LONGEST_LINE
        )

    async def exchange(self, request: bytes) -> tuple[int, bytes]:
        """Send an encoded request and return status and whole body."""
        head = await self._send(request)
        body = b"".join([piece async for piece in self._body(head)])
        return head.status, body

    async def events(self, request: bytes) -> AsyncIterator[tuple[int, bytes]]:
        """Send an encoded request and yield (status, data) for each server-sent event.

        An answer that is no event stream (an error) is yielded whole, once.
        """
        head = await self._send(request)
        if head.status != 200:
            yield head.status, b"".join([piece async for piece in self._body(head)])
            return
        rest = b""
        async for piece in self._body(head):
            *blocks, rest = (rest + piece).split(b"\n\n")
            for block in blocks:
                if block.startswith(b"data:"):
                    yield head.status, block[5:].strip()

    def close(self) -> None:
        """Drop the connection; the next request opens a new one."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    async def _send(self, request: bytes) -> Head:
        await self.open()
        if self._reader is None or self._writer is None:
            raise DroppedError("closed while opening")
        try:
            self._writer.write(request)
            await self._writer.drain()
            return _parse(await self._reader.readuntil(b"\r\n\r\n"))
        except asyncio.IncompleteReadError as error:
            self.close()
            if error.partial:
                raise BadAnswerError("the connection ended inside the headers") from None
            raise DroppedError("closed before an answer") from None
        except ConnectionError as error:
            self.close()
            raise DroppedError(str(error)) from None
        except asyncio.LimitOverrunError:
            self.close()
            raise BadAnswerError("headers without an end") from None

    async def _body(self, head: Head) -> AsyncIterator[bytes]:
        reader = self._reader
        if reader is None:
            raise DroppedError("closed before the body")
        complete = False
        try:
            if head.chunked:
                async for piece in _chunks(reader):
                    yield piece
            elif head.length is not None:
                if head.length > LONGEST_BODY:
                    raise BadAnswerError(f"a body of {head.length} bytes")
                yield await reader.readexactly(head.length)
            else:
                yield await reader.read(LONGEST_BODY)
            complete = True
        except asyncio.IncompleteReadError:
            raise BadAnswerError("the connection ended inside the body") from None
        finally:
            # Half-read answers leave bytes behind that the next request would take for its own.
            if head.close or not complete or (head.length is None and not head.chunked):
                self.close()


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        line = await reader.readuntil(b"\r\n")
        try:
            size = int(line.split(b";", 1)[0], 16)
        except ValueError:
            raise BadAnswerError(f"no chunk size: {line[:40]!r}") from None
        if not 0 <= size <= LONGEST_BODY:
            raise BadAnswerError(f"a chunk of {size} bytes")
        if size == 0:
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass
            return
        yield (await reader.readexactly(size + 2))[:size]


def _parse(head: bytes) -> Head:
    lines = head.split(b"\r\n")
    parts = lines[0].split(b" ", 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
        raise BadAnswerError(f"no HTTP status line: {lines[0][:40]!r}")
    length: int | None = None
    chunked = False
    close = parts[0] == b"HTTP/1.0"
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        name = name.lower()
        if name == b"content-length":
            if not value.strip().isdigit():
                raise BadAnswerError(f"content-length {value[:20]!r}")
            length = int(value)
        elif name == b"transfer-encoding":
            chunked = b"chunked" in value.lower()
        elif name == b"connection":
            close = b"close" in value.lower()
    return Head(status=int(parts[1]), length=length, chunked=chunked, close=close)
