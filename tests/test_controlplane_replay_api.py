"""The replay-only API: a control plane's paths and bodies, and nothing reaches an engine."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane.client import ControlPlaneClient, RefusedError
from controlplane.messages import OverrideRequest
from controlplane.replay_player import Mark
from controlplane.sessions_messages import ReplayRequest, WhatIfRequest
from engine_patch.contract_words import Mode
from store.records import EngineRecord, Marker
from store.session_reader import SessionFile
from store.session_writer import SessionWriter
from tests.controlplane_script import ENGINE, config, facts, two_tiers
from tests.session_parts import META, Recorded

MAIN = "import sys; from controlplane.sessions_cli import run_replay; run_replay(sys.argv[1:])"


def _write(path: Path) -> Path:
    recorded = Recorded(config=config(two_tiers()))
    for load in [2] * 40 + [40] * 60 + [2] * 100:
        recorded.see(load, prefill_tokens=0)
    with SessionWriter.create(path, META) as writer:
        for given in recorded.inputs:
            writer.add_input(given)
        for tick in recorded.ticks:
            writer.add_tick(tick)
            for decision in tick.decisions:
                writer.add_record(decision)
        writer.add_record(recorded.config.policy)
        writer.add_record(
            EngineRecord(engine_id=ENGINE, url="http://x", facts=facts(), added_utc_ms=1)
        )
        at = recorded.ticks[80].observation
        writer.add_record(
            Marker(
                engine_id=ENGINE,
                at_utc_ms=at.at_utc_ms,
                seq=at.seq,
                kind="deploy",
                author="op1",
                text="v2",
            )
        )
    return path


@contextmanager
def _replaying(path: Path) -> Iterator[str]:
    command = [sys.executable, "-c", MAIN, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("replay")
    path = _write(folder / "night.specdeck")
    path.chmod(0o400)
    with _replaying(path) as address:
        yield address


@pytest.fixture
def paused(url: str) -> str:
    order = {"playing": False, "place": 0, "speed": 1}
    httpx.put(f"{url}/v1/replay", json=order, trust_env=False).raise_for_status()
    return url


def test_the_replay_loads_no_engine_client_and_no_database() -> None:
    probe = "import controlplane.replay_serving, sys, json; print(json.dumps(sorted(sys.modules)))"
    answer = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(json.loads(answer.stdout))
    ours = {f"controlplane.{name}" for name in ("engine", "transport", "service", "pilot", "load")}
    assert not loaded & (ours | {"httpx", "sqlmodel", "sqlalchemy", "store.db"})
    assert "controlplane.replay_api" in loaded


async def test_it_answers_like_a_control_plane(paused: str) -> None:
    async with ControlPlaneClient(paused) as client:
        about = await client.about()
        assert (about.holder, about.may_operate) == ("replay", False)
        (status,) = await client.engines()
        assert status.tick is not None
        assert status.tick.observation.seq == 1
        assert status.now_utc_ms == status.tick.observation.at_utc_ms
        assert (await client.engine(ENGINE)).policy is not None
        assert await client.decisions(ENGINE) == []
        state = await client.order_replay(ReplayRequest(seq=150))
        assert state.seq == 150
        assert len(await client.ticks(ENGINE, limit=20)) == 20
        assert [one.to_tier for one in await client.decisions(ENGINE)][-1] == "off"
        with pytest.raises(RefusedError, match="engines are: e1"):
            await client.engine("other")


async def test_it_jumps_to_decisions_markers_and_differences(paused: str) -> None:
    async with ControlPlaneClient(paused) as client:
        first = await client.order_replay(ReplayRequest(jump=Mark.DECISION))
        assert first.moved
        assert first.seq is not None
        assert 40 < first.seq < 60
        marker = await client.order_replay(ReplayRequest(jump=Mark.MARKER))
        assert marker.seq == 81
        nowhere = await client.order_replay(ReplayRequest(jump=Mark.MARKER))
        assert (nowhere.moved, nowhere.seq) == (False, 81)
        found = await client.what_if(WhatIfRequest(edits=("boundaries.0.up_at=100",)))
        assert found.what_if.switches == 0
        assert found.what_if.estimate.tok_s is None  # no table, no number
        await client.order_replay(ReplayRequest(place=0))
        apart = await client.order_replay(ReplayRequest(jump=Mark.DIFFERENCE))
        assert apart.seq == found.first_difference
        back = await client.order_replay(ReplayRequest(step=-5))
        assert back.place == apart.place - 5


async def test_ticks_come_live_while_it_plays(paused: str) -> None:
    async with ControlPlaneClient(paused) as client:
        stream = client.events(ENGINE)
        seen = [await anext(stream)]
        await client.order_replay(ReplayRequest(playing=True, speed=50))
        while len(seen) < 20:
            seen.append(await anext(stream))
        await stream.aclose()
        await client.order_replay(ReplayRequest(playing=False))
    seqs = [tick.observation.seq for tick in seen]
    assert seqs == list(range(1, 21))


def test_a_reader_gets_every_tick_at_its_own_speed(url: str) -> None:
    begun, seqs = time.monotonic(), []
    path = f"{url}/v1/sessions/1/events?speed=200&first_seq=21"
    with httpx.stream("GET", path, trust_env=False, timeout=10) as answer:
        for line in answer.iter_lines():
            if line.startswith("id:"):
                seqs.append(int(line[3:]))
            if line.startswith("event: end"):
                break
    assert seqs == list(range(21, 201))
    assert 0.4 < time.monotonic() - begun < 30  # 90 s of recording


def test_verify_and_track_are_served(url: str) -> None:
    found = httpx.get(f"{url}/v1/sessions/1/verify", trust_env=False, timeout=30).json()
    assert (found["verified"], found["differing"]) == (200, 0)
    track = httpx.get(f"{url}/v1/sessions/1/track?every=10", trust_env=False).json()
    assert len(track["columns"]["engine_tier"]) == 20


def test_nothing_can_be_sent_to_an_engine(url: str) -> None:
    asked: dict[str, Any] = {"mode": "off", "length_s": 60, "author": "me", "reason": "x"}
    for method, path in (
        ("PUT", f"/v1/engines/{ENGINE}/override"),
        ("DELETE", f"/v1/engines/{ENGINE}/override"),
        ("POST", f"/v1/engines/{ENGINE}/override/extend"),
        ("PUT", f"/v1/engines/{ENGINE}/stance"),
        ("PUT", f"/v1/engines/{ENGINE}/policy"),
        ("POST", f"/v1/engines/{ENGINE}/benchmarks"),
        ("POST", f"/v1/engines/{ENGINE}/markers"),
        ("POST", "/v1/sessions"),
    ):
        answer = httpx.request(method, url + path, json=asked, trust_env=False)
        assert answer.status_code in (405, 409), path
        assert answer.headers["content-type"] == "application/problem+json"


async def test_the_typed_client_is_told_why(url: str) -> None:
    async with ControlPlaneClient(url) as client:
        request = OverrideRequest(mode=Mode.OFF, length_s=60, author="me", reason="x")
        with pytest.raises(RefusedError, match="nothing can be sent to an engine"):
            await client.set_override(ENGINE, request)


def test_a_copy_replays_alone_in_an_empty_folder(tmp_path: Path) -> None:
    path = _write(tmp_path / "copy.specdeck")
    before = path.read_bytes()
    with _replaying(path) as address:
        assert httpx.get(f"{address}/v1/sessions", trust_env=False).json()[0]["ticks"] == 200
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["copy.specdeck"]


def test_many_readers_share_one_file(tmp_path: Path) -> None:
    with SessionFile.open(_write(tmp_path / "a.specdeck")) as session:
        found: list[int] = []

        def read() -> None:
            found.append(len(session.ticks(limit=500)))

        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [200] * 8
