"""HTTP to an engine: kept connections, and answers that are cut off, endless or no HTTP at all."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane import transport
from controlplane.polled import EngineError
from controlplane.transport import Answer, EngineHttp, _trusted
from store.observations import GapReason

OK = b"HTTP/1.1 200 OK\r\n"
SGLANG_KEEPS_S = 5
"""``SGLANG_TIMEOUT_KEEP_ALIVE`` in ``environ.py`` of SGLang 0.5.17 to 0.5.23."""


class Wire:
    """A server that answers each request with the next bytes of a script.

    Args:
        script: what is written after each request; b"" hangs up instead.
        close: hang up after each answer.
    """

    def __init__(self, *script: bytes, close: bool = False) -> None:
        self.script = list(script)
        self.close = close
        self.requests: list[bytes] = []
        self.connections = 0
        self.url = ""

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"PUT"):
                    head += await reader.readexactly(2)
                self.requests.append(head)
                answer = self.script.pop(0) if self.script else b""
                if not answer:
                    return
                writer.write(answer)
                await writer.drain()
                if self.close:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def engine(wire: Wire, **options: str | None) -> AsyncIterator[EngineHttp]:
    server = await asyncio.start_server(wire.talk, "127.0.0.1", 0)
    async with server:
        wire.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        keys = {"api_key": None, "admin_key": None} | options
        http = EngineHttp(wire.url + "/base", timeout_s=20.0, **keys)
        try:
            yield http
        finally:
            await http.aclose()
            server.close()


def body(text: bytes) -> bytes:
    return OK + b"content-length: %d\r\n\r\n" % len(text) + text


async def test_a_connection_is_kept_and_each_request_is_one_whole_head() -> None:
    wire = Wire(*[body(b"{}")] * 4)
    async with engine(wire, api_key="sk-read", admin_key="sk-admin") as http:
        for _ in range(3):
            assert (await http.get("/speculation", 20, since=7)).body == b"{}"
        assert (await http.put("/speculation", b"{}", 20)).status == 200
    assert wire.connections == 1
    assert wire.requests[0].startswith(b"GET /base/speculation?since=7 HTTP/1.1\r\n")
    assert b"\r\nauthorization: Bearer sk-read\r\n" in wire.requests[0]
    assert b"\r\nauthorization: Bearer sk-admin\r\n" in wire.requests[3]
    assert b"\r\nContent-Length: 2\r\n" in wire.requests[3]
    assert wire.requests[3].endswith(b"\r\n\r\n{}")
    assert all(b"\r\naccept-encoding: identity\r\n" in head for head in wire.requests)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            OK + b"Transfer-Encoding: Chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nt: 1\r\n\r\n",
            b"abcde",
        ),
        (OK + b"connection: close\r\n\r\nto the end", b"to the end"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + body(b"late"), b"late"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.0 200\r\ncontent-length: 3\r\n\r\nold", b"old"),
        (body(b"x" * 300_000), b"x" * 300_000),
    ],
)
async def test_an_answer_is_read_whole_however_it_is_framed(answer: bytes, text: bytes) -> None:
    async with engine(Wire(answer, close=True)) as http:
        assert (await http.get("/metrics", 20)).body == text


@pytest.mark.parametrize(
    ("answer", "reason", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", GapReason.BAD_ANSWER, "in HTTP: Bad status line"),
        (b"HTTP/2 200\r\n\r\n", GapReason.BAD_ANSWER, "Bad status line"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", GapReason.BAD_ANSWER, "Bad status line"),
        (OK + b"no colon\r\n\r\n", GapReason.BAD_ANSWER, "Invalid header"),
        (OK + b"content-length: -1\r\n\r\n", GapReason.BAD_ANSWER, "Content-Length"),
        (
            OK + b"content-length: 1\r\ncontent-length: 2\r\n\r\nab",
            GapReason.BAD_ANSWER,
            "Duplicate",
        ),
        (OK + b"content-length: " + b"9" * 5000 + b"\r\n\r\n", GapReason.BAD_ANSWER, "in HTTP"),
        (OK + b"content-length: 99999999999\r\n\r\n", GapReason.BAD_ANSWER, "more than 16 MB"),
        (OK + b"\r\n" + b"x" * 17_000_000, GapReason.BAD_ANSWER, "more than 16 MB"),
        (OK + b"transfer-encoding: chunked\r\n\r\nfff\r\n", GapReason.UNREACHABLE, "broke off"),
        (OK + b"transfer-encoding: chunked\r\n\r\n-1\r\n", GapReason.BAD_ANSWER, "chunk size"),
        (OK + b"x: " + b"y" * 200_000, GapReason.BAD_ANSWER, "in HTTP"),
        (b"HTTP/1.1 101 Switching\r\n\r\n", GapReason.BAD_ANSWER, "status 101"),
        (OK + b"content-length: 9\r\n\r\nhalf", GapReason.UNREACHABLE, "broke off its answer"),
        (OK + b"content-le", GapReason.UNREACHABLE, "hung up"),
    ],
)
async def test_an_answer_that_is_none_is_told_in_a_sentence(
    answer: bytes, reason: GapReason, words: str
) -> None:
    async with engine(Wire(answer, answer, close=True)) as http:
        with pytest.raises(EngineError, match=words) as caught:
            await http.get("/metrics", 20)
        assert caught.value.reason is reason


async def test_a_kept_connection_that_ended_is_replaced_for_a_read_and_not_for_a_command() -> None:
    wire = Wire(body(b"1"), b"", body(b"2"), b"", body(b"3"))
    async with engine(wire) as http:
        assert (await http.get("/a", 20)).body == b"1"
        assert (await http.get("/a", 20)).body == b"2"
        with pytest.raises(EngineError, match="hung up on PUT /speculation"):
            await http.put("/speculation", b"{}", 20)
        # A command is sent once: whether it was taken is for the controller to find out.
        assert sum(one.startswith(b"PUT") for one in wire.requests) == 1
        assert (await http.get("/a", 20)).body == b"3"


async def test_a_connection_closed_while_idle_is_not_used_again_even_for_a_command() -> None:
    wire = Wire(body(b"1"), body(b"2"), close=True)
    async with engine(wire) as http:
        assert (await http.get("/a", 20)).body == b"1"
        await asyncio.sleep(0.5)  # the end of the connection arrives
        assert (await http.put("/speculation", b"{}", 20)).body == b"2"
    assert wire.connections == 2


async def test_a_command_takes_no_connection_that_the_engine_may_be_closing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert transport.KEPT_S < SGLANG_KEEPS_S
    monkeypatch.setattr(transport, "KEPT_S", 0.2)
    wire = Wire(body(b"1"), body(b"2"))
    async with engine(wire) as http:
        assert (await http.get("/a", 20)).body == b"1"
        await asyncio.sleep(0.5)
        assert (await http.put("/speculation", b"{}", 20)).body == b"2"
    assert wire.connections == 2


async def test_a_request_given_up_leaves_no_half_answer_to_the_next() -> None:
    wire = Wire(OK + b"content-length: 9\r\n\r\nfirst", body(b"second"))
    async with engine(wire) as http:
        with pytest.raises(EngineError, match="did not answer GET /a within"):
            await http.get("/a", 0.2)
        assert (await http.get("/b", 20)).body == b"second"
    assert wire.connections == 2


async def test_a_port_nobody_listens_at_says_so() -> None:
    http = EngineHttp("http://127.0.0.1:1", api_key=None, admin_key=None, timeout_s=20.0)
    with pytest.raises(
        EngineError, match=r"cannot connect to 127.0.0.1:1 \(.+\): is the engine up"
    ):
        await http.get("/a", 20)
    await http.aclose()


async def test_plain_http_where_tls_is_spoken_is_no_connection() -> None:
    wire = Wire(body(b"1"))
    async with engine(wire) as http:
        port = int(http.where.rpartition(":")[2])
        tls = EngineHttp(f"https://127.0.0.1:{port}", api_key=None, admin_key=None, timeout_s=0.5)
        with pytest.raises(EngineError) as caught:
            await tls.get("/a", 0.5)
        assert caught.value.reason in (GapReason.UNREACHABLE, GapReason.TIMEOUT)
        await tls.aclose()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate that nobody has signed, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    chain, key = folder / "cert.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(
        [*command.split(), "-keyout", str(key), "-out", str(chain), *subject],
        check=True,
        capture_output=True,
    )
    return chain, key


@pytest.mark.parametrize("trusted", [True, False])
async def test_https_is_spoken_with_whom_the_machine_trusts_alone(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(pair[0]))
    _trusted.cache_clear()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    wire = Wire(body(b"1"), body(b"2"))
    server = await asyncio.start_server(wire.talk, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        http = EngineHttp(
            f"https://localhost:{port}", api_key="sk-1", admin_key=None, timeout_s=20.0
        )
        if trusted:
            assert (await http.get("/a", 20)).body == b"1"
            assert (await http.get("/a", 20)).body == b"2"
            assert wire.connections == 1
        else:
            with pytest.raises(EngineError, match=r"cannot connect to localhost.*certificate"):
                await http.get("/a", 20)
            assert wire.requests == []
        await http.aclose()
        server.close()
    _trusted.cache_clear()


def answers(*ways: Callable[[bytes], bytes]) -> st.SearchStrategy[bytes]:
    return st.one_of(*(st.binary(max_size=200).map(way) for way in ways))


@settings(max_examples=60, deadline=None)
@given(
    answers(
        lambda text: text,
        lambda text: OK + text,
        lambda text: OK + b"\r\n" + text,
        lambda text: OK + b"content-length: " + text + b"\r\n\r\n" + text,
        lambda text: OK + b"transfer-encoding: chunked\r\n\r\n" + text,
        lambda text: OK + b"transfer-encoding: chunked\r\n\r\n5\r\nabcde\r\n" + text,
    )
)
def test_no_bytes_end_in_anything_but_an_answer_or_a_known_error(wire: bytes) -> None:
    async def read() -> Answer | None:
        async with engine(Wire(wire, wire, close=True)) as http:
            with suppress(EngineError):
                return await http.get("/metrics", 20)
        return None

    reply = asyncio.run(read())
    assert reply is None or 200 <= reply.status <= 599


def test_authorities_are_trusted_for_https_alone() -> None:
    plain = EngineHttp("http://h:1", api_key=None, admin_key=None, timeout_s=1)
    secure = EngineHttp("https://h", api_key=None, admin_key=None, timeout_s=1)
    assert plain._tls is None
    context = secure._tls
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert secure.where == "h:443"
