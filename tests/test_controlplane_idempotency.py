"""Idempotency keys: a repeated change is answered and not made again, over a restart too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from store.db import Store
from store.idempotency import KeptAnswer
from tests.controlplane_rig import (
    ENGINE,
    EmbeddedEngine,
    Running,
    control_plane,
    embedded_engine,
    settings_of,
    until,
)

PATH = f"/v1/engines/{ENGINE}/override"
BODY: dict[str, Any] = {"mode": "off", "length_s": 60, "author": "alice", "reason": "test"}


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4") as started:
        yield started


@asynccontextmanager
async def asking(running: Running, token: str | None = None) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx.AsyncClient(base_url=running.url, trust_env=False, headers=headers) as http:
        yield http


async def test_a_change_sent_again_with_its_key_is_answered_and_not_made_again(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    async with control_plane(settings_of(tmp_path, engine.url)) as running, asking(running) as http:
        await until(lambda: running.service.runner(ENGINE).pilot.policy is not None, 30.0)
        path = f"/v1/engines/{ENGINE}/override"
        body = {"mode": "off", "length_s": 60, "author": "alice", "reason": "test"}
        key = {"Idempotency-Key": "deploy-17"}
        one = await http.put(path, json=body, headers=key)
        other = await http.put(path, json=body, headers=key)
        assert one.json() == other.json()
        assert other.headers["idempotency-replayed"] == "true"
        assert "idempotency-replayed" not in one.headers
        assert len(running.service.store.overrides(ENGINE)) == 1
        reused = await http.put(path, json=body | {"length_s": 90}, headers=key)
        assert (reused.status_code, reused.json()["code"]) == (422, "key_reused")
        plain = await http.put(path, json=body)
        assert plain.json()["override"]["id"] != one.json()["override"]["id"]
        long = await http.put(path, json=body, headers={"Idempotency-Key": "x" * 201})
        assert (long.status_code, long.json()["code"]) == (422, "bad_key")
        read = await http.get(path, headers=key)
        assert read.status_code == 200


async def test_two_requests_at_once_with_one_key_are_made_once(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    async with control_plane(settings_of(tmp_path, engine.url)) as running, asking(running) as http:
        await until(lambda: running.service.runner(ENGINE).pilot.policy is not None, 30.0)
        path = f"/v1/engines/{ENGINE}/override?wait=confirmed"
        body = {"mode": "off", "length_s": 60, "author": "alice", "reason": "test"}
        key = {"Idempotency-Key": "k"}
        answers = await asyncio.gather(*(http.put(path, json=body, headers=key) for _ in range(5)))
        assert {one.status_code for one in answers} <= {200, 202, 409}
        assert len(running.service.store.overrides(ENGINE)) == 1


async def test_a_refusal_for_lack_of_rights_does_not_use_up_a_key(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    tokens = [
        {"name": "ops", "role": "operate", "token": "operating-token-01"},
        {"name": "eye", "role": "read", "token": "reading-token-0001"},
    ]
    settings = settings_of(tmp_path, engine.url, tokens=tokens)
    key = {"Idempotency-Key": "k"}
    body = {"mode": "off", "length_s": 60, "author": "alice", "reason": "test"}
    path = f"/v1/engines/{ENGINE}/override"
    async with control_plane(settings) as running:
        await until(lambda: running.service.runner(ENGINE).pilot.policy is not None, 30.0)
        async with asking(running, "reading-token-0001") as eye:
            assert (await eye.put(path, json=body, headers=key)).status_code == 403
            assert (await eye.put(path, json=body, headers=key)).status_code == 403
        async with asking(running, "operating-token-01") as ops:
            assert (await ops.put(path, json=body, headers=key)).status_code == 200
        async with asking(running) as nobody:
            assert (await nobody.put(path, json=body, headers=key)).status_code == 401


async def ready(running: Running) -> None:
    await until(lambda: running.service.runner(ENGINE).pilot.policy is not None, 30.0)


async def test_a_key_outlives_a_restart_with_its_answer(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, engine.url)
    key = {"Idempotency-Key": "deploy-18"}
    async with control_plane(settings) as running, asking(running) as http:
        await ready(running)
        first = await http.put(PATH, json=BODY, headers=key)
        assert first.status_code == 200
    async with control_plane(settings) as running, asking(running) as http:
        await ready(running)
        again = await http.put(PATH, json=BODY, headers=key)
        assert again.json() == first.json()

        assert again.headers["idempotency-replayed"] == "true"
        assert again.headers["etag"] == first.headers["etag"]
        condition = key | {"If-Match": first.headers["etag"]}
        assert (await http.put(PATH, json=BODY, headers=condition)).status_code == 422
        assert len(running.service.store.overrides(ENGINE)) == 1
        reused = await http.put(PATH, json=BODY | {"length_s": 90}, headers=key)
        assert (reused.status_code, reused.json()["code"]) == (422, "key_reused")
        elsewhere = await http.post("/v1/pause", json={"author": "alice"}, headers=key)
        assert elsewhere.status_code == 422


async def test_a_change_that_a_crash_cut_off_is_not_made_a_second_time(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, engine.url)
    key = {"Idempotency-Key": "k"}
    async with control_plane(settings) as running, asking(running) as http:
        await ready(running)
        assert (await http.put(PATH, json=BODY, headers=key)).status_code == 200
        answered = running.service.store.kept_answer("", "k")
        assert answered is not None
    cut_off = KeptAnswer(caller="", key="k", request=answered.request, at_utc_ms=answered.at_utc_ms)
    with Store.open(settings.database_location) as store:
        store.write([cut_off]).result(timeout=10)
    async with control_plane(settings) as running, asking(running) as http:
        again = await http.put(PATH, json=BODY, headers=key)
        assert (again.status_code, again.json()["code"]) == (409, "outcome_unknown")
        other = await http.put(PATH, json=BODY | {"length_s": 90}, headers=key)
        assert (other.status_code, other.json()["code"]) == (422, "key_reused")
        assert len(running.service.store.overrides(ENGINE)) == 1


async def test_a_key_is_free_again_after_a_day(engine: EmbeddedEngine, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, engine.url)
    key = {"Idempotency-Key": "k"}
    async with control_plane(settings) as running, asking(running) as http:
        await ready(running)
        first = await http.put(PATH, json=BODY, headers=key)
        kept = running.service.store.kept_answer("", "k")
        assert kept is not None
        old = kept.model_copy(update={"at_utc_ms": kept.at_utc_ms - 86_400_001})
        await asyncio.wrap_future(running.service.store.write([old]))
        second = await http.put(PATH, json=BODY, headers=key)
        assert "idempotency-replayed" not in second.headers
        assert second.json()["override"]["id"] != first.json()["override"]["id"]


async def test_a_store_that_cannot_keep_the_key_changes_nothing(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, engine.url)
    async with control_plane(settings) as running, asking(running) as http:
        await ready(running)
        running.service.store.close()
        answer = await http.put(PATH, json=BODY, headers={"Idempotency-Key": "k"})
        assert (answer.status_code, answer.json()["code"]) == (503, "store_failed")
        assert running.service.runner(ENGINE).pilot.override is None


async def test_a_body_of_unannounced_length_is_limited_under_a_key_too(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    async def much() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 8192

    async with control_plane(settings_of(tmp_path, engine.url)) as running, asking(running) as http:
        answer = await http.put(PATH, content=much(), headers={"Idempotency-Key": "k"})
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
