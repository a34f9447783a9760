"""What the client loads, and what it makes of answers that are not a control plane's."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controlplane.client import (
    ControlPlaneClient,
    ControlPlaneError,
    RefusedError,
    UnreachableError,
)


@pytest.mark.parametrize("module", ["controlplane.client", "controlplane.cli"])
def test_it_loads_nothing_of_the_server(module: str) -> None:
    heavy = "{'fastapi', 'starlette', 'uvicorn', 'sqlmodel', 'sqlalchemy', 'prometheus_client'}"
    code = f"""
import sys, {module}
loaded = sorted({heavy} & set(sys.modules))
ours = sorted(m for m in sys.modules if m in ('controlplane.service', 'controlplane.settings',
    'controlplane.api', 'controlplane.engine', 'store.db', 'store.tables'))
sys.exit(str(loaded + ours) if loaded or ours else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_address_that_is_none_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(ControlPlaneError, match="write http://HOST:PORT"):
        ControlPlaneClient("127.0.0.1:7311")


@asynccontextmanager
async def answering(answer: bytes | None) -> AsyncIterator[str]:
    """A server that says the same to everybody, or nothing at all; yields its URL."""
    talks: list[asyncio.Task[None]] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if answer is None:
            await reader.read()
        else:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.append(asyncio.create_task(talk(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    await asyncio.gather(*talks)


def http(status: str, body: bytes, kind: str = "text/html") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (http("200 OK", b"<html>"), "what this version does not understand"),
        (http("200 OK", b'{"a": 1}', "application/json"), "does not understand"),
        (http("404 Not Found", b"<html>"), "answered 404 and is no specdeck control plane"),
        (http("302 Found", b""), "answered 302 and is no specdeck control plane"),
    ],
)
async def test_a_stranger_at_the_address_is_named(answer: bytes, words: str) -> None:
    async with answering(answer) as url, ControlPlaneClient(url) as client:
        with pytest.raises(RefusedError, match=words):
            await client.about()


async def test_a_connection_that_breaks_is_told_from_one_that_is_refused() -> None:
    async with (
        answering(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc") as url,
        ControlPlaneClient(url) as client,
    ):
        with pytest.raises(UnreachableError, match="broke"):
            await client.about()


async def test_a_server_that_says_nothing_runs_into_the_time_limit() -> None:
    async with answering(None) as url, ControlPlaneClient(url, timeout_s=0.2) as client:
        with pytest.raises(UnreachableError, match="does not answer in time"):
            await client.about()


async def test_the_token_is_in_no_message() -> None:
    secret = "a-secret-token-0001"
    async with answering(http("500 Oops", b"no")) as url, ControlPlaneClient(url, secret) as client:
        with pytest.raises(ControlPlaneError) as caught:
            await client.about()
        assert secret not in str(caught.value) + repr(caught.value) + repr(client)
