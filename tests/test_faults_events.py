"""Hundreds of reconnects to the event stream: nothing lost, nothing twice, nothing left behind.

200 of the 10,000 reconnects that ``tests/benchmarks/test_faults_events.py`` makes.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import psutil
import pytest

from controlplane.server import bind
from tests.controlplane_rig import ENGINE, Running, control_plane, settings_of, until
from tests.fault_readers import Reader, come_back

READERS, TIMES = 10, 20


async def left_behind(running: Running) -> tuple[int, int, int]:
    """Subscribers, connections and open files, once those that ended are gone."""

    def quiet() -> bool:
        return running.service.hub.clients == 0 and not running.server.server_state.connections

    await until(quiet, 60)
    return len(asyncio.all_tasks()), psutil.Process().num_fds(), running.service.hub.clients


async def test_reconnects_lose_and_repeat_nothing_and_leave_nothing_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with bind("127.0.0.1", 0) as sock:
        nobody = f"http://127.0.0.1:{sock.getsockname()[1]}"
        engines = [
            # Refused at once, so that each poll is a tick.
            {"id": f"e{place}", "url": f"http://127.0.0.1:1/{place}", "poll_s": 0.05}
            for place in range(4)
        ]
        async with control_plane(settings_of(tmp_path, nobody, engines=engines)) as one:
            runners = one.service.runners
            await until(lambda: all(r.counts.polls > 2 for r in runners.values()), 60)
            port = int(one.url.rpartition(":")[2])
            first = [Reader(port, random.Random(-1), last=0)]
            await come_back(first, 5)
            tasks, files, _ = await left_behind(one)
            readers = [Reader(port, random.Random(seed), last=seed) for seed in range(READERS)]
            await come_back(readers, TIMES)
            after = await left_behind(one)
            # An engine's loop may have a poll's task more or less under way.
            assert after[0] <= tasks + 3 * len(engines)
            assert after[1] <= files + 3 * len(engines)
            assert one.service.hub.dropped == 0
            newest = max(reader.last for reader in readers)
            stored = [
                tick.id
                for tick in await asyncio.to_thread(one.service.store.ticks_after, 0, newest)
            ]
        # A reader that hangs up is nothing to write a log full of.
        assert [one.getMessage() for one in caplog.records if one.name == "asyncio"] == []
        for seed, reader in enumerate(readers):
            assert len(reader.ids) > TIMES
            assert reader.ids == [one for one in stored if seed < one <= reader.last]
            assert sum(reader.endings.values()) == TIMES


async def test_a_reader_that_hangs_up_while_it_catches_up_fills_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = "http://127.0.0.1:1"
    async with control_plane(settings_of(tmp_path, url, engine={"poll_s": 0.05})) as one:
        store = one.service.store
        await until(lambda: one.service.runners[ENGINE].counts.polls > 1, 60)
        tick = store.ticks(ENGINE, limit=1)[0]
        for first in range(1, 2000, 200):
            await asyncio.wrap_future(
                store.write(
                    [
                        tick.model_copy(
                            update={
                                "id": 0,
                                "engine_id": "many",
                                "observation": tick.observation.model_copy(
                                    update={"engine_id": "many", "seq": seq}
                                ),
                            }
                        )
                        for seq in range(first, first + 200)
                    ]
                )
            )
        port = int(one.url.rpartition(":")[2])
        for _ in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /v1/events?last_event_id=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            writer.transport.abort()
        await left_behind(one)
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []
