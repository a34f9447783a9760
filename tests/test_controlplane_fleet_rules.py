"""Rules of groups and of the whole fleet hold for engines that join later, over a restart too."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from controlplane.fleet_cli import run as run_fleet
from controlplane.fleet_rules import ruled
from controlplane.policy_choice import FIRST_CONTACT, SETTINGS
from store.policies import FixedPolicy, HysteresisPolicy, PolicyConfig, Stance
from store.rules import FleetRule, RuleKind
from tests.controlplane_rig import (
    ENGINE,
    EmbeddedEngine,
    Running,
    control_plane,
    embedded_engine,
    settings_of,
    until,
)
from tests.controlplane_script import facts, two_tiers

FIRST = PolicyConfig(
    engine_id="e1",
    version=1,
    stance=Stance.ACTIVE,
    policy=FixedPolicy(tier="s3k1d4"),
    author=FIRST_CONTACT,
    created_utc_ms=1,
)
POLICY: HysteresisPolicy = two_tiers()
STOP = FleetRule(kind=RuleKind.STOP, author="alice", reason="incident", created_utc_ms=1)
SHARED = FleetRule(
    kind=RuleKind.POLICY, group="prod", policy=POLICY, author="bob", created_utc_ms=1
)


def begun(
    *rules: FleetRule, chosen: PolicyConfig = FIRST, group: str = "prod", stored: bool = False
) -> PolicyConfig | None:
    return ruled(chosen, rules, group=group, facts=facts(), stored=stored, now_utc_ms=9)


def test_without_a_rule_an_engine_begins_as_it_would() -> None:
    assert begun() is None
    assert begun(SHARED, group="lab") is None
    assert begun(SHARED, group="") is None


def test_an_engine_begins_with_the_policy_of_its_group() -> None:
    made = begun(SHARED)
    assert made is not None
    assert (made.policy, made.author, made.version) == (POLICY, "bob", 1)
    assert made.reason == "policy of group prod"
    # One that has a policy of its own keeps it, from the settings or from before.
    assert begun(SHARED, chosen=FIRST.model_copy(update={"author": SETTINGS})) is None
    assert begun(SHARED, stored=True) is None


def test_a_policy_over_tiers_that_were_not_built_is_left_out() -> None:
    strange = SHARED.model_copy(update={"policy": FixedPolicy(tier="s9k1d10")})
    assert begun(strange) is None


def test_an_engine_that_joins_a_stopped_fleet_rests() -> None:
    made = begun(STOP, SHARED)
    assert made is not None
    assert (made.stance, made.paused_from, made.author) == (Stance.PAUSED, Stance.ACTIVE, "alice")
    assert made.policy == POLICY
    known = begun(STOP, stored=True)
    assert known is not None
    assert (known.version, known.created_utc_ms) == (2, 9)
    resting = FIRST.model_copy(update={"stance": Stance.PAUSED})
    assert begun(STOP, chosen=resting, stored=True) is None
    assert begun(STOP.model_copy(update={"group": "lab"})) is None


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4") as started:
        yield started


@pytest.fixture(scope="module")
def second() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4") as started:
        yield started


def policy(running: Running, engine_id: str) -> PolicyConfig | None:
    found = running.service.runners.get(engine_id)
    return None if found is None else found.pilot.policy


async def test_a_stop_and_a_group_policy_meet_an_engine_that_comes_after_a_restart(
    engine: EmbeddedEngine,
    second: EmbeddedEngine,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = settings_of(tmp_path, engine.url, engine={"group": "prod"})
    by = {"author": "alice", "reason": "incident"}
    async with control_plane(settings) as running:
        await until(lambda: policy(running, ENGINE) is not None)
        async with httpx.AsyncClient(base_url=running.url, trust_env=False) as http:
            body = {**by, "policy": POLICY.model_dump(mode="json")}
            dry = {"dry_run": True}
            await http.put("/v1/groups/prod/policy", json=body, params=dry)
            await http.post("/v1/pause", json=by, params=dry)
            assert (await http.get("/v1/rules")).json() == []
            assert (await http.put("/v1/groups/prod/policy", json=body)).status_code == 200
            assert (await http.post("/v1/pause", json=by)).status_code == 200
            kinds = [one["kind"] for one in (await http.get("/v1/rules")).json()]
            assert kinds == ["policy", "stop"]
    async with control_plane(settings) as running:
        async with httpx.AsyncClient(base_url=running.url, trust_env=False) as http:
            joins = {**by, "url": second.url, "id": "e2", "group": "prod", "poll_s": 0.1}
            assert (await http.post("/v1/engines", json=joins)).status_code == 201
            await until(lambda: policy(running, "e2") is not None)
            made = policy(running, "e2")
            assert made is not None
            assert (made.version, made.stance, made.policy) == (1, Stance.PAUSED, POLICY)
            code = await asyncio.to_thread(run_fleet, ["rules", "--json", "--url", running.url])
            rules = json.loads(capsys.readouterr().out)
            assert (code, [one["group"] for one in rules]) == (0, ["prod", ""])
            resumed = (await http.post("/v1/resume", json=by)).json()
            assert {one["policy"]["stance"] for one in resumed} == {"active"}
            kinds = [one["kind"] for one in (await http.get("/v1/rules")).json()]
            assert kinds == ["policy"]
        actions = [one.action for one in running.service.store.audit(limit=50)]
        assert {"group.policy", "fleet.stop", "fleet.start"} <= set(actions)
        assert len(running.service.store.fleet_rules()) == 2


async def test_a_stop_meets_an_engine_that_could_not_be_reached(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, engine.url)
    by = {"author": "alice", "reason": "incident"}
    engine.fault(hang=600)
    try:
        async with control_plane(settings) as running:
            async with httpx.AsyncClient(base_url=running.url, trust_env=False) as http:
                (answer,) = (await http.post("/v1/pause", json=by)).json()
                assert "has not answered yet" in answer["problem"]
            engine.fault(clear=True)
            await until(lambda: policy(running, ENGINE) is not None)
            met = policy(running, ENGINE)
            assert met is not None
            assert (met.stance, met.paused_from) == (Stance.PAUSED, Stance.ACTIVE)
    finally:
        engine.fault(clear=True)
