"""The API over real sockets, with the embedded engine behind it."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from controlplane.client import (
    ControlPlaneClient,
    NotConfirmedError,
    RefusedError,
    UnauthorisedError,
    UnreachableError,
)
from controlplane.messages import ExtendRequest, OverrideRequest, ReleaseRequest, StanceRequest
from controlplane.server import CannotListenError, bind
from engine_patch.contract_words import Mode
from store.policies import Stance
from tests.controlplane_rig import (
    ENGINE,
    EmbeddedEngine,
    Running,
    control_plane,
    embedded_engine,
    settings_of,
    until,
)

READ, OPERATE = "reading-token-000001", "operating-token-0001"


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4") as running:
        yield running


@pytest_asyncio.fixture
async def running(engine: EmbeddedEngine, tmp_path: Path) -> AsyncIterator[Running]:
    async with control_plane(settings_of(tmp_path, engine.url, override_max_s=3600)) as one:
        runner = one.service.runners[ENGINE]
        await until(
            lambda: (tick := runner.status().tick) is not None and tick.confirmed == "s3k1d4"
        )
        yield one


def asked(mode: Mode = Mode.OFF, length_s: float = 60, **more: object) -> OverrideRequest:
    fields = {"mode": mode, "length_s": length_s, "author": "alice", "reason": "a test"}
    return OverrideRequest.model_validate(fields | more)


async def test_about_tells_who_answers_and_what_one_may_do(running: Running) -> None:
    async with running.client() as client:
        about = await client.about()
    assert (about.holder, about.may_operate, about.override_max_s) == ("specdeck@test", True, 3600)


async def test_an_engine_is_shown_with_policy_and_newest_tick(running: Running) -> None:
    async with running.client() as client:
        (status,) = await client.engines()
        assert status == (await client.engine(ENGINE)).model_copy(
            update={"tick": status.tick, "now_utc_ms": status.now_utc_ms}
        )
    assert status.engine.facts is not None
    assert status.engine.facts.simulated
    assert status.policy is not None
    assert status.policy.stance is Stance.ACTIVE
    assert status.tick is not None
    assert status.tick.confirmed == "s3k1d4"


async def test_an_override_is_obeyed_and_confirmed_within_a_second(
    running: Running, engine: EmbeddedEngine
) -> None:
    async with running.client() as client:
        override = await client.set_override(ENGINE, asked(), wait_s=1.0)
        assert override is not None
        assert override.id > 0
        assert (await client.engine(ENGINE)).tick.confirmed == "off"  # type: ignore[union-attr]
        assert (await client.override(ENGINE)) == override
        assert await client.release_override(ENGINE, ReleaseRequest(author="alice")) is None
        assert await client.override(ENGINE) is None
        actions = [row.action for row in await client.audit()]
        assert actions[:3] == ["override.release", "override.set", "service.start"]
    await until(lambda: engine.state()["replicas"][0]["ranks"][0]["tier"] == "s3k1d4")


async def test_an_override_takes_effect_without_waiting_for_the_next_poll(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, engine.url, engine={"poll_s": 30})
    async with control_plane(settings) as one, one.client() as client:
        runner = one.service.runners[ENGINE]
        await until(lambda: runner.status().tick is not None)
        await client.set_override(ENGINE, asked(), wait_s=1.0)
        await client.release_override(ENGINE, ReleaseRequest(author="alice"))


async def test_a_later_override_replaces_an_earlier_one(running: Running) -> None:
    async with running.client() as client:
        first = await client.set_override(ENGINE, asked())
        second = await client.set_override(ENGINE, asked(Mode.ON, tier="s3k1d4"))
        assert first is not None
        assert second is not None
        stored = {one.id: one for one in running.service.store.overrides(ENGINE)}
        assert stored[first.id].ended_by == f"replaced by {second.id}"
        assert stored[second.id].ended_utc_ms is None
        await client.release_override(ENGINE, ReleaseRequest(author="bob"))
        ended = next(o for o in running.service.store.overrides(ENGINE) if o.id == second.id)
        assert ended.ended_by == "released by bob"


async def test_an_override_runs_out_by_itself_and_is_recorded_so(running: Running) -> None:
    async with running.client() as client:
        override = await client.set_override(ENGINE, asked(length_s=0.4))
        assert override is not None
        await until(lambda: running.service.runners[ENGINE].pilot.override is None)
        await until(lambda: running.service.store.overrides(ENGINE)[0].ended_utc_ms is not None)
        ended = running.service.store.overrides(ENGINE)[0]
        assert ended.ended_by == "expired"
        assert ended.ended_utc_ms is not None
        assert 0 <= ended.ended_utc_ms - override.expires_utc_ms < 300


async def test_an_extension_moves_the_end_and_no_further_than_the_ceiling(
    running: Running,
) -> None:
    async with running.client() as client:
        with pytest.raises(RefusedError, match="no override is in force"):
            await client.extend_override(ENGINE, ExtendRequest(extra_s=5, author="a"))
        first = await client.set_override(ENGINE, asked(length_s=600))
        longer = await client.extend_override(ENGINE, ExtendRequest(extra_s=60, author="a"))
        assert first is not None
        assert longer is not None
        assert longer.id == first.id
        assert longer.granted_s == 660
        assert abs(longer.expires_utc_ms - first.expires_utc_ms - 60_000) <= 2
        with pytest.raises(RefusedError, match="3600 s left at most"):
            await client.extend_override(ENGINE, ExtendRequest(extra_s=3600, author="a"))
        await client.release_override(ENGINE, ReleaseRequest(author="a"))


@pytest.mark.parametrize(
    ("request_", "status", "words"),
    [
        (asked(Mode.ON, tier="s2k4d16"), 422, "built are: s3k1d4"),
        (asked(length_s=3601), 422, "may run 3600 s at most"),
        (asked(Mode.AUTO), 422, "no thresholds"),
    ],
)
async def test_what_cannot_be_granted_is_refused_with_what_can(
    running: Running, request_: OverrideRequest, status: int, words: str
) -> None:
    async with running.client() as client:
        with pytest.raises(RefusedError, match=words) as caught:
            await client.set_override(ENGINE, request_)
        assert caught.value.problem is not None
        assert caught.value.problem.status == status
        assert await client.override(ENGINE) is None


async def test_an_unconfirmed_override_is_told_of_but_in_force(
    running: Running, engine: EmbeddedEngine
) -> None:
    engine.fault(lie=True)
    try:
        async with running.client() as client:
            with pytest.raises(NotConfirmedError, match="in force, but e1 did not confirm it"):
                await client.set_override(ENGINE, asked(), wait_s=0.5)
            assert await client.override(ENGINE) is not None
            await client.release_override(ENGINE, ReleaseRequest(author="alice"))
    finally:
        engine.fault(clear=True)


async def test_a_stance_makes_a_new_policy_version(running: Running) -> None:
    async with running.client() as client:
        before = (await client.engine(ENGINE)).policy
        assert before is not None
        paused = await client.set_stance(ENGINE, StanceRequest(stance=Stance.PAUSED, author="bob"))
        assert (paused.version, paused.author) == (before.version + 1, "bob")
        again = await client.set_stance(ENGINE, StanceRequest(stance=Stance.PAUSED, author="eve"))
        assert again == paused
        runner = running.service.runners[ENGINE]
        await until(lambda: runner.status().tick.stance is Stance.PAUSED)  # type: ignore[union-attr]
        assert running.service.store.policy(ENGINE) == paused


async def test_ticks_are_paged_and_oldest_first(running: Running) -> None:
    async with running.client() as client:
        await until(lambda: running.service.runners[ENGINE].counts.polls > 5)
        newest = await client.ticks(ENGINE, limit=3)
        assert [t.id for t in newest] == sorted(t.id for t in newest)
        first = await client.ticks(ENGINE, limit=2, after_id=0)
        then = await client.ticks(ENGINE, limit=2, after_id=first[-1].id)
        assert [t.observation.seq for t in first + then] == [1, 2, 3, 4]


async def test_an_engine_without_the_plugin_is_watched_and_said_to_be_read_only(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    engine.fault(drop_speculation=True)
    try:
        settings = settings_of(tmp_path, engine.url)
        async with control_plane(settings) as one, one.client() as client:
            runner = one.service.runners[ENGINE]
            await until(lambda: runner.status().tick is not None)
            await until(lambda: runner.pilot.facts is not None)
            with pytest.raises(RefusedError, match="read-only: plugin absent") as caught:
                await client.set_override(ENGINE, asked())
            assert caught.value.problem is not None
            assert caught.value.problem.status == 409
            with pytest.raises(RefusedError, match="read-only"):
                await client.set_stance(ENGINE, StanceRequest(stance=Stance.ACTIVE, author="a"))
    finally:
        engine.fault(clear=True)


async def test_an_engine_that_was_never_reached_says_so(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        async with control_plane(settings_of(tmp_path, url)) as one, one.client() as client:
            runner = one.service.runners[ENGINE]
            await until(lambda: runner.status().tick is not None)
            tick = (await client.engine(ENGINE)).tick
            assert tick is not None
            assert "cannot connect" in tick.verdict.text
            for call in (
                client.set_override(ENGINE, asked()),
                client.set_stance(ENGINE, StanceRequest(stance=Stance.ACTIVE, author="a")),
            ):
                with pytest.raises(RefusedError, match="has not answered yet"):
                    await call


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "code"),
    [
        ("GET", "/v1/engines/nobody", None, 404, "unknown_engine"),
        ("GET", "/v1/nothing", None, 404, "not_found"),
        ("PATCH", "/v1/engines", None, 405, "method_not_allowed"),
        ("PUT", "/v1/engines/e1/override", b"{", 400, "bad_json"),
        ("PUT", "/v1/engines/e1/override", b"\x80", 400, "bad_request"),
        ("PUT", "/v1/engines/e1/override", b"[]", 422, "invalid"),
        ("PUT", "/v1/engines/e1/override", b'{"mode":"on"}', 422, "invalid"),
        ("GET", "/v1/engines/e1/ticks?limit=0", None, 422, "invalid"),
        ("GET", "/v1/engines/e1/ticks?after_id=99999999999999999999", None, 422, "invalid"),
        ("GET", "/v1/events?last_event_id=x", None, 422, "invalid"),
        ("GET", "/v1/events?engine=nobody", None, 404, "unknown_engine"),
        ("PUT", "/v1/engines/e1/override", b"x" * 70_000, 413, "too_large"),
    ],
)
async def test_every_error_is_problem_details(
    running: Running, method: str, path: str, content: bytes | None, status: int, code: str
) -> None:
    async with httpx.AsyncClient(base_url=running.url) as http:
        headers = {"Content-Type": "application/json"} if content else {}
        answer = await http.request(method, path, content=content, headers=headers)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["code"] == code
    assert problem["detail"]


async def test_a_body_of_unannounced_length_is_limited_too(running: Running) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 10_000

    async with httpx.AsyncClient(base_url=running.url) as http:
        headers = {"Content-Type": "application/json"}
        answer = await http.put(f"/v1/engines/{ENGINE}/stance", content=endless(), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


async def test_a_foreign_host_or_origin_is_refused(running: Running) -> None:
    async with httpx.AsyncClient(base_url=running.url) as http:
        rebound = await http.get("/v1", headers={"Host": "evil.example"})
        assert (rebound.status_code, rebound.json()["code"]) == (421, "foreign_host")
        assert (await http.get("/v1", headers={"Host": "localhost:1"})).status_code == 200
        cross = await http.put(
            "/v1/engines/e1/stance",
            json={"stance": "paused", "author": "x"},
            headers={"Origin": "https://evil.example"},
        )
        assert (cross.status_code, cross.json()["code"]) == (403, "foreign_origin")
        own = await http.put(
            "/v1/engines/e1/stance",
            json={"stance": "active", "author": "x"},
            headers={"Origin": running.url},
        )
        assert own.status_code == 200


async def test_tokens_gate_everything_but_health_and_docs(
    engine: EmbeddedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("READ_TOKEN", READ)
    monkeypatch.setenv("OPERATE_TOKEN", OPERATE)
    tokens = [
        {"name": "eye", "token_env": "READ_TOKEN"},
        {"name": "ops", "role": "operate", "token_env": "OPERATE_TOKEN"},
    ]
    settings = settings_of(tmp_path, engine.url, tokens=tokens)
    async with control_plane(settings) as one:
        async with httpx.AsyncClient(base_url=one.url) as http:
            for path in ("/healthz", "/readyz", "/docs", "/openapi.json"):
                assert (await http.get(path)).status_code == 200, path
            for path in ("/v1", "/v1/engines", "/v1/events", "/v1/audit", "/metrics"):
                answer = await http.get(path)
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        for token, words in ((None, "needs a token"), ("wrong-" + READ, "is not known")):
            async with one.client(token) as client:
                with pytest.raises(UnauthorisedError, match=words):
                    await client.about()
        async with one.client(READ) as client:
            assert not (await client.about()).may_operate
            with pytest.raises(UnauthorisedError, match="role read"):
                await client.set_override(ENGINE, asked())
            with pytest.raises(UnauthorisedError, match="role read"):
                await client.release_override(ENGINE, ReleaseRequest(author="x"))
        async with one.client(OPERATE) as client:
            await until(lambda: one.service.runners[ENGINE].pilot.facts is not None)
            override = await client.set_override(ENGINE, asked())
            assert override is not None
            assert override.author == "alice (token ops)"
            await client.release_override(ENGINE, ReleaseRequest(author="ops"))
            assert (await client.audit())[0].actor == "ops"


async def test_health_readiness_metrics_and_the_page_answer(running: Running) -> None:
    async with httpx.AsyncClient(base_url=running.url) as http:
        assert (await http.get("/healthz")).json()["status"] == "ok"
        assert (await http.get("/readyz")).json()["status"] == "ready"
        metrics = (await http.get("/metrics")).text
        page = (await http.get("/docs")).text
    assert 'specdeck_engine_up{engine="e1"} 1.0' in metrics
    assert 'specdeck_confirmed_tier{engine="e1",tier="s3k1d4"} 1.0' in metrics
    assert 'specdeck_polls_total{engine="e1"}' in metrics
    # Nothing runs, so there is no accept length: no sample, and not a 0.
    assert 'specdeck_accept_length_tokens{engine="e1"}' not in metrics
    assert "<script" not in page
    assert "https://" not in page
    assert "/v1/engines/{engine_id}/override" in page


async def test_an_idle_connection_outlasts_what_clients_keep_theirs(running: Running) -> None:
    async def answered() -> bytes:
        writer.write(b"GET /v1 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None
        await reader.readexactly(int(length[1]))
        return head

    url = httpx.URL(running.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        assert (await answered()).startswith(b"HTTP/1.1 200")
        await asyncio.sleep(5.5)  # httpx gives an idle connection up after 5
        assert (await answered()).startswith(b"HTTP/1.1 200")
    finally:
        writer.close()


async def test_a_taken_port_is_named() -> None:
    with bind("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(CannotListenError, match=f"port {port} on 127.0.0.1 is taken"):
            bind("127.0.0.1", port)
    with pytest.raises(CannotListenError, match="no address of this machine"):
        bind("192.0.2.1", 0)


async def test_no_control_plane_is_a_plain_sentence() -> None:
    with bind("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
    async with ControlPlaneClient(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(UnreachableError, match="start one with 'specdeck serve'"):
            await client.about()


async def test_a_hanging_engine_does_not_hold_up_the_api_or_another_engine(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    with embedded_engine("--tiers", "off,s3k1d4") as slow:
        engines = [
            {"id": "quick", "url": engine.url, "poll_s": 0.1},
            {"id": "slow", "url": slow.url, "poll_s": 0.1, "timeout_s": 1.0},
        ]
        settings = settings_of(tmp_path, engine.url, engines=engines)
        async with control_plane(settings) as one, one.client() as client:
            quick, hung = one.service.runners["quick"], one.service.runners["slow"]
            await until(lambda: hung.counts.polls > 1)
            slow.fault(hang=5)
            begun = quick.counts.polls
            loop = asyncio.get_running_loop()
            until_at = loop.time() + 1.5
            worst = 0.0
            while loop.time() < until_at:
                asked_at = loop.time()
                await client.engines()
                worst = max(worst, loop.time() - asked_at)
                await asyncio.sleep(0.05)
            # Held up by the other one it would make one poll per second.
            assert quick.counts.polls - begun >= 5
            assert worst < 0.9
            slow.fault(clear=True)
