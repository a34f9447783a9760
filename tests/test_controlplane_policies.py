"""Policy versions over REST and the command line: history, rollback, stops, pins."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from controlplane.client import RefusedError
from controlplane.messages import PolicyRequest, RollbackRequest, StanceRequest, StopRequest
from controlplane.policy_cli import run_policy
from controlplane.policy_text import changed_policy
from controlplane.stops_cli import run_pause, run_pin, run_resume
from store.policies import RULES, FixedPolicy, GoodputPolicy, HysteresisPolicy, Stance
from tests.controlplane_rig import (
    ENGINE,
    EmbeddedEngine,
    Running,
    control_plane,
    deck,
    embedded_engine,
    settings_of,
    until,
)

HYSTERESIS = HysteresisPolicy(tiers=("s3k1d4", "off"), boundaries=({"up_at": 24, "down_at": 16},))
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4") as started:
        yield started


@pytest_asyncio.fixture
async def running(engine: EmbeddedEngine, tmp_path: Path) -> AsyncIterator[Running]:
    async with control_plane(settings_of(tmp_path, engine.url)) as started:
        await until(lambda: started.service.runner(ENGINE).pilot.policy is not None)
        yield started


def asked(policy: object = HYSTERESIS, **more: object) -> PolicyRequest:
    return PolicyRequest.model_validate({"policy": policy, "author": "alice"} | more)


async def test_a_version_has_an_etag_and_a_change_for_another_one_is_refused(
    running: Running,
) -> None:
    path = f"/v1/engines/{ENGINE}/policy"
    body = asked().model_dump_json()
    async with httpx.AsyncClient(base_url=running.url, trust_env=False, headers=JSON) as http:
        seen = await http.get(path)
        assert seen.headers["ETag"] == '"policy-1"'
        made = await http.put(path, content=body, headers={"If-Match": '"policy-1"'})
        assert made.status_code == 200
        assert made.headers["ETag"] == '"policy-2"'
        late = await http.put(path, content=body, headers={"If-Match": '"policy-1"'})
        assert late.status_code == 412
        assert late.json()["code"] == "changed_meanwhile"
        assert "by alice" in late.json()["detail"]
        wild = await http.put(path, content=body, headers={"If-Match": "policy-2"})
        assert (wild.status_code, wild.json()["code"]) == (412, "bad_if_match")
        every = await http.put(path, content=body, headers={"If-Match": "*"})
        assert every.status_code == 200


async def test_a_dry_run_answers_with_the_next_version_and_stores_nothing(running: Running) -> None:
    async with running.client() as client:
        would = await client.try_policy(ENGINE, asked(stance="shadow", reason="look"))
        assert (would.version, would.stance, would.author) == (2, Stance.SHADOW, "alice")
        assert (await client.policy(ENGINE)).version == 1
        assert len(await client.policies(ENGINE)) == 1
        assert not any(one.action == "policy.set" for one in await client.audit())


async def test_a_dry_run_finds_what_a_change_would_be_refused_for(running: Running) -> None:
    path = f"/v1/engines/{ENGINE}/policy?dry_run=true"
    body = asked(FixedPolicy(tier="s9k1d10")).model_dump_json()
    async with httpx.AsyncClient(base_url=running.url, trust_env=False, headers=JSON) as http:
        answer = await http.put(path, content=body)
    assert answer.status_code == 422
    assert "s9k1d10" in answer.json()["detail"]


async def test_a_rollback_goes_back_one_policy_and_keeps_the_stance(running: Running) -> None:
    async with running.client() as client:
        first = await client.policy(ENGINE)
        await client.set_policy(ENGINE, asked())
        await client.set_stance(ENGINE, StanceRequest(stance=Stance.SHADOW, author="bob"))
        back = await client.roll_back(ENGINE, RollbackRequest(author="carol", reason="too eager"))
        assert back.version == 4
        assert back.policy == first.policy
        assert back.stance is Stance.SHADOW
        assert (back.author, back.reason) == ("carol", "back to version 1: too eager")
        assert back.rules == RULES
        forth = await client.roll_back(ENGINE, RollbackRequest(author="carol"))
        assert forth.policy == HYSTERESIS
        versions = [one.version for one in await client.policies(ENGINE)]
        assert versions == [5, 4, 3, 2, 1]
        actions = [one.action for one in await client.audit()]
        assert actions[:2] == ["policy.rollback", "policy.rollback"]


async def test_a_rollback_to_nowhere_is_refused(running: Running) -> None:
    async with running.client() as client:
        for request in (RollbackRequest(author="a"), RollbackRequest(author="a", version=7)):
            with pytest.raises(RefusedError, match=r"policy version|no version 7"):
                await client.roll_back(ENGINE, request)


async def test_history_is_paged(running: Running) -> None:
    async with running.client() as client:
        for _ in range(3):
            await client.set_policy(ENGINE, asked())
    async with httpx.AsyncClient(base_url=running.url, trust_env=False) as http:
        page = (await http.get(f"/v1/engines/{ENGINE}/policies?limit=2&before_version=4")).json()
    assert [one["version"] for one in page] == [3, 2]


async def test_thresholds_are_handed_to_the_engine_and_taken_back(running: Running) -> None:
    async with running.client() as client:
        made = await client.set_policy(ENGINE, asked(delegate=True))
        assert made.delegate

        def mode() -> str:
            tick = running.service.runner(ENGINE).status().tick
            return str(getattr(tick.observation, "mode", "")) if tick else ""

        await until(lambda: mode() == "auto")
        kept = await client.set_policy(ENGINE, asked(reason="same"))
        assert kept.delegate
        await client.roll_back(ENGINE, RollbackRequest(author="carol"))
        await until(lambda: mode() == "on")


async def test_a_stop_of_all_engines_rests_automation_and_resume_restores_each_stance(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, engine.url)
    first = settings.engines[0]
    other = first.model_copy(update={"id": "e2", "stance": Stance.SHADOW, "group": "canary"})
    gone = first.model_copy(update={"id": "e3", "url": "http://127.0.0.1:9"})
    settings = settings.model_copy(update={"engines": (first, other, gone)})
    async with control_plane(settings) as running, running.client() as client:
        pilots = [running.service.runner(name).pilot for name in (ENGINE, "e2")]
        await until(lambda: all(one.policy is not None for one in pilots))
        answers = await client.pause(StopRequest(author="alice", reason="incident"))
        assert [one.policy.stance if one.policy else None for one in answers] == [
            Stance.PAUSED,
            Stance.PAUSED,
            None,
        ]
        assert "has not answered yet" in answers[2].problem
        again = await client.pause(StopRequest(author="bob"))
        assert again[0].policy is not None
        assert again[0].policy.author == "alice"
        await client.resume(StopRequest(author="alice", group="canary"))
        assert pilots[0].policy is not None
        assert pilots[0].policy.stance is Stance.PAUSED
        await client.resume(StopRequest(author="alice"))
        stances = [one.policy.stance for one in pilots if one.policy is not None]
        assert stances == [Stance.ACTIVE, Stance.SHADOW]


async def test_resume_leaves_an_engine_alone_that_a_person_paused_by_itself(
    running: Running,
) -> None:
    async with running.client() as client:
        await client.set_stance(ENGINE, StanceRequest(stance=Stance.PAUSED, author="bob"))
        await client.pause(StopRequest(author="alice"))
        answers = await client.resume(StopRequest(author="alice"))
        assert answers[0].policy is not None
        assert answers[0].policy.stance is Stance.PAUSED


def test_changes_are_written_key_value_and_a_kind_keeps_what_both_have() -> None:
    changed = changed_policy(HYSTERESIS, None, ["up_hold_s=4", 'tiers=["s1k1d2","off"]'])
    assert isinstance(changed, HysteresisPolicy)
    assert (changed.up_hold_s, changed.tiers) == (4.0, ("s1k1d2", "off"))
    goodput = changed_policy(changed, "goodput", ["gain=0.2"])
    assert isinstance(goodput, GoodputPolicy)
    assert (goodput.tiers, goodput.gain) == (("s1k1d2", "off"), 0.2)
    assert changed_policy(goodput, "fixed", []) == FixedPolicy(tier="s1k1d2")
    for wrong in (["up_hold_s"], ["up_hold_s=-1"], ["nonsense=1"]):
        with pytest.raises(ValueError, match=r"."):
            changed_policy(HYSTERESIS, None, wrong)
    with pytest.raises(ValueError, match="kinds are: hysteresis, goodput, fixed"):
        changed_policy(HYSTERESIS, "magic", [])


@pytest.fixture(scope="module")
def served(engine: EmbeddedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    folder = tmp_path_factory.mktemp("served")
    engines = json.dumps([{"id": ENGINE, "url": engine.url, "poll_s": 0.1, "stance": "active"}])
    environment = {"SPECDECK_ENGINES": engines, "PATH": "/usr/bin:/bin"}
    with deck(["--database", str(folder / "d.sqlite3")], environment) as running:
        for _ in range(200):
            answer = httpx.get(f"{running.url}/v1/engines/{ENGINE}/policy", trust_env=False)
            if answer.status_code == 200:
                break
        yield ["--url", running.url]


def test_the_command_line_sets_shows_and_takes_back(
    served: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_policy(["set", ENGINE, "down_hold_s=9", "--reason", "calm", *served]) == 0
    assert "down_hold_s 4.0 -> 9" in capsys.readouterr().out
    assert run_policy(["show", ENGINE, *served]) == 0
    assert "calm" in capsys.readouterr().out
    assert run_policy(["set", ENGINE, "--kind", "goodput", "--dry-run", *served]) == 0
    assert capsys.readouterr().out.startswith("would be version 3  active  goodput")
    assert run_policy(["rollback", ENGINE, *served]) == 0
    assert run_policy(["history", ENGINE, "--json", *served]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [one["policy"]["down_hold_s"] for one in found] == [4.0, 9.0, 4.0]


def test_the_command_line_says_what_is_wrong(
    served: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run_policy(["set", ENGINE, *served]) == 2
    assert run_policy(["set", ENGINE, "up_hold_s=-1", *served]) == 2
    assert "greater than or equal to 0" in capsys.readouterr().err
    assert run_policy(["set", ENGINE, "--kind", "fixed", "tier=s9k1d10", *served]) == 4
    assert run_policy(["set", ENGINE, "up_hold_s=3", "--if-version", "99", *served]) == 4
    assert run_policy(["show", "nobody", *served]) == 4
    file = tmp_path / "policy.toml"
    file.write_text("[policy]\nkind = 'fixed'\n")
    assert run_policy(["set", ENGINE, "--file", str(file), *served]) == 2
    assert run_pause(served) == 2
    assert run_pause([ENGINE, "--all", *served]) == 2


def test_pause_and_resume_from_the_command_line(
    served: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_pause(["--all", "--reason", "incident", *served]) == 0
    assert f"{ENGINE}  paused" in capsys.readouterr().out
    assert run_resume(["--all", *served]) == 0
    assert f"{ENGINE}  active" in capsys.readouterr().out


def test_a_pin_holds_one_tier_while_a_command_runs_and_hands_on_its_exit_code(
    served: list[str], engine: EmbeddedEngine
) -> None:
    script = (
        "import json, sys, urllib.request as u; "
        f"s = json.load(u.urlopen('{engine.url}/speculation')); "
        "tiers = {r['tier'] for one in s['replicas'] for r in one['ranks']}; "
        "sys.exit(7 if tiers == {'off'} else 1)"
    )
    command = ["--", sys.executable, "-c", script]
    assert run_pin([ENGINE, "off", "--for", "1m", *served, *command]) == 7
    url = served[1]
    left = httpx.get(f"{url}/v1/engines/{ENGINE}/override", trust_env=False).json()
    assert left["override"] is None
    assert run_pin([ENGINE, "s9k1d10", "--for", "1m", *served]) == 4
