"""The whole control plane on PostgreSQL: killed, refused beside another, its server restarted."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import httpx
import pytest

from controlplane.audit_cli import run as run_audit
from controlplane.cli import run_serve
from controlplane.client import ControlPlaneClient
from controlplane.messages import OverrideRequest
from engine_patch.contract_words import Mode
from store.db import Store
from tests.controlplane_rig import Deck, EmbeddedEngine, deck, embedded_engine
from tests.postgres_server import PASSWORD, PostgresServer

_Found = TypeVar("_Found")


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4") as running:
        yield running


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The developer's own variables must not decide a result."""
    for name in list(os.environ):
        if name.startswith("SPECDECK_"):
            monkeypatch.delenv(name)


def _id(engine: EmbeddedEngine) -> str:
    return engine.url.removeprefix("http://").replace(":", "-")


def _off() -> OverrideRequest:
    return OverrideRequest(mode=Mode.OFF, length_s=600, author="alice", reason="drill")


async def _seen(ask: Callable[[], Awaitable[_Found | None]], seconds: float = 60) -> _Found:
    """Ask until there is an answer, or fail."""
    end = time.monotonic() + seconds
    while (found := await ask()) is None:
        assert time.monotonic() < end, f"not within {seconds} s"
        await asyncio.sleep(0.05)
    return found


async def _confirmed(client: ControlPlaneClient, name: str) -> str | None:
    """The tier that all ranks run, once the engine has answered."""
    tick = (await client.engine(name)).tick
    return None if tick is None else tick.confirmed


def _ended(running: Deck) -> str:
    code, errors, _ = running.end(signal.SIGTERM)
    assert code == 0
    assert "Traceback" not in errors
    assert PASSWORD not in errors
    return errors


async def test_an_override_survives_a_kill_and_the_record_is_whole(
    engine: EmbeddedEngine, postgres_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    name, arguments = _id(engine), ["--engine", engine.url, "--database", postgres_url]
    with deck(arguments, os.environ) as first:
        async with ControlPlaneClient(first.url) as client:
            await _seen(lambda: _confirmed(client, name))
            override = await client.set_override(name, _off(), wait_s=60)
            assert override is not None
            last = (await client.ticks(name, limit=1))[0]
        # A second control plane is told who writes, and not the password.
        assert run_serve(["--port", "0", *arguments]) == 5
        told = capfd.readouterr().err
        assert f"is open for writing by process {first.process.pid} on " in told
        assert PASSWORD not in told
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()

    environment = os.environ | {"SPECDECK_DATABASE": postgres_url}
    with deck(["--engine", engine.url], environment) as second:
        async with ControlPlaneClient(second.url) as client:
            assert await _seen(lambda: _confirmed(client, name)) == "off"
            assert await client.override(name) == override
            (again,) = await client.ticks(name, after_id=last.id - 1, limit=1)
            assert again == last
            (later,) = await client.ticks(name, after_id=last.id, limit=1)
            assert later.observation.seq > last.observation.seq
            assert all(one.engine_id == name for one in await client.decisions(name))
            assert (await client.check_audit()).intact
            actions = [entry.action for entry in reversed(await client.audit())]
            assert actions == ["service.start", "override.set", "service.start"]
        assert "database postgresql://op@/" in _ended(second)

    assert run_audit(["verify", "--database", postgres_url]) == 0
    assert capfd.readouterr().out.startswith("intact: 4 rows")
    with Store.open(postgres_url, read_only=True) as store:
        assert store.overrides(name) == [override]


async def test_control_and_record_go_on_over_a_restart_of_the_server(
    engine: EmbeddedEngine, postgres_server: PostgresServer, postgres_url: str
) -> None:
    if not postgres_server.ours:
        pytest.skip("the server given by SPECDECK_TEST_POSTGRES is not stopped")
    name, arguments = _id(engine), ["--engine", engine.url, "--database", postgres_url]
    with deck(arguments, os.environ) as running:
        async with (
            ControlPlaneClient(running.url) as client,
            httpx.AsyncClient(base_url=running.url, trust_env=False, timeout=30) as plain,
        ):

            async def polled(after: int) -> int:
                async def newer() -> int | None:
                    tick = (await client.engine(name)).tick
                    seq = 0 if tick is None else tick.observation.seq
                    return seq if seq > after else None

                return await _seen(newer)

            before = await polled(0)
            postgres_server.stop()
            try:
                during = await polled(await polled(before))
                answer = await plain.get(f"/v1/engines/{name}/ticks")
                assert answer.status_code == 503
                assert answer.json()["code"] == "store_failed"
                assert "cannot be reached" in answer.json()["detail"]
                assert PASSWORD not in answer.text
                refused = await plain.put(
                    f"/v1/engines/{name}/override", json=_off().model_dump(mode="json")
                )
                assert refused.status_code == 503
                about = await plain.get("/v1")
                assert about.status_code == 200
                assert PASSWORD not in about.text + (await plain.get("/metrics")).text
            finally:
                postgres_server.start()

            async def recorded() -> list[int] | None:
                answer = await plain.get(f"/v1/engines/{name}/ticks", params={"limit": 1000})
                assert answer.status_code in (200, 503)
                if answer.status_code == 503:
                    return None
                seqs = [one["observation"]["seq"] for one in answer.json()]
                return seqs if seqs and seqs[-1] > during else None

            seqs = await _seen(recorded)
            assert seqs == list(range(seqs[0], seqs[-1] + 1))
            assert (await client.check_audit()).intact
            await _seen(lambda: _confirmed(client, name))
            assert await client.set_override(name, _off(), wait_s=60) is not None
        _ended(running)
