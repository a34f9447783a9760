"""Data-parallel replicas behind keys: every replica obeys, and only the admin key commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from engine_patch.contract_words import Mode
from tests.engine.cpu_engine import PROMPTS, CpuEngine, two_ranks
from tests.engine.plugin_client import PluginClient

pytestmark = [pytest.mark.engine, pytest.mark.timeout(480)]

API_KEY, ADMIN_KEY = "for-requests", "for-operators"


def _bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def guarded(work: Path) -> Iterator[PluginClient]:
    """A server with two DP replicas, an API key and an admin key."""
    args = ["--dp-size", "2", "--api-key", API_KEY, "--admin-api-key", ADMIN_KEY]
    server = CpuEngine(work, "dp2", env=two_ranks(), args=args, api_key=API_KEY)
    with server, PluginClient(server, _bearer(API_KEY)) as client:
        yield client


def _put(client: PluginClient, headers: dict[str, str], **body: object) -> httpx.Response:
    now = client.state()
    order = {"epoch": now.epoch, "generation": now.generation + 1}
    return httpx.put(
        f"{client.engine.url}/speculation",
        json={"mode": "off", "holder": "suite", **order, **body},
        headers=headers,
        timeout=10,
    )


def test_get_wants_the_api_key_as_sglangs_own_routes_do(guarded: PluginClient) -> None:
    url = f"{guarded.engine.url}/speculation"
    assert httpx.get(url).status_code == 401
    assert httpx.get(url, headers=_bearer(ADMIN_KEY)).status_code == 401
    assert httpx.get(url, headers=_bearer(API_KEY)).status_code == 200


def test_put_wants_the_admin_key_and_no_other(guarded: PluginClient) -> None:
    before = guarded.state().generation
    for headers in ({}, _bearer(API_KEY), _bearer("guess"), {"authorization": ADMIN_KEY}):
        assert _put(guarded, headers).status_code in (401, 403)
    assert guarded.state().generation == before
    assert _put(guarded, _bearer(ADMIN_KEY)).status_code == 200


def test_no_key_is_ever_logged(guarded: PluginClient) -> None:
    lines = [line for line in guarded.engine.log.splitlines() if "server_args=" not in line]
    assert not [line for line in lines if ADMIN_KEY in line or API_KEY in line]


def test_every_replica_answers_and_runs_what_was_asked(guarded: PluginClient) -> None:
    answer = _put(guarded, _bearer(ADMIN_KEY), mode="on", tier="s1k1d2").json()
    assert [(r["dp_rank"], r["applied"], r["tier"]) for r in answer["replicas"]] == [
        (0, True, "s1k1d2"),
        (1, True, "s1k1d2"),
    ]
    guarded.wait_runs("s1k1d2")
    guarded.engine.generate(PROMPTS, new_tokens=16, concurrency=4)
    state = guarded.state()
    assert all(replica.decode_steps > 0 for replica in state.replicas)
    assert {entry.dp_rank for entry in state.journal} == {0, 1}


def test_a_lease_ends_on_every_replica(guarded: PluginClient) -> None:
    body = {"mode": "off", "lease_s": 4, "on_lease_end": "launch"}
    before = {(entry.dp_rank, entry.seq) for entry in guarded.state().journal}
    assert _put(guarded, _bearer(ADMIN_KEY), **body).status_code == 200
    guarded.wait_runs("off")
    guarded.wait_runs("s3k1d4")
    entries = [e for e in guarded.state().journal if (e.dp_rank, e.seq) not in before]
    assert sorted((entry.dp_rank, entry.to_tier) for entry in entries) == [
        (0, "off"), (0, "s3k1d4"), (1, "off"), (1, "s3k1d4"),
    ]  # fmt: skip
    assert guarded.state().mode is Mode.ON
