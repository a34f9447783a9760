"""Signed webhooks and HTTPS: what automation builds on."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane.clock import SystemClock
from controlplane.server import CannotListenError, Certificate
from controlplane.settings import Settings
from controlplane.webhooks import QUEUE, Hook, HookEvent, Webhooks, signature
from store.records import Alarm, Outcome
from tests.controlplane_rig import (
    ENGINE,
    EmbeddedEngine,
    control_plane,
    deck,
    embedded_engine,
    settings_of,
    until,
)
from tests.controlplane_script import Script

SECRET = "a-webhook-secret"


class Receiver:
    """A program that takes deliveries, or refuses the first of them."""

    def __init__(self, refuse: int = 0) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self._refuse = refuse

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (line := await reader.readline()).strip():
            assert line.startswith(b"POST /hook ")
            headers: dict[str, str] = {}
            while (text := (await reader.readline()).decode().strip()) != "":
                name, _, value = text.partition(": ")
                headers[name.lower()] = value
            body = await reader.readexactly(int(headers["content-length"]))
            self.requests.append((headers, body))
            refused = self._refuse > 0
            self._refuse -= refused
            status = "503 Busy" if refused else "204 Fine"
            writer.write(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n".encode())
            await writer.drain()
        writer.close()


@asynccontextmanager
async def receiving(refuse: int = 0) -> AsyncIterator[tuple[Receiver, str]]:
    receiver = Receiver(refuse)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield receiver, f"http://127.0.0.1:{port}/hook"


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4") as started:
        yield started


async def test_a_settled_decision_and_an_alarm_are_told_and_signed(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    async with receiving(refuse=1) as (receiver, url):
        hook = {"url": url, "secret_file": str(secret)}
        settings = settings_of(tmp_path, engine.url, webhooks=[hook])
        async with control_plane(settings) as running, running.client() as client:
            await until(lambda: running.service.runner(ENGINE).pilot.policy is not None)
            body = {"mode": "off", "length_s": 60, "author": "alice", "reason": "test"}
            async with httpx.AsyncClient(base_url=running.url, trust_env=False) as http:
                answer = await http.put(
                    f"/v1/engines/{ENGINE}/override", json=body, params={"wait": "confirmed"}
                )
            assert answer.status_code == 200
            assert await client.override(ENGINE) is not None
            await until(lambda: len(receiver.requests) >= 2)
            headers, raw = receiver.requests[1]
            engine.fault(hang=20)
            await until(
                lambda: any(b"alarm.raised" in one[1] for one in receiver.requests), seconds=15
            )
            engine.fault(clear=True)
    event = HookEvent.model_validate_json(raw)
    assert event.type == "decision"
    assert event.decision is not None
    assert event.decision.outcome is Outcome.CONFIRMED
    stamp = headers["x-specdeck-timestamp"]
    mac = hmac.new(SECRET.encode(), f"{stamp}.".encode() + raw, hashlib.sha256).hexdigest()
    assert headers["x-specdeck-signature"] == f"v1={mac}"
    # The first try was answered with 503, and the same event was sent again.
    first = json.loads(receiver.requests[0][1])
    assert first["id"] == event.id
    assert headers["x-specdeck-delivery"] == event.id
    raised = [json.loads(one[1]) for one in receiver.requests]
    codes = {one["alarm"]["code"] for one in raised if one["type"] == "alarm.raised"}
    assert "engine_unreachable" in codes
    assert SECRET.encode() not in b"".join(one[1] for one in receiver.requests)


def test_the_receiver_in_the_page_takes_what_is_genuine_and_nothing_else() -> None:
    page = (Path(__file__).parents[1] / "docs" / "webhooks.md").read_text()
    names: dict[str, Any] = {}
    exec(page.split("```python\n")[1].split("```")[0], names)
    now = int(time.time())

    def taken(secret: bytes, at: int, body: bytes, signed_at: int = now) -> bool:
        made = signature(SECRET.encode(), signed_at, b'{"id":"1"}')
        headers = {"X-Specdeck-Timestamp": str(at), "X-Specdeck-Signature": made}
        return bool(names["genuine"](secret, headers, body))

    body, old = b'{"id":"1"}', now - 3600
    assert taken(SECRET.encode(), now, body)
    assert not taken(b"another", now, body)
    assert not taken(SECRET.encode(), now, body + b" ")
    assert not taken(SECRET.encode(), now - 1, body)
    assert not taken(SECRET.encode(), old, body, signed_at=old)


def test_another_body_time_or_secret_is_another_signature() -> None:
    one = signature(b"k", 1, b"{}")
    assert one == signature(b"k", 1, b"{}")
    assert (
        len({one, signature(b"k", 2, b"{}"), signature(b"k", 1, b"[]"), signature(b"x", 1, b"{}")})
        == 4
    )


def test_a_receiver_that_takes_nothing_costs_a_bounded_queue_and_the_oldest_events() -> None:
    hook = Hook("http://127.0.0.1:9/hook", frozenset({"alarm"}), b"k")
    hooks = Webhooks([hook], "me", SystemClock())
    tick = Script().see(1)
    for number in range(QUEUE + 5):
        alarm = Alarm(code=f"c{number}", text="t", since_utc_ms=1)
        hooks.told(tick.model_copy(update={"alarms": (alarm,)}))
    assert len(hook.waiting) == QUEUE
    assert hook.dropped > 0


def test_only_wanted_kinds_are_queued_and_an_alarm_that_stays_is_told_once() -> None:
    hook = Hook("http://127.0.0.1:9/hook", frozenset({"alarm"}), b"k")
    hooks = Webhooks([hook], "me", SystemClock())
    script = Script()
    tick = script.see(1)
    alarm = Alarm(code="stale", text="t", since_utc_ms=1)
    up = tick.model_copy(update={"alarms": (alarm,)})
    for one in (tick, up, up, tick):
        hooks.told(one)
    assert [one.type for one in hook.waiting] == ["alarm.raised", "alarm.cleared"]


def test_alarms_beside_the_engines_are_told_each_for_itself() -> None:
    hook = Hook("http://x", frozenset({"alarm"}), b"k")
    hooks = Webhooks([hook], "me", SystemClock())
    first = Alarm(code="source_failed", text="file a: gone", since_utc_ms=1)
    second = Alarm(code="source_failed", text="router b: silent", since_utc_ms=2)
    hooks.stand(())
    hooks.stand((first,))
    hooks.stand((first, second))
    hooks.stand((second.model_copy(update={"text": "router b: refuses"}),))
    hooks.stand(())
    told = [(one.type, one.alarm.since_utc_ms if one.alarm else 0) for one in hook.waiting]
    assert told == [
        ("alarm.raised", 1),
        ("alarm.raised", 2),
        ("alarm.cleared", 1),
        ("alarm.cleared", 2),
    ]
    assert {one.engine_id for one in hook.waiting} == {""}
    assert len({one.id for one in hook.waiting}) == 4


# -- HTTPS --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    chain, key = folder / "cert.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    subprocess.run(
        [*command.split(), "-keyout", str(key), "-out", str(chain), *subject],
        check=True,
        capture_output=True,
    )
    return chain, key


def test_the_api_is_served_by_https_with_certificate_files(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    chain, key = pair
    environment = {
        "SPECDECK_LISTEN__TLS_CERT": str(chain),
        "SPECDECK_LISTEN__TLS_KEY": str(key),
        "PATH": "/usr/bin:/bin",
    }
    with deck(["--database", str(tmp_path / "d.sqlite3")], environment) as running:
        assert running.url.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=str(chain))
        assert httpx.get(f"{running.url}/healthz", verify=trusting, trust_env=False).is_success
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{running.url}/healthz", trust_env=False)
        code, errors, _ = running.end(15)
        assert code == 0
        assert "Traceback" not in errors


def test_files_that_do_not_fit_are_named_before_anything_starts(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    chain, key = pair
    for wrong in (Certificate(key, chain), Certificate(chain, tmp_path / "none.pem")):
        with pytest.raises(CannotListenError, match=r"tls_key .* cannot be used"):
            wrong.check()
    Certificate(chain, key).check()
    with pytest.raises(ValueError, match="tls_cert and tls_key together"):
        Settings(listen={"tls_cert": str(chain)})
