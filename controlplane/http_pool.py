"""HTTP/1.1 to one server over kept connections, at the least cost.

One process polls hundreds of engines.  Measured with 200 at 1 Hz (``docs/operations.md``), the
requests of a general client took half of its processor time.  Only what an engine needs is spoken:
bodies with a length, in chunks or until the end; no redirects, no compression, no pipelining.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import dataclass

MOST_IDLE = 4
"""Connections that are kept while nothing is asked."""
MOST_HEAD = 64 * 1024
"""Longest head of an answer."""


class NoConnectionError(Exception):
    """Nobody listens, the name does not resolve, or TLS fails; the message is the system's."""


class SlowConnectionError(Exception):
    """There was no connection in time."""


class HungUpError(Exception):
    """The connection ended before a whole answer; nothing or only a part of it came."""


class NotHttpError(Exception):
    """What came is no HTTP/1.1; the message says why."""


class TooLongError(Exception):
    """The body is longer than it may be."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: status, headers with lower-case names, body."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


@dataclass(frozen=True, slots=True)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def usable(self) -> bool:
        return not self.reader.at_eof() and not self.writer.transport.is_closing()


class HttpPool:
    """Connections to one server.

    Args:
        connect_s: seconds to connect.
        most_bytes: longest body that is read.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None,
        connect_s: float,
        most_bytes: int,
    ) -> None:
        self._host, self._port, self._tls = host, port, tls
        self._connect_s = connect_s
        self._most_bytes = most_bytes
        self._idle: list[_Connection] = []
        self._closed = False

    async def exchange(self, request: bytes, *, anew: bool = False) -> Reply:
        """Send one request and read its answer.  Cancelled, its connection is dropped.

        Args:
            anew: over a connection of its own instead of a kept one.

        Raises:
            NoConnectionError, SlowConnectionError, HungUpError, NotHttpError, TooLongError: as
                they say.
        """
        connection = (None if anew else self._kept()) or await self._connect()
        again = False
        try:
            connection.writer.write(request)
            reply, again = await self._answer(connection.reader)
        except asyncio.IncompleteReadError as error:
            raise HungUpError("the connection ended early") from error
        except ValueError as error:
            # A line beyond the reader's limit, or a number that is none.
            raise NotHttpError(str(error)) from error
        except asyncio.LimitOverrunError as error:
            raise NotHttpError("a head without an end") from error
        except OSError as error:
            raise HungUpError(type(error).__name__) from error
        finally:
            if again and not self._closed and len(self._idle) < MOST_IDLE:
                self._idle.append(connection)
            else:
                connection.writer.close()
        return reply

    async def aclose(self) -> None:
        """Close what is kept; what is under way closes when it ends."""
        self._closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.writer.close()
        for connection in idle:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(0.2):
                    await connection.writer.wait_closed()

    def _kept(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            connection.writer.close()
        return None

    async def _connect(self) -> _Connection:
        try:
            async with asyncio.timeout(self._connect_s):
                reader, writer = await asyncio.open_connection(
                    self._host, self._port, ssl=self._tls, limit=MOST_HEAD
                )
        except TimeoutError:
            raise SlowConnectionError from None
        except (OSError, UnicodeError) as error:
            raise NoConnectionError(_why(error)) from error
        return _Connection(reader, writer)

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[Reply, bool]:
        """The answer, and whether the connection may be used again."""
        status, headers, again = _head(await reader.readuntil(b"\r\n\r\n"))
        while 100 <= status < 200:
            if status == 101:
                raise NotHttpError("it changes the protocol")
            status, headers, again = _head(await reader.readuntil(b"\r\n\r\n"))
        if status in (204, 304):
            return Reply(status, headers, b""), again
        coding = headers.get(b"transfer-encoding")
        length = headers.get(b"content-length")
        if coding is not None:
            if coding.lower() != b"chunked":
                raise NotHttpError(f"transfer-encoding {coding[:40]!r}")
            return Reply(status, headers, await self._chunks(reader)), again
        if length is not None:
            if not length.isdigit():
                raise NotHttpError(f"content-length {length[:40]!r}")
            self._fits(int(length))
            return Reply(status, headers, await reader.readexactly(int(length))), again
        body = bytearray()
        while piece := await reader.read(MOST_HEAD):
            body += piece
            self._fits(len(body))
        return Reply(status, headers, bytes(body)), False

    async def _chunks(self, reader: asyncio.StreamReader) -> bytes:
        body = bytearray()
        while True:
            line = await reader.readuntil(b"\r\n")
            text = line.split(b";", 1)[0].strip()
            if not text or text.strip(b"0123456789abcdefABCDEF"):
                raise NotHttpError(f"no chunk size: {line[:40]!r}")
            size = int(text, 16)
            self._fits(len(body) + size)
            if size == 0:
                while await reader.readuntil(b"\r\n") != b"\r\n":
                    pass
                return bytes(body)
            body += await reader.readexactly(size)
            if await reader.readexactly(2) != b"\r\n":
                raise NotHttpError("a chunk without its end")

    def _fits(self, size: int) -> None:
        if size > self._most_bytes:
            raise TooLongError


def _head(head: bytes) -> tuple[int, dict[bytes, bytes], bool]:
    """Status, headers, and whether the connection is kept."""
    first, *lines = head[:-4].split(b"\r\n")
    parts = first.split(b" ", 2)
    if (
        len(parts) < 2
        or parts[0] not in (b"HTTP/1.1", b"HTTP/1.0")
        or not (len(parts[1]) == 3 and parts[1].isdigit())
    ):
        raise NotHttpError(f"no status line: {first[:40]!r}")
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        name, value = name.lower(), value.strip()
        if not colon or not name or name != name.strip():
            raise NotHttpError(f"no header: {line[:40]!r}")
        if name in (b"content-length", b"transfer-encoding") and headers.get(name, value) != value:
            raise NotHttpError(f"{name.decode()} twice")
        headers[name] = value
    kept = parts[0] == b"HTTP/1.1" and headers.get(b"connection", b"").lower() != b"close"
    return int(parts[1]), headers, kept


def _why(error: OSError | UnicodeError) -> str:
    if isinstance(error, ssl.SSLError):
        return str(getattr(error, "verify_message", "") or error.reason or error)
    return str(getattr(error, "strerror", None) or error)
