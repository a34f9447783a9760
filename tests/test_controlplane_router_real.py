"""SGLang's own router in front of two engines: followed, asked for its key, obeyed when it forgets.

Its package has no wheel for every machine; what it answers is also in ``ANSWERS``, as recorded.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane.router_workers import read_workers
from engine_patch.quiet_port import quiet_port
from tests.controlplane_rig import (
    BUSY,
    EmbeddedEngine,
    Running,
    control_plane,
    embedded_engine,
    settings_of,
    until,
)

KEY = "router-key-0001"
ANSWERS = Path(__file__).parent / "samples/router-0.3.2"
"""``GET /workers`` of sglang-router 0.3.2: two workers; ``--dp-aware`` and one worker of DP 2."""
real = pytest.mark.skipif(
    importlib.util.find_spec("sglang_router") is None,
    reason="sglang-router has wheels for Linux on x86-64 alone",
)


@contextmanager
def router(log: Path, *workers: str, key: str = KEY) -> Iterator[httpx.Client]:
    """A client of a running router; the process ends with it."""
    port, metrics = quiet_port(15_000, 18_000), quiet_port(18_000)  # the router takes no port 0
    command = [sys.executable, "-m", "sglang_router.launch_router", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--prometheus-port", str(metrics), "--api-key", key]
    # Its own way of balancing may leave an engine idle, and half of the load is wanted on each.
    command += ["--policy", "round_robin", "--worker-urls", *workers]
    with log.open("wb") as written:
        process = subprocess.Popen(
            command, stdout=written, stderr=subprocess.STDOUT, env=dict(os.environ)
        )
    headers = {"authorization": f"Bearer {key}"}
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers=headers, trust_env=False, timeout=30
        ) as client:
            yield client
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def known(client: httpx.Client) -> list[dict[str, Any]]:
    """The healthy workers that the router knows; none while it starts."""
    try:
        answer = client.get("/workers")
    except httpx.TransportError:
        return []
    workers: list[dict[str, Any]] = answer.json()["workers"] if answer.is_success else []
    return [one for one in workers if one["is_healthy"]]


@pytest.fixture
def engines() -> Iterator[tuple[EmbeddedEngine, EmbeddedEngine]]:
    with (
        embedded_engine("--tiers", "off,s3k1d4", "--table", "fa3") as first,
        embedded_engine("--tiers", "off,s3k1d4", "--table", "fa3") as second,
    ):
        yield first, second


def routed(tmp_path: Path, client: httpx.Client, key: str = KEY, **more: Any) -> Any:
    """Settings of a control plane that looks after what the router names."""
    path = tmp_path / "router.key"
    path.write_text(key)
    policy = {
        "kind": "hysteresis",
        "tiers": ["s3k1d4", "off"],
        "boundaries": [{"up_at": BUSY // 4, "down_at": BUSY // 8}],
        "up_hold_s": 0.2,
        "down_hold_s": 0.2,
        "min_dwell_s": 0.2,
        "start_grace_s": 0.0,
    }
    given = {
        "url": str(client.base_url).rstrip("/"),
        "every_s": 1,
        "gone_after_s": 0,
        "api_key_file": str(path),
        "engine": {"group": "routed", "poll_s": 0.1, "stance": "active", "policy": policy},
    }
    return settings_of(tmp_path, "http://127.0.0.1:9", engines=[], routers=[given | more])


def tier(running: Running, engine_id: str) -> str | None:
    """What an engine is confirmed to run."""
    found = running.service.runners.get(engine_id)
    tick = None if found is None else found.status().tick
    return None if tick is None else tick.confirmed


@pytest.mark.parametrize(
    ("name", "urls"),
    [
        ("workers", {"http://127.0.0.1:28101", "http://127.0.0.1:28102"}),
        ("workers-dp-aware", {"http://127.0.0.1:28101"}),
    ],
)
def test_a_recorded_answer_names_each_engine_once(name: str, urls: set[str]) -> None:
    found = read_workers((ANSWERS / f"{name}.json").read_bytes())
    assert (set(found.urls), len(found.urls)) == (urls, len(urls))
    assert found.skipped == ()


@real
async def test_engines_behind_it_are_switched_by_the_load_that_it_spreads(
    engines: tuple[EmbeddedEngine, EmbeddedEngine], tmp_path: Path
) -> None:
    urls = [one.url for one in engines]
    with router(tmp_path / "router.log", *urls) as client:
        await until(lambda: len(known(client)) == 2, 60)
        async with control_plane(routed(tmp_path, client)) as running:
            await until(lambda: len(running.service.runners) == 2)
            both = list(running.service.runners)
            settings = [running.service.runner(one).settings for one in both]
            assert {one.url for one in settings} == set(urls)
            await until(lambda: [tier(running, one) for one in both] == ["s3k1d4"] * 2)
            engines[0].load(BUSY, through=client)
            await until(lambda: [tier(running, one) for one in both] == ["off"] * 2)
            await asyncio.to_thread(engines[0].unload)
            await until(lambda: [tier(running, one) for one in both] == ["s3k1d4"] * 2)
            # Taken out by whoever runs the router: left alone here too, and its record stays.
            gone = next(one for one in known(client) if one["url"] == urls[0])
            assert (await asyncio.to_thread(client.delete, f"/workers/{gone['id']}")).is_success
            await until(lambda: len(running.service.runners) == 1)
            (left,) = running.service.runners
            assert running.service.runner(left).settings.url == urls[1]
            (retired,) = set(both) - {left}
            assert [one.kind for one in running.service.store.markers(retired)][-1] == "retired"


@real
async def test_a_wrong_key_and_a_dead_router_are_told_and_lose_no_engine(
    engines: tuple[EmbeddedEngine, EmbeddedEngine], tmp_path: Path
) -> None:
    key = tmp_path / "router.key"
    with router(tmp_path / "router.log", *[one.url for one in engines]) as client:
        await until(lambda: len(known(client)) == 2, 60)
        async with control_plane(routed(tmp_path, client)) as running:
            await until(lambda: len(running.service.runners) == 2)
            key.write_text("another-key")
            await until(lambda: running.service.alarms() != ())
            assert "wants its API key" in running.service.alarms()[0].text
            key.write_text(KEY)
            await until(lambda: running.service.alarms() == ())
    async with control_plane(routed(tmp_path, client)) as running:
        await until(lambda: running.service.alarms() != ())
        assert len(running.service.runners) == 2
        assert running.service.alarms()[0].code == "source_failed"
