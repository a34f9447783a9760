"""Engines that a file and a router name, on a running control plane: followed, kept, retired.

The router is a real HTTP server; what it answers is constructed after SGLang's source code.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane import engines_file
from controlplane.cli import run_status
from controlplane.fleet_cli import run as run_fleet
from store.records import Marker
from tests.controlplane_rig import (
    ENGINE,
    EmbeddedEngine,
    Running,
    control_plane,
    embedded_engine,
    settings_of,
    until,
)


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4") as started:
        yield started


@pytest.fixture(scope="module")
def second() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4") as started:
        yield started


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines_file.FileSource, "every_s", 0.05)


LISTS = ("ticks", "decisions", "switches", "policies", "markers")


class Router:
    """A router over HTTP: ``answers`` by path, 404 for the rest."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.key = ""
        self.asked: list[str] = []
        router = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                router.asked.append(self.path)
                wanted = f"Bearer {router.key}" if router.key else None
                allowed = wanted is None or self.headers.get("Authorization") == wanted
                status = 200 if self.path in router.answers else 404
                body = json.dumps(router.answers.get(self.path)).encode()
                self.send_response(status if allowed else 401)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                """Silence."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self._thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join(10)
        self.server.server_close()


@pytest.fixture
def router() -> Iterator[Router]:
    made = Router()
    yield made
    made.close()


def listed(*engines: dict[str, Any]) -> str:
    return json.dumps({"engines": engines})


def named(running: Running) -> set[str]:
    return set(running.service.runners)


def polled(running: Running, engine_id: str) -> bool:
    found = running.service.runners.get(engine_id)
    return found is not None and found.pilot.policy is not None


def kinds(running: Running, engine_id: str) -> list[str]:
    notes: list[Marker] = running.service.store.markers(engine_id)
    return [one.kind for one in notes]


async def get(running: Running, path: str) -> Any:
    async with httpx.AsyncClient(base_url=running.url, trust_env=False) as http:
        return (await http.get(path)).json()


async def test_engines_follow_the_file_and_history_stays(
    engine: EmbeddedEngine, second: EmbeddedEngine, tmp_path: Path
) -> None:
    path = tmp_path / "engines.json"
    path.write_text(listed({"id": "e2", "url": second.url, "group": "prod", "poll_s": 0.1}))
    settings = settings_of(tmp_path, engine.url, engines_file=str(path))
    async with control_plane(settings) as running:
        await until(lambda: polled(running, "e2"))
        (source,) = await get(running, "/v1/sources")
        assert source["name"] == f"file {path}"
        assert (source["engines"], source["alarm"]) == (["e2"], None)
        status = await get(running, "/v1/engines/e2")
        assert status["engine"]["source"] == f"file {path}"
        async with httpx.AsyncClient(base_url=running.url, trust_env=False) as http:
            refused = await http.request("DELETE", "/v1/engines/e2", json={"author": "alice"})
        assert (refused.status_code, refused.json()["code"]) == (409, "in_source")
        path.write_text(listed({"id": "e2", "url": second.url, "group": "lab", "poll_s": 0.1}))
        # It is shown all the while.
        await until(lambda: running.service.runner("e2").settings.group == "lab")
        await until(lambda: polled(running, "e2"))
        ticks = len(running.service.store.ticks("e2"))
        path.write_text(listed())
        await until(lambda: named(running) == {ENGINE})
        await until(lambda: kinds(running, "e2") == ["retired"])
        assert len(running.service.store.ticks("e2")) >= ticks
        await what_is_left(running, ticks)
        path.write_text(listed({"id": "e2", "url": second.url, "poll_s": 0.1}))
        await until(lambda: polled(running, "e2"))
        assert kinds(running, "e2") == ["retired", "returned"]
        actions = [one.action for one in running.service.store.audit(limit=50)]
        wanted = ["engine.add", "engine.retire", "engine.change", "engine.add"]
        assert [one for one in actions if one.startswith("engine.")] == wanted


async def what_is_left(running: Running, ticks: int) -> None:
    """A retired engine is listed apart, and its history can be read on."""
    async with httpx.AsyncClient(base_url=running.url, trust_env=False) as http:
        assert (await http.get("/v1/engines/e2")).status_code == 404
        assert [one["engine"]["engine_id"] for one in (await http.get("/v1/engines")).json()] == [
            ENGINE
        ]
        (left,) = (await http.get("/v1/engines?retired=true")).json()
        assert left["engine"]["engine_id"] == "e2"
        assert left["engine"]["removed_utc_ms"] is not None
        assert left["tick"] is not None
        read = {name: await http.get(f"/v1/engines/e2/{name}") for name in LISTS}
        assert {one.status_code for one in read.values()} == {200}
        assert len(read["ticks"].json()) >= min(ticks, 500)
        assert [one["kind"] for one in read["markers"].json()] == ["retired"]
        assert read["policies"].json()
        for name in LISTS:
            assert (await http.get(f"/v1/engines/never/{name}")).status_code == 404
    assert await in_thread(run_fleet, ["list", "--retired", "--url", running.url]) == 0


async def test_a_bad_file_keeps_the_last_good_list_over_a_restart_and_alarms(
    engine: EmbeddedEngine,
    second: EmbeddedEngine,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "engines.toml"
    path.write_text(f'[[engines]]\nid = "e2"\nurl = "{second.url}"\npoll_s = 0.1\n')
    settings = settings_of(tmp_path, engine.url, engines_file=str(path))
    async with control_plane(settings) as running:
        await until(lambda: polled(running, "e2"))
        path.write_text("[[engines]\n")
        await until(lambda: running.service.alarms() != ())
        (alarm,) = (await get(running, "/v1"))["alarms"]
        assert alarm["code"] == "source_failed"
        assert f"{path}:1:" in alarm["text"]
        assert named(running) == {ENGINE, "e2"}
    async with control_plane(settings) as running:
        assert named(running) == {ENGINE, "e2"}
        await until(lambda: running.service.alarms() != ())
        text = await page(running)
        assert f'specdeck_source_up{{source="file {path}"}} 0.0' in text
        assert f'specdeck_source_engines{{source="file {path}"}} 1.0' in text
        codes = await in_thread(run_status, ["--url", running.url])
        out = capsys.readouterr().out
        assert codes == 6
        assert "! file " in out
        path.write_text(f'[[engines]]\nid = "e2"\nurl = "{second.url}"\npoll_s = 0.1\n')
        await until(lambda: running.service.alarms() == ())
        assert "specdeck_source_up" in await page(running)


async def test_a_source_that_is_configured_no_more_leaves_its_engines(
    engine: EmbeddedEngine, second: EmbeddedEngine, tmp_path: Path
) -> None:
    path = tmp_path / "engines.json"
    path.write_text(listed({"id": "e2", "url": second.url, "poll_s": 0.1}))
    async with control_plane(settings_of(tmp_path, engine.url, engines_file=str(path))) as running:
        await until(lambda: polled(running, "e2"))
    async with control_plane(settings_of(tmp_path, engine.url)) as running:
        assert named(running) == {ENGINE}
        assert kinds(running, "e2") == ["retired"]


async def test_what_cannot_be_taken_in_is_told_and_the_rest_is_followed(
    engine: EmbeddedEngine, second: EmbeddedEngine, tmp_path: Path
) -> None:
    path = tmp_path / "engines.json"
    path.write_text(
        listed(
            {"id": "again", "url": engine.url},
            {"id": "locked", "url": "http://127.0.0.1:9", "admin_key_file": "/nowhere/key"},
            {"id": "e2", "url": second.url, "poll_s": 0.1},
        )
    )
    settings = settings_of(tmp_path, engine.url, engines_file=str(path))
    async with control_plane(settings) as running:
        await until(lambda: polled(running, "e2"))
        await until(lambda: running.service.alarms() != ())
        text = running.service.alarms()[0].text
        assert f"engine again at {engine.url} is looked after as {ENGINE}" in text
        assert "/nowhere/key" in text
        assert named(running) == {ENGINE, "e2"}


@pytest.mark.constructed
async def test_engines_follow_the_router(
    engine: EmbeddedEngine, second: EmbeddedEngine, router: Router, tmp_path: Path
) -> None:
    workers = [
        {"url": second.url, "worker_type": "regular", "connection_mode": "http"},
        {"url": "http://127.0.0.1:9", "worker_type": "prefill", "connection_mode": "http"},
    ]
    router.answers["/workers"] = {"workers": workers, "total": 2, "stats": {}}
    router.key = "router-key-0001"
    key = tmp_path / "router.key"
    key.write_text(router.key)
    given = {
        "url": router.url,
        "every_s": 1,
        "gone_after_s": 0,
        "api_key_file": str(key),
        "engine": {"group": "routed", "poll_s": 0.1, "stance": "shadow"},
    }
    settings = settings_of(tmp_path, engine.url, routers=[given])
    async with control_plane(settings) as running:
        await until(lambda: len(named(running)) == 2)
        found = next(iter(named(running) - {ENGINE}))
        await until(lambda: polled(running, found))
        runner = running.service.runner(found)
        assert (runner.settings.url, runner.settings.group) == (second.url, "routed")
        (source,) = await get(running, "/v1/sources")
        assert source["kind"] == "router"
        assert len(source["skipped"]) == 1
        router.key = "another-key"
        await until(lambda: running.service.alarms() != ())
        assert "wants its API key" in running.service.alarms()[0].text
        assert named(running) == {ENGINE, found}
        router.key = "router-key-0001"
        router.answers = {"/list_workers": {"urls": [second.url]}}
        router.asked.clear()
        await until(lambda: "/list_workers" in router.asked and running.service.alarms() == ())
        assert named(running) == {ENGINE, found}
        router.answers = {"/workers": {"workers": []}}
        await until(lambda: named(running) == {ENGINE})
        assert kinds(running, found) == ["retired"]


@pytest.mark.constructed
async def test_a_router_that_forgets_a_worker_for_a_while_loses_none(
    engine: EmbeddedEngine, second: EmbeddedEngine, router: Router, tmp_path: Path
) -> None:
    router.answers["/workers"] = {"workers": [{"url": second.url}]}
    given = {"url": router.url, "every_s": 1, "engine": {"poll_s": 0.1}}
    settings = settings_of(tmp_path, engine.url, routers=[given])
    async with control_plane(settings) as running:
        await until(lambda: len(named(running)) == 2)
        both = named(running)
    router.answers["/workers"] = {"workers": []}
    router.asked.clear()
    async with control_plane(settings) as running:
        assert named(running) == both
        await until(lambda: len(router.asked) >= 2)
        assert named(running) == both
        assert running.service.alarms() == ()


async def test_the_command_line_lists_sources(
    engine: EmbeddedEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "engines.toml"
    path.write_text("engines = []\n")
    settings = settings_of(tmp_path, engine.url, engines_file=str(path))
    async with control_plane(settings) as running:
        await until(lambda: running.service.followers[0].status().good_utc_ms is not None)
        assert await in_thread(run_fleet, ["sources", "--url", running.url]) == 0
        assert capsys.readouterr().out.startswith(f"file {path}  0 engines")
        path.unlink()
        await until(lambda: running.service.alarms() != ())
        assert await in_thread(run_fleet, ["sources", "--json", "--url", running.url]) == 6
        (source,) = json.loads(capsys.readouterr().out)
        assert source["alarm"]["code"] == "source_failed"


async def in_thread(run: Any, words: list[str]) -> int:
    code: int = await asyncio.to_thread(run, words)
    return code


async def page(running: Running) -> str:
    async with httpx.AsyncClient(base_url=running.url, trust_env=False) as http:
        return (await http.get("/metrics")).text


async def test_the_dashboard_and_the_rules_ask_for_what_the_page_holds(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    path = tmp_path / "engines.toml"
    path.write_text("engines = []\n")
    settings = settings_of(tmp_path, engine.url, engines_file=str(path))
    async with control_plane(settings) as running:
        await until(lambda: polled(running, ENGINE))
        text = await page(running)
    types = dict(re.findall(r"^# TYPE (specdeck_\w+) (\w+)$", text, re.MULTILINE))
    labels: dict[str, set[str]] = {}
    for name, inner in re.findall(r"^(specdeck_\w+)(?:\{(.*)\})? ", text, re.MULTILINE):
        labels.setdefault(name, set()).update(re.findall(r'(\w+)="', inner))
    deploy = Path(__file__).parents[1] / "docs" / "deploy"
    asked = (deploy / "grafana.json").read_text() + (deploy / "alerts.yaml").read_text()
    asked = asked.replace('\\"', '"')
    for name, inner in re.findall(r"(specdeck_\w+)(?:\{(.*?)\})?", asked):
        assert name in types, name
        if name in labels:  # one without samples shows no labels
            assert set(re.findall(r"(\w+)=~?\"", inner)) <= labels[name], name


async def test_an_engine_that_is_being_measured_is_left_alone_only_afterwards(
    engine: EmbeddedEngine, second: EmbeddedEngine, tmp_path: Path
) -> None:
    path = tmp_path / "engines.json"
    path.write_text(listed({"id": "e2", "url": second.url, "poll_s": 0.1}))
    settings = settings_of(tmp_path, engine.url, engines_file=str(path))
    async with control_plane(settings) as running:
        await until(lambda: polled(running, "e2"))
        measured = {"e2", ENGINE}
        running.service.roster.measured = lambda name: name in measured
        path.write_text(listed())
        good = running.service.followers[0].status().good_utc_ms
        await until(lambda: (running.service.followers[0].status().good_utc_ms or 0) > (good or 0))
        await asyncio.sleep(0.3)
        assert named(running) == {ENGINE, "e2"}
        measured.clear()
        await until(lambda: named(running) == {ENGINE})
