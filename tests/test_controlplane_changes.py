"""What a change says beside its body: ETags, dry runs, waiting for the engine; REST and CLI."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from controlplane.changes import at_rest
from controlplane.cli import run_override
from controlplane.client import NotConfirmedError
from controlplane.errors import ProblemError
from controlplane.etags import check_match, override_tag, policy_tag
from controlplane.fleet_cli import run as run_fleet
from controlplane.messages import ReleaseRequest
from controlplane.policy_cli import run_policy
from controlplane.stops_cli import run_pause, run_resume
from engine_patch.contract_words import Mode
from engine_patch.tier import OFF
from store.policies import Stance
from store.records import Reason, Tick, Verdict
from tests.controlplane_rig import (
    ENGINE,
    EmbeddedEngine,
    Running,
    control_plane,
    embedded_engine,
    settings_of,
    until,
)
from tests.store_records import a_tick

OVERRIDE = f"/v1/engines/{ENGINE}/override"
BY = {"author": "alice"}
SET = {**BY, "mode": "off", "length_s": 60, "reason": "test"}
FIXED = {**BY, "policy": {"kind": "fixed", "tier": "off"}}


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4") as started:
        yield started


@pytest_asyncio.fixture
async def running(engine: EmbeddedEngine, tmp_path: Path) -> AsyncIterator[Running]:
    async with control_plane(settings_of(tmp_path, engine.url)) as started:
        await until(lambda: started.service.runner(ENGINE).pilot.policy is not None, 30.0)
        yield started


@asynccontextmanager
async def asking(running: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=running.url, trust_env=False, timeout=70) as http:
        yield http


def confirmed(running: Running) -> str | None:
    tick = running.service.runner(ENGINE).status().tick
    return None if tick is None else tick.confirmed


# -- ETags --------------------------------------------------------------------------------------


async def test_an_override_has_an_etag_and_a_change_for_another_one_is_refused(
    running: Running,
) -> None:
    async with asking(running) as http:
        none = (await http.get(OVERRIDE)).headers["ETag"]
        assert none == '"override-none"'
        first = await http.put(OVERRIDE, json=SET, headers={"If-Match": none})
        tag = first.headers["ETag"]
        assert tag == (await http.get(OVERRIDE)).headers["ETag"]
        taken = await http.put(OVERRIDE, json=SET, headers={"If-Match": none})
        assert (taken.status_code, taken.json()["code"]) == (412, "changed_meanwhile")
        assert "by alice is in force" in taken.json()["detail"]
        longer = await http.post(
            f"{OVERRIDE}/extend", json={**BY, "extra_s": 5}, headers={"If-Match": tag}
        )
        assert longer.status_code == 200
        assert longer.headers["ETag"] != tag
        for path, method in ((f"{OVERRIDE}/extend", "POST"), (OVERRIDE, "DELETE")):
            body = {**BY, "extra_s": 5} if method == "POST" else BY
            stale = await http.request(method, path, json=body, headers={"If-Match": tag})
            assert (stale.status_code, stale.json()["code"]) == (412, "changed_meanwhile")
        bare = await http.put(OVERRIDE, json=SET, headers={"If-Match": "override-1"})
        assert (bare.status_code, bare.json()["code"]) == (412, "bad_if_match")
        new = {"If-Match": longer.headers["ETag"]}
        gone = await http.request("DELETE", OVERRIDE, json=BY, headers=new)
        assert (gone.status_code, gone.headers["ETag"]) == (200, none)


async def test_of_two_people_who_saw_the_same_one_wins(running: Running) -> None:
    async with asking(running) as http:
        tag = {"If-Match": (await http.get(OVERRIDE)).headers["ETag"]}
        answers = await asyncio.gather(
            *(http.put(OVERRIDE, json=SET, headers=tag) for _ in range(8))
        )
        assert sorted(one.status_code for one in answers) == [200] + [412] * 7
        assert len(running.service.store.overrides(ENGINE)) == 1


@given(st.text(st.characters(codec="ascii"), max_size=40), st.integers(1, 10**9))
def test_any_if_match_is_taken_or_refused_in_words(given_tag: str, number: int) -> None:
    present = f'"policy-{number}"'
    status = 200
    try:
        check_match(given_tag, present, "alice")
    except ProblemError as error:
        status = error.status
    taken = given_tag.strip() == "*" or present in [one.strip() for one in given_tag.split(",")]
    assert status == (200 if taken else 412)


def test_what_is_not_there_has_an_etag_too() -> None:
    assert override_tag(None) != policy_tag(None)


# -- dry runs -----------------------------------------------------------------------------------


async def test_a_dry_run_of_any_change_stores_nothing(running: Running, second: str) -> None:
    paths: list[tuple[str, str, dict[str, Any], int]] = [
        ("PUT", OVERRIDE, SET, 200),
        ("PUT", f"/v1/engines/{ENGINE}/policy", FIXED, 200),
        ("PUT", f"/v1/engines/{ENGINE}/stance", {**BY, "stance": "shadow"}, 200),
        ("POST", "/v1/pause", BY, 200),
        ("POST", "/v1/resume", BY, 200),
        ("POST", "/v1/engines", {**BY, "url": second}, 200),
        ("POST", "/v1/engines", {**BY, "url": "http://127.0.0.1:9", "id": ENGINE}, 409),
        ("DELETE", f"/v1/engines/{ENGINE}", BY, 409),
        ("POST", f"/v1/engines/{ENGINE}/takeover", {**BY, "holder": "x", "reason": "y"}, 409),
        ("DELETE", OVERRIDE, BY, 409),
        ("POST", f"{OVERRIDE}/extend", {**BY, "extra_s": 5}, 409),
        ("POST", f"/v1/engines/{ENGINE}/policy/rollback", BY, 409),
    ]
    store = running.service.store
    async with asking(running) as http:
        before = len(store.audit())
        for method, path, body, status in paths:
            answer = await http.request(method, f"{path}?dry_run=true", json=body)
            assert answer.status_code == status, (method, path, answer.text)
        assert len(store.audit()) == before
        assert set(running.service.runners) == {ENGINE}
        assert (await http.get(f"/v1/engines/{ENGINE}/policy")).json()["version"] == 1
        override = (await http.put(OVERRIDE, json=SET)).json()["override"]
        would = await http.post(f"{OVERRIDE}/extend?dry_run=true", json={**BY, "extra_s": 5})
        assert would.json()["override"]["granted_s"] == 65
        released = await http.request("DELETE", f"{OVERRIDE}?dry_run=true", json=BY)
        assert released.json()["override"] is None
        assert (await http.get(OVERRIDE)).json()["override"] == override
        assert released.headers["ETag"] == (await http.get(OVERRIDE)).headers["ETag"]


@pytest.fixture
def second() -> str:
    return "http://127.0.0.1:10"


# -- waiting ------------------------------------------------------------------------------------


async def test_a_change_is_answered_once_every_rank_does_it(running: Running) -> None:
    wait = "wait=confirmed&timeout=60"
    path = f"/v1/engines/{ENGINE}"
    async with asking(running) as http:
        made = await http.put(f"{path}/policy?{wait}", json=FIXED)
        assert (made.status_code, confirmed(running)) == (200, OFF)
        assert made.headers["ETag"] == '"policy-2"'
        back = await http.post(f"{path}/policy/rollback?{wait}", json=BY)
        assert (back.status_code, confirmed(running)) == (200, "s3k1d4")
        await http.put(f"{OVERRIDE}?{wait}", json=SET)
        assert confirmed(running) == OFF
        free = await http.request("DELETE", f"{OVERRIDE}?{wait}", json=BY)
        assert free.json() == {"override": None, "confirmed": True}
        shadow = await http.put(f"{path}/stance?{wait}", json={**BY, "stance": "shadow"})
        assert shadow.status_code == 200


async def test_what_is_not_confirmed_in_time_is_said_and_in_force(
    running: Running, engine: EmbeddedEngine
) -> None:
    async with asking(running) as http, running.client() as client:
        await until(lambda: confirmed(running) == "s3k1d4", 30.0)
        engine.fault(hang=60)
        try:
            made = await http.put(
                f"/v1/engines/{ENGINE}/policy?wait=confirmed&timeout=0.3", json=FIXED
            )
            assert (made.status_code, made.json()["version"]) == (202, 2)
            await http.put(OVERRIDE, json=SET)
            request = ReleaseRequest(author="alice")
            with pytest.raises(NotConfirmedError, match="released, but e1 did not confirm it"):
                await client.release_override(ENGINE, request, wait_s=0.3)
        finally:
            engine.fault(clear=True)
        assert running.service.runner(ENGINE).pilot.override is None


def tick(**more: Any) -> Tick:
    made: Tick = a_tick(mode=Mode.ON)
    given = {"pending": None, "desired": None, "desired_mode": None, "stance": Stance.ACTIVE}
    return made.model_copy(update=given | more)


def test_an_engine_is_at_rest_when_it_does_what_is_asked() -> None:
    steady = Verdict(tier=None, reason=Reason.STEADY, text="")
    waiting = Verdict(tier="s3k1d4", reason=Reason.DWELL, text="")
    grace = Verdict(tier=None, reason=Reason.GRACE, text="")
    running = {"desired_mode": Mode.OFF, "desired": OFF, "confirmed": OFF}
    assert at_rest(tick(**running, verdict=steady))
    for verdict in (waiting, grace):
        assert not at_rest(tick(**running, verdict=verdict))
        assert at_rest(tick(verdict=verdict, stance=Stance.SHADOW))
    assert at_rest(tick(desired_mode=Mode.OFF, desired=OFF, confirmed=OFF))
    assert not at_rest(tick(desired_mode=Mode.OFF, desired=OFF, confirmed="s3k1d4"))
    assert not at_rest(tick(desired_mode=Mode.OFF, desired=OFF, confirmed=None))
    assert at_rest(tick(desired_mode=Mode.ON, desired=None, confirmed="s3k1d4"))
    assert not at_rest(tick(desired_mode=Mode.ON, desired=None, confirmed=OFF))
    assert not at_rest(tick(desired_mode=Mode.AUTO, confirmed=OFF))


# -- the command line ---------------------------------------------------------------------------


async def test_the_command_line_dries_runs_and_waits(
    running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    async def cli(run: Any, *words: str) -> tuple[int, str]:
        code = await asyncio.to_thread(run, [*words, "--url", running.url])
        return code, capsys.readouterr().out

    sets = ("set", ENGINE, "--mode", "off", "--for", "1m", "--reason", "x")
    code, out = await cli(run_override, *sets, "--dry-run")
    assert (code, out.startswith("would be: off")) == (0, True)
    assert (await cli(run_override, "show", ENGINE)) == (0, "no override is in force\n")
    assert (await cli(run_override, *sets, "--wait", "60s"))[0] == 0
    code, out = await cli(run_override, "show", ENGINE, "--json")
    assert json.loads(out)["override"]["mode"] == "off"
    code, out = await cli(run_override, "extend", ENGINE, "--by", "1m", "--dry-run", "--json")
    assert json.loads(out)["override"]["granted_s"] == 120
    assert (await cli(run_override, "release", ENGINE, "--dry-run"))[0] == 0
    assert running.service.runner(ENGINE).pilot.override is not None
    assert (await cli(run_override, "release", ENGINE, "--wait", "60s"))[0] == 0
    fixed = ("set", ENGINE, "tier=off", "--wait", "60s", "--json")
    code, out = await cli(run_policy, *fixed)
    assert (code, json.loads(out)["version"], confirmed(running)) == (0, 2, OFF)
    assert (await cli(run_policy, "rollback", ENGINE, "--wait", "60s"))[0] == 0
    for run, stance in ((run_pause, "paused"), (run_resume, "active")):
        code, out = await cli(run, "--all", "--dry-run", "--json")
        assert (code, json.loads(out)[0]["policy"]["stance"]) == (0, stance)
    code, out = await cli(run_fleet, "add", "http://127.0.0.1:10", "--dry-run")
    assert (code, out.startswith("would be 127.0.0.1-10")) == (0, True)
    assert (await cli(run_fleet, "remove", "127.0.0.1-10", "--dry-run"))[0] == 4
