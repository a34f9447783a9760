"""The event stream over real sockets: resume, slow readers, and a stop with streams open."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from controlplane.client import (
    ControlPlaneClient,
    ControlPlaneError,
    RefusedError,
    UnauthorisedError,
    UnreachableError,
)
from controlplane.hub import Event
from controlplane.server import bind
from store.records import Tick
from tests.controlplane_rig import ENGINE, Running, control_plane, settings_of, until

# Gaps are ticks like any other, so these tests need no engine: only an address nobody answers at.


@pytest.fixture
def nobody() -> str:
    with bind("127.0.0.1", 0) as sock:
        return f"http://127.0.0.1:{sock.getsockname()[1]}"


@pytest_asyncio.fixture
async def running(nobody: str, tmp_path: Path) -> AsyncIterator[Running]:
    settings = settings_of(tmp_path, nobody, engine={"poll_s": 0.05})
    async with control_plane(settings) as one:
        yield one


async def ids(running: Running, count: int, last: int | None = None, **query: str) -> list[int]:
    """Row ids of the next events of a raw stream."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    found: list[int] = []
    async with (
        httpx.AsyncClient(base_url=running.url, timeout=5) as http,
        http.stream("GET", "/v1/events", headers=headers, params=query) as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        async for line in answer.aiter_lines():
            if line.startswith("id: "):
                found.append(int(line[4:]))
                if len(found) == count:
                    break
    return found


async def burst(running: Running, count: int, padding: int = 0) -> None:
    """Store and publish many ticks at once, as many engines would."""
    store, hub = running.service.store, running.service.hub
    await until(lambda: bool(store.ticks(ENGINE, limit=1)))
    tick = store.ticks(ENGINE, limit=1)[0]
    for first in range(1, count + 1, 50):
        stored = await asyncio.wrap_future(
            store.write(
                [
                    tick.model_copy(
                        update={
                            "id": 0,
                            "engine_id": "burst",
                            "warnings": ("x" * padding,),
                            "observation": tick.observation.model_copy(
                                update={"engine_id": "burst", "seq": seq}
                            ),
                        }
                    )
                    for seq in range(first, first + 50)
                ]
            )
        )
        for one in stored:
            assert isinstance(one, Tick)
            hub.publish(Event(one.id, "burst", one.model_dump_json()))
        await asyncio.sleep(0)


async def test_each_event_is_a_stored_tick_under_its_row_id(running: Running) -> None:
    async with (
        httpx.AsyncClient(base_url=running.url) as http,
        http.stream("GET", "/v1/events") as answer,
    ):
        fields: dict[str, str] = {}
        async for line in answer.aiter_lines():
            key, _, value = line.partition(": ")
            fields[key] = value
            if key == "id":
                break
    tick = Tick.model_validate_json(fields["data"])
    assert fields["event"] == "tick"
    assert tick.id == int(fields["id"])
    assert running.service.store.ticks(ENGINE, after_id=tick.id - 1, limit=1) == [tick]


async def test_resuming_loses_and_repeats_nothing(running: Running) -> None:
    seen = await ids(running, 3)
    for _ in range(4):
        await asyncio.sleep(0.12)
        seen += await ids(running, 5, seen[-1])
    assert seen == list(range(seen[0], seen[0] + len(seen)))


async def test_the_query_resumes_too_and_zero_starts_with_the_oldest(running: Running) -> None:
    await until(lambda: running.service.runners[ENGINE].counts.polls > 5)
    assert await ids(running, 4, last_event_id="0") == [1, 2, 3, 4]
    assert await ids(running, 2, 3, last_event_id="0") == [4, 5]


async def test_a_long_history_is_sent_before_the_live_stream_goes_on(running: Running) -> None:
    await burst(running, 700)
    found = await ids(running, 720, 0)
    assert found == list(range(1, 721))


async def test_a_stream_of_one_engine_holds_no_other(nobody: str, tmp_path: Path) -> None:
    engines = [{"id": name, "url": f"{nobody}/{name}", "poll_s": 0.05} for name in "ab"]
    async with control_plane(settings_of(tmp_path, nobody, engines=engines)) as one:
        await until(lambda: all(r.counts.polls > 3 for r in one.service.runners.values()))
        found = await ids(one, 8, 0, engine="b")
        stored = [tick.id for tick in one.service.store.ticks("b", after_id=0, limit=8)]
        assert found == stored
        everything = await ids(one, 16, 0)
        assert everything == sorted(everything)


async def test_the_client_comes_back_by_itself_and_misses_nothing(
    nobody: str, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, nobody, engine={"poll_s": 0.05})
    links: list[ControlPlaneError | None] = []
    seen: list[int] = []

    async def read(client: ControlPlaneClient) -> None:
        async with client, aclosing(client.events(on_link=links.append)) as stream:
            async for tick in stream:
                seen.append(tick.id)  # noqa: PERF401 - watched while it grows

    async with control_plane(settings) as one:
        port = int(one.url.rpartition(":")[2])
        reading = asyncio.create_task(read(one.client()))
        await until(lambda: len(seen) >= 3)
    again = settings_of(tmp_path, nobody, engine={"poll_s": 0.05}, listen={"port": port})
    await until(lambda: isinstance(links[-1], UnreachableError))
    before = len(seen)
    async with control_plane(again):
        await until(lambda: len(seen) >= before + 8)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    assert seen == list(range(seen[0], seen[0] + len(seen)))
    told = [isinstance(link, UnreachableError) for link in links]
    # Connected, lost, connected again; the very first try may be in vain on a busy machine.
    assert told[told.index(False) :].count(False) >= 2
    assert True in told[told.index(False) :]
    assert links[-1] is None


async def test_the_client_gives_up_where_coming_back_is_no_use(
    running: Running, nobody: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running.client() as client, aclosing(client.events("nobody")) as stream:
        with pytest.raises(RefusedError, match="there is no engine 'nobody'"):
            await anext(stream)
    monkeypatch.setenv("EYE", "reading-token-000001")
    tokens = [{"name": "eye", "token_env": "EYE"}]
    (tmp_path / "other").mkdir()
    async with (
        control_plane(settings_of(tmp_path / "other", nobody, tokens=tokens)) as one,
        one.client() as client,
        aclosing(client.events()) as stream,
    ):
        with pytest.raises(UnauthorisedError, match="needs a token"):
            await anext(stream)


def connect(running: Running, last: int = 0) -> socket.socket:
    """A client that asks for the stream and then reads nothing."""
    port = int(running.url.rpartition(":")[2])
    sock = socket.socket()
    # A small window, so that the sender notices soon.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", port))
    sock.sendall(
        f"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: {last}\r\n\r\n".encode()
    )
    return sock


async def test_a_reader_that_takes_nothing_holds_up_nobody_and_is_cut(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.server.STUCK_TICKS", 5)
    await until(lambda: running.service.runners[ENGINE].counts.polls > 2)
    sock = await asyncio.to_thread(connect, running)
    try:
        await until(lambda: running.service.hub.clients == 1)
        polls = running.service.runners[ENGINE].counts.polls
        await burst(running, 800, padding=20_000)
        await until(lambda: running.service.runners[ENGINE].counts.polls > polls + 5)
        await until(lambda: not running.server.server_state.connections)
        await until(lambda: running.service.hub.clients == 0)
        # It resumes like anybody else.
        assert await ids(running, 3, 5) == [6, 7, 8]
    finally:
        sock.close()


@pytest.mark.parametrize("reader", ["quick", "stuck"])
async def test_a_stop_with_a_stream_open_takes_under_a_second_and_is_quiet(
    nobody: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, reader: str
) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    async def read(url: str) -> None:
        async with httpx.AsyncClient(base_url=url) as http, http.stream("GET", "/v1/events") as one:
            async for _ in one.aiter_lines():
                pass
        ended.set()

    sock = None
    async with control_plane(settings_of(tmp_path, nobody, engine={"poll_s": 0.05})) as running:
        await until(lambda: running.service.runners[ENGINE].counts.polls > 2)
        if reader == "quick":
            reading = asyncio.create_task(read(running.url))
            await until(lambda: running.service.hub.clients == 1)
        else:
            sock = await asyncio.to_thread(connect, running)
            await until(lambda: running.service.hub.clients == 1)
            await burst(running, 800, padding=20_000)
        begun = loop.time()
    assert loop.time() - begun < 1.0
    if sock is None:
        # The reader sees an orderly end of the stream, not a cut connection.
        await asyncio.wait_for(ended.wait(), 1)
        await reading
    else:
        sock.close()
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []


async def test_a_quiet_stream_sends_its_first_byte_at_once(nobody: str, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, nobody, engine={"poll_s": 60})
    async with (
        control_plane(settings) as one,
        httpx.AsyncClient(base_url=one.url, timeout=2) as http,
        http.stream("GET", "/v1/events") as answer,
    ):
        line = await anext(answer.aiter_lines())
        assert line.startswith(":")


async def test_a_newer_server_s_fields_do_not_stop_an_older_client(running: Running) -> None:
    await until(lambda: running.service.runners[ENGINE].counts.polls > 1)
    async with httpx.AsyncClient(base_url=running.url) as http:
        tick = (await http.get(f"/v1/engines/{ENGINE}/ticks?limit=1")).json()[0]
    tick["verdict"]["invented_later"] = {"a": 1}
    tick["invented_later"] = True
    async with running.client() as client:
        read = client._read(Tick, json.dumps(tick))
    assert read.id == tick["id"]
