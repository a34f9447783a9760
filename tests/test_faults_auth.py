"""No write without the operate token, however it is asked for, on every route there is."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.api import create_app
from controlplane.service import Service
from store.db import Store
from tests.controlplane_rig import ENGINE, deck, embedded_engine, settings_of

OPERATE = "operating-token-000001"
READ = "reading-token-00000001"
WHO = {"author": "mallory", "reason": "because"}
FIXED = {"kind": "fixed", "tier": "off"}
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("PUT", "/v1/engines/{engine_id}/override"): {"mode": "off", "length_s": 60, **WHO},
    ("DELETE", "/v1/engines/{engine_id}/override"): WHO,
    ("POST", "/v1/engines/{engine_id}/override/extend"): {"extra_s": 60, **WHO},
    ("PUT", "/v1/engines/{engine_id}/stance"): {"stance": "paused", **WHO},
    ("PUT", "/v1/engines/{engine_id}/policy"): {"policy": FIXED, **WHO},
    ("POST", "/v1/engines/{engine_id}/policy/rollback"): WHO,
    ("POST", "/v1/engines"): {"url": "http://127.0.0.1:9", **WHO},
    ("DELETE", "/v1/engines/{engine_id}"): WHO,
    ("POST", "/v1/engines/{engine_id}/takeover"): {"holder": "x", **WHO},
    ("PUT", "/v1/groups/{group}/policy"): {"policy": FIXED, **WHO},
    ("POST", "/v1/pause"): WHO,
    ("POST", "/v1/resume"): WHO,
    ("POST", "/v1/engines/{engine_id}/markers"): {"kind": "deploy", "author": "mallory"},
    ("POST", "/v1/sessions"): {"engine_id": ENGINE, "name": "mine", "author": "mallory"},
    ("POST", "/v1/sessions/{session_id}/stop"): {"author": "mallory"},
}
"""What would be a write with the operate token; a route that is not here gets an empty object."""
PLACES = {"engine_id": ENGINE, "group": "all", "session_id": "1", "benchmark": "1"}
OPEN = {"/healthz", "/readyz"}


@dataclass(frozen=True)
class Target:
    """A control plane with tokens, and what its description says."""

    port: int
    operations: tuple[tuple[str, str], ...]

    def ask(
        self,
        method: str,
        path: str,
        headers: list[tuple[bytes, bytes]],
        body: bytes | None = None,
    ) -> int:
        """The status of one request, sent as raw bytes so that any header can be."""
        lines = [f"{method} {path} HTTP/1.1".encode(), b"host: 127.0.0.1", b"connection: close"]
        lines += [name + b": " + value for name, value in headers]
        if body is not None:
            lines += [b"content-type: application/json", b"content-length: %d" % len(body)]
        with socket.create_connection(("127.0.0.1", self.port), 60) as sock:
            sock.settimeout(60)
            sock.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + (body or b""))
            answer = b""
            while b"\r\n" not in answer:
                piece = sock.recv(4096)
                assert piece, f"no answer to {method} {path} with {headers!r}"
                answer += piece
        return int(answer.split(b" ", 2)[1])

    def state(self) -> dict[str, Any]:
        """Everything that a write could change, as the operator sees it."""
        found: dict[str, Any] = {}
        with httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}",
            headers={"Authorization": f"Bearer {OPERATE}"},
            trust_env=False,
            timeout=60,
        ) as http:
            for name in ("policy", "policies", "override", "markers", "benchmarks"):
                found[name] = http.get(f"/v1/engines/{ENGINE}/{name}").raise_for_status().json()
            found["override"].pop("now_utc_ms", None)
            found["sessions"] = http.get("/v1/sessions").raise_for_status().json()
            for one in found["sessions"]:
                one.pop("last_seq", None)
            found["audit"] = http.get("/v1/audit/check").raise_for_status().json()
            found["engines"] = [
                one["engine"] for one in http.get("/v1/engines").raise_for_status().json()
            ]
        return found

    def fill(self, path: str) -> str:
        """A path with something real in each place."""
        return re.sub(r"\{(\w+)\}", lambda place: PLACES.get(place[1], "1"), path)


def body_of(method: str, path: str) -> bytes | None:
    return None if method == "GET" else json.dumps(BODIES.get((method, path), {})).encode()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder: Path = tmp_path_factory.mktemp("auth")
    tokens = [
        {"name": "ops", "role": "operate", "token": OPERATE},
        {"name": "eye", "role": "read", "token": READ},
    ]
    with embedded_engine("--tiers", "off,s3k1d4") as engine:
        engines = [{"id": ENGINE, "url": engine.url, "group": "all", "poll_s": 0.2}]
        environment = {
            **os.environ,
            "SPECDECK_TOKENS": json.dumps(tokens),
            "SPECDECK_ENGINES": json.dumps(engines),
        }
        with deck(["--database", str(folder / "deck.sqlite3")], environment) as running:
            port = int(running.url.rpartition(":")[2])
            document = httpx.get(f"{running.url}/openapi.json", trust_env=False).json()
            operations = tuple(
                (method.upper(), path)
                for path, methods in document["paths"].items()
                for method in methods
            )
            assert len(operations) > 40
            made = Target(port, operations)
            # Something to lose: a session, a marker, an override.
            for method, path in (
                ("POST", "/v1/sessions"),
                ("POST", "/v1/engines/{engine_id}/markers"),
                ("PUT", "/v1/engines/{engine_id}/override"),
            ):
                operator = [(b"authorization", f"Bearer {OPERATE}".encode())]
                while True:
                    status = made.ask(method, made.fill(path), operator, body_of(method, path))
                    if status != 409:  # the engine was not reached yet
                        break
                assert status in (200, 201), (method, path, status)
            yield made
            code, errors, _ = running.end(15)
            assert code == 0
            assert "Traceback" not in errors


def bearer(value: str | bytes) -> list[tuple[bytes, bytes]]:
    return [
        (b"authorization", b"Bearer " + (value if isinstance(value, bytes) else value.encode()))
    ]


SECRET = OPERATE.encode()
BASIC = base64.b64encode(b"ops:" + SECRET)
UNKNOWN: Mapping[str, list[tuple[bytes, bytes]]] = {
    "none": [],
    "empty": [(b"authorization", b"")],
    "no value": [(b"authorization", b"Bearer")],
    "blank": bearer("   "),
    "another of its length": bearer("x" * len(OPERATE)),
    "cut": bearer(OPERATE[:-1]),
    "longer": bearer(OPERATE + "0"),
    "case": bearer(OPERATE.upper()),
    "overlong": bearer("x" * 60_000),
    "many times": bearer(OPERATE * 1000),
    "latin-1": bearer(b"\xff\xfe" + SECRET),
    "the name": bearer("ops"),
    "a digest": bearer("0" * 64),
    "basic": [(b"authorization", b"Basic " + BASIC)],
    "digest scheme": [(b"authorization", b"Digest " + SECRET)],
    "no scheme": [(b"authorization", SECRET)],
    "proxy": [(b"proxy-authorization", b"Bearer " + SECRET)],
    "x header": [(b"x-authorization", b"Bearer " + SECRET), (b"x-api-key", SECRET)],
    "cookie": [(b"cookie", b"authorization=Bearer " + SECRET + b"; token=" + SECRET)],
    "forwarded": [(b"x-forwarded-for", b"127.0.0.1"), (b"x-forwarded-user", b"ops")],
    "list": bearer(f"{'x' * 22}, Bearer {OPERATE}"),
    "unknown first": [*bearer("x" * 22), *bearer(OPERATE)],
}
"""Headers that hold no operate token where it belongs."""
READING: Mapping[str, list[tuple[bytes, bytes]]] = {
    "plain": bearer(READ),
    "lower case": [(b"authorization", b"bearer " + READ.encode())],
    "role claimed": [*bearer(READ), (b"x-role", b"operate"), (b"x-specdeck-role", b"operate")],
    "method claimed": [*bearer(READ), (b"x-http-method-override", b"PUT")],
    "operate in a cookie": [*bearer(READ), (b"cookie", b"token=" + SECRET)],
    "read first": [*bearer(READ), *bearer(OPERATE)],
    "with a key": [*bearer(READ), (b"idempotency-key", b"once")],
}


def test_every_route_is_described(tmp_path: Path) -> None:
    given = settings_of(tmp_path, "http://127.0.0.1:9")
    with Store.open(given.database_location) as store:
        app = create_app(Service(given, store), given)
        described = app.openapi()["paths"]
        routes = {
            (method, route.path)
            for route in flat(app.routes)
            for method in (getattr(route, "methods", None) or ())
            if route.path.startswith("/v1") and method not in ("HEAD", "OPTIONS")
        }
    assert len(routes) > 40
    hidden = [one for one in routes if one[0].lower() not in described.get(one[1], {})]
    assert hidden == []


def flat(routes: Any) -> Iterator[Any]:
    for route in routes:
        if hasattr(route, "path"):
            yield route
        inside = getattr(route, "routes", None) or getattr(
            getattr(route, "original_router", None), "routes", None
        )
        if inside:
            yield from flat(inside)


def test_no_route_is_open_to_a_caller_without_a_known_token(target: Target) -> None:
    before = target.state()
    for method, path in target.operations:
        for name, headers in UNKNOWN.items():
            for query in ("", f"?token={OPERATE}&access_token={OPERATE}"):
                if query and name != "none":
                    continue
                status = target.ask(
                    method, target.fill(path) + query, headers, body_of(method, path)
                )
                allowed = {200} if path in OPEN else {400, 401, 431}
                assert status in allowed, (method, path, name, status)
    assert target.state() == before


def test_the_read_token_changes_nothing(target: Target) -> None:
    before = target.state()
    for method, path in target.operations:
        for name, headers in READING.items():
            status = target.ask(method, target.fill(path), headers, body_of(method, path))
            assert status < 500, (method, path, name, status)
            if method != "GET":
                assert status == 403, (method, path, name, status)
    assert target.state() == before


def test_other_methods_and_spellings_of_a_path_change_nothing(target: Target) -> None:
    before = target.state()
    paths = sorted({path for _, path in target.operations})
    for path in paths:
        filled = target.fill(path)
        for headers in ([], bearer(READ)):
            for method in ("HEAD", "OPTIONS", "PATCH", "TRACE", "CONNECT", "put", "BREW"):
                assert target.ask(method, filled, headers, None) < 500, (method, path)
            for spelled in (
                filled + "/",
                "/" + filled,
                filled.replace("/v1", "/v1/."),
                filled.replace("/v1", "/V1"),
                filled.replace("e1", "%65%31"),
                filled + "%00",
                filled + "?dry_run=false&wait=confirmed",
            ):
                for method in ("POST", "PUT", "DELETE"):
                    status = target.ask(method, spelled, headers, b"{}")
                    assert 300 <= status < 500, (method, spelled, status)
    assert target.state() == before


def test_an_answer_kept_for_the_operator_is_for_the_operator(target: Target) -> None:
    path = target.fill("/v1/engines/{engine_id}/markers")
    body = body_of("POST", "/v1/engines/{engine_id}/markers")
    key = [(b"idempotency-key", b"marker-1")]
    made = target.ask("POST", path, [*bearer(OPERATE), *key], body)
    assert made < 300
    before = target.state()
    assert target.ask("POST", path, key, body) == 401
    assert target.ask("POST", path, [*bearer("x" * 22), *key], body) == 401
    assert target.ask("POST", path, [*bearer(READ), *key], body) == 403
    assert target.ask("POST", path, [*bearer(OPERATE), *key], body) == made
    assert target.state() == before


HEADER_VALUE = st.binary(max_size=80).filter(
    lambda text: not {0, 10, 13} & set(text) and SECRET not in text and READ.encode() not in text
)


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_no_made_up_header_opens_a_route(target: Target, data: st.DataObject) -> None:
    method, path = data.draw(
        st.sampled_from([one for one in target.operations if one[1] not in OPEN])
    )
    scheme = data.draw(
        st.sampled_from([b"", b"Bearer ", b"bearer ", b"Bearer\t", b"Bearer Bearer "])
    )
    headers = [(b"authorization", scheme + data.draw(HEADER_VALUE))]
    status = target.ask(method, target.fill(path), headers, body_of(method, path))
    assert status in (400, 401, 431), (method, path, headers, status)


def test_the_operate_token_opens_every_one_of_them(target: Target) -> None:
    """The bodies above are good: it is the token alone that was missing.  Runs last."""
    opened = 0
    for method, path in target.operations:
        if method != "GET":
            status = target.ask(method, target.fill(path), bearer(OPERATE), body_of(method, path))
            assert status < 500, (method, path, status)
            assert status not in (401, 403), (method, path, status)
            opened += status < 300
    assert opened >= 8
