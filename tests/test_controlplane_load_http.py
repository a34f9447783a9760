"""The load generator's HTTP client against sockets that answer byte by byte as they are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from controlplane.load_http import BadAnswerError, Connection, DroppedError

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def _server(script: Script) -> AsyncIterator[Connection]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await script(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    connection = Connection("127.0.0.1", server.sockets[0].getsockname()[1])
    try:
        yield connection
    finally:
        connection.close()
        server.close()
        await server.wait_closed()


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    return head + await reader.readexactly(length)


def _answering(*pieces: bytes) -> Script:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _request(reader)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)

    return script


async def test_a_request_arrives_whole_and_the_connection_serves_the_next_one() -> None:
    seen: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in (b"one", b"three"):
            seen.append(await _request(reader))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)

    async with _server(script) as connection:
        request = connection.encode("POST", "/generate", b'{"a":1}')
        assert await connection.exchange(request) == (200, b"one")
        assert await connection.exchange(request) == (200, b"three")
    assert seen == [request, request]
    assert request.startswith(b"POST /generate HTTP/1.1\r\nhost: 127.0.0.1:")
    assert request.endswith(b'content-length: 7\r\n\r\n{"a":1}')


async def test_a_chunked_body_is_put_together_wherever_the_pieces_are_cut() -> None:
    whole = (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        b"5\r\nhello\r\n6;note=x\r\n world\r\n0\r\ntrailer: y\r\n\r\n"
    )
    for cut in range(1, len(whole), 7):
        async with _server(_answering(whole[:cut], whole[cut:])) as connection:
            assert await connection.exchange(connection.encode("GET", "/")) == (200, b"hello world")


async def test_events_are_split_at_empty_lines_not_at_chunks() -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    chunks = [b'data: {"a"', b": 1}\n\ndata: 2\n", b"\n: ping\n\ndata: [DONE]\n\n"]
    body = b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"
    async with _server(_answering(head, body)) as connection:
        events = [event async for event in connection.events(connection.encode("GET", "/"))]
    assert events == [(200, b'{"a": 1}'), (200, b"2"), (200, b"[DONE]")]


async def test_an_error_instead_of_a_stream_is_yielded_whole() -> None:
    answer = b"HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nwait"
    async with _server(_answering(answer)) as connection:
        events = [event async for event in connection.events(connection.encode("GET", "/"))]
    assert events == [(503, b"wait")]


async def test_an_idle_connection_the_server_closed_is_opened_again() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    async with _server(_answering(answer)) as connection:
        request = connection.encode("GET", "/")
        assert await connection.exchange(request) == (200, b"ok")
        await asyncio.sleep(0.05)  # the script has ended: the server closes
        assert await connection.exchange(request) == (200, b"ok")


async def test_a_connection_closed_before_an_answer_may_be_sent_again() -> None:
    async with _server(_answering()) as connection:
        with pytest.raises(DroppedError):
            await connection.exchange(connection.encode("GET", "/"))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"220 smtp ready\r\n\r\n", "no HTTP status line"),
        (b"HTTP/1.1 200 OK\r\nconte", "inside the headers"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", "inside the body"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: ten\r\n\r\n", "content-length"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n", "body of"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n", "no chunk size"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffff\r\n", "a chunk of"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel", "inside the body"),
    ],
)
async def test_nonsense_is_a_bad_answer_and_not_a_hang(answer: bytes, words: str) -> None:
    async with _server(_answering(answer)) as connection:
        with pytest.raises(BadAnswerError, match=words):
            async with asyncio.timeout(5):
                await connection.exchange(connection.encode("GET", "/"))


async def test_nobody_listening_is_an_os_error() -> None:
    async with _server(_answering()) as connection:
        pass
    with pytest.raises(OSError, match="Connect"):
        await connection.exchange(connection.encode("GET", "/"))
