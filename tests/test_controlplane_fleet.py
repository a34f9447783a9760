"""Many engines: added and removed while it runs, groups, turns, and claims that are taken over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.fleet_cli import run as run_fleet
from controlplane.turns import Turn, turn_of
from engine_patch.tier import OFF
from store.observations import Sample
from store.records import Reason
from tests.controlplane_rig import (
    ENGINE,
    EmbeddedEngine,
    Running,
    control_plane,
    embedded_engine,
    settings_of,
    until,
)
from tests.controlplane_script import HOLDER, Script, config, two_tiers

BY = {"author": "alice"}


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4") as started:
        yield started


@pytest.fixture(scope="module")
def second() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4") as started:
        yield started


@asynccontextmanager
async def asking(running: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=running.url, trust_env=False) as http:
        yield http


async def sent(http: httpx.AsyncClient, method: str, path: str, **body: Any) -> httpx.Response:
    return await http.request(method, path, json=BY | body)


async def test_an_engine_is_added_found_again_after_a_start_and_removed(
    engine: EmbeddedEngine, second: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, engine.url)
    async with control_plane(settings) as running, asking(running) as http:
        made = await sent(http, "POST", "/v1/engines", url=second.url, id="e2", group="canary")
        assert made.status_code == 201
        assert made.json()["engine"]["engine_id"] == "e2"
        await until(lambda: running.service.runner("e2").pilot.policy is not None)
        twice = await sent(http, "POST", "/v1/engines", url=second.url, id="e3")
        assert (twice.status_code, twice.json()["code"]) == (409, "engine_exists")
    async with control_plane(settings) as running, asking(running) as http:
        assert set(running.service.runners) == {ENGINE, "e2"}
        assert running.service.runner("e2").settings.group == "canary"
        await until(lambda: running.service.runner("e2").status().tick is not None)
        gone = await sent(http, "DELETE", "/v1/engines/e2", reason="retired")
        assert gone.status_code == 200
        assert (await http.get("/v1/engines/e2")).status_code == 404
        held = await sent(http, "DELETE", f"/v1/engines/{ENGINE}")
        assert (held.status_code, held.json()["code"]) == (409, "in_settings")
        actions = [one.action for one in running.service.store.audit(limit=3)]
        assert "engine.remove" in actions
    async with control_plane(settings) as running:
        assert set(running.service.runners) == {ENGINE}


async def test_what_is_no_engine_is_refused_in_words(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    async with control_plane(settings_of(tmp_path, engine.url)) as running, asking(running) as http:
        for body in ({"url": "ftp://x"}, {"url": "http://u:p@x:1"}, {"url": "http://x", "id": "!"}):
            answer = await sent(http, "POST", "/v1/engines", **body)
            assert answer.status_code == 422, body
        secret = await sent(http, "POST", "/v1/engines", url="http://x", admin_key_file="/etc/x")
        assert secret.status_code == 422
        assert "admin_key_file" in secret.json()["detail"]


async def test_a_group_shares_one_policy(
    engine: EmbeddedEngine, second: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, engine.url)
    first = settings.engines[0].model_copy(update={"group": "prod"})
    other = first.model_copy(update={"id": "e2", "url": second.url})
    alone = first.model_copy(update={"id": "e3", "url": "http://127.0.0.1:9", "group": ""})
    settings = settings.model_copy(update={"engines": (first, other, alone)})
    async with control_plane(settings) as running, asking(running) as http:
        pilots = [running.service.runner(name).pilot for name in (ENGINE, "e2")]
        await until(lambda: all(one.policy is not None for one in pilots))
        policy = two_tiers().model_dump(mode="json")
        path = "/v1/groups/prod/policy"
        would = await sent(http, "PUT", f"{path}?dry_run=true", policy=policy)
        assert [one["policy"]["version"] for one in would.json()] == [2, 2]
        assert all(one.policy is not None and one.policy.version == 1 for one in pilots)
        made = await sent(http, "PUT", path, policy=policy)
        assert {one["engine_id"] for one in made.json()} == {ENGINE, "e2"}
        assert all(one.policy is not None and one.policy.policy == two_tiers() for one in pilots)
        strange = await sent(http, "PUT", "/v1/groups/lab/policy", policy=policy)
        assert strange.status_code == 404
        assert "groups are: prod" in strange.json()["detail"]
        turns = [one.turn for one in pilots]
        assert turns == [Turn(slot=0, of=2, length_s=5.0), Turn(slot=1, of=2, length_s=5.0)]
        assert running.service.runner("e3").pilot.turn is None


@pytest.fixture
def contested() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4") as started:
        yield started


async def test_a_claim_is_taken_over_only_with_the_name_of_its_holder(
    contested: EmbeddedEngine, tmp_path: Path
) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.mkdir()
    theirs.mkdir()
    rival = settings_of(theirs, contested.url, holder="rival")
    path = f"/v1/engines/{ENGINE}/takeover"

    def holder(running: Running) -> str | None:
        tick = running.service.runner(ENGINE).status().tick
        seen = None if tick is None else tick.observation
        return seen.claim_holder if isinstance(seen, Sample) else None

    async with control_plane(rival) as first:
        await until(lambda: holder(first) == "rival")
        async with (
            control_plane(settings_of(mine, contested.url)) as second,
            asking(second) as http,
        ):
            await until(lambda: holder(second) == "rival")
            wrong = await sent(http, "POST", path, holder="nobody", reason="it hangs")
            assert (wrong.status_code, wrong.json()["code"]) == (409, "other_holder")
            assert "'rival'" in wrong.json()["detail"]
            bare = await sent(http, "POST", path, reason="it hangs")
            assert bare.status_code == 422
            done = await sent(http, "POST", path, holder="rival", reason="it hangs")
            assert done.status_code == 202
            await until(lambda: holder(second) == "specdeck@test")
            assert second.service.runner(ENGINE).pilot.takeover_from == ""
            await until(
                lambda: any(
                    one.code == "foreign_claim"
                    for one in first.service.runner(ENGINE).status().tick.alarms  # type: ignore[union-attr]
                )
            )
            await asyncio.sleep(0.5)
            assert holder(second) == "specdeck@test"
            audit = second.service.store.audit(limit=1)[0]
            assert (audit.action, audit.detail) == ("claim.takeover", "from rival: it hangs")
            none = await sent(http, "POST", path, holder="rival", reason="again")
            assert (none.status_code, none.json()["code"]) == (409, "no_foreign_claim")


async def test_the_command_line_adds_lists_and_removes(
    engine: EmbeddedEngine,
    second: EmbeddedEngine,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def cli(*words: str) -> tuple[int, str]:
        code = await asyncio.to_thread(run_fleet, [*words, "--url", running.url])
        return code, capsys.readouterr().out

    policy = tmp_path / "policy.json"
    policy.write_text(two_tiers().model_dump_json())
    async with control_plane(settings_of(tmp_path, engine.url)) as running:
        assert (await cli("add", second.url, "--id", "e2", "--group", "canary"))[0] == 0
        await until(lambda: running.service.runner("e2").pilot.policy is not None)
        code, out = await cli("policy", "canary", "--file", str(policy), "--reason", "same")
        assert code == 0
        assert out.startswith("e2  version 2")
        assert (await cli("policy", "nobody", "--file", str(policy)))[0] == 4
        code, out = await cli("list", "--group", "canary")
        assert out.split()[:3] == ["e2", "canary", second.url]
        assert (await cli("takeover", "e2", "--holder", "x", "--reason", "y"))[0] == 4
        assert (await cli("remove", "e2"))[0] == 0
        assert (await cli("remove", "e2"))[0] == 4
        assert (await cli("add", "nonsense"))[0] == 4


def test_the_takeover_is_in_the_command_and_ends_with_the_claim() -> None:
    script = Script(config())
    script.claim = "rival"
    script.see(1, lease_remaining_s=30.0)
    assert script.commands == []
    script.use(script.config.model_copy(update={"takeover_from": "rival"}))
    script.see(1, lease_remaining_s=30.0)
    assert [one.takeover for one in script.commands] == [True]
    assert script.claim == HOLDER
    script.see(1)
    script.see(1)
    assert len(script.commands) == 1


def test_an_engine_waits_for_its_turn_and_a_guard_does_not() -> None:
    turn = Turn(slot=1, of=4, length_s=10.0)
    made = config(two_tiers(up_hold_s=0.0)).model_copy(update={"turn": turn})
    script = Script(made)
    wait = turn.wait_ms(script.utc_ms)
    script.wait(wait + 10_000)  # just past its own slot
    script.see(1)
    script.see(30)
    assert script.commands[-1].mode.value == "on"
    assert script.ticks[-1].verdict.reason is Reason.HOLDING
    assert "others of the group may change first" in script.ticks[-1].verdict.text
    for _ in range(80):
        script.see(30)
        if script.tier == OFF:
            break
    assert turn.wait_ms(script.utc_ms) == 0
    assert script.tier == OFF
    guarded = Script(made)
    guarded.wait(guarded.config.turn.wait_ms(guarded.utc_ms) + 10_000)  # type: ignore[union-attr]
    guarded.see(1)
    guarded.see(1, retractions=1)
    assert guarded.tier == OFF


@settings(deadline=None)
@given(
    st.integers(2, 300),
    st.floats(0.01, 1),
    st.floats(0.5, 60),
    st.integers(0, 2**41),
)
def test_never_more_than_the_share_of_a_group_may_change_at_once(
    count: int, share: float, length_s: float, at_utc_ms: int
) -> None:
    names = [f"e{number}" for number in range(count)]
    turns = [turn_of(name, names, share, length_s) for name in names]
    if turns[0] is None:
        assert share > 0.5
        return
    free = [one for one in turns if one is not None and one.wait_ms(at_utc_ms) == 0]
    assert len(free) <= max(count * share, 1)
    for one in turns:
        assert one is not None
        wait = one.wait_ms(at_utc_ms)
        assert 0 <= wait <= one.of * one.length_s * 1000
        assert one.wait_ms(at_utc_ms + wait) == 0


def test_a_lone_engine_and_a_group_without_slots_have_no_turns() -> None:
    assert turn_of("a", ["a"], 0.25, 5.0) is None
    assert turn_of("a", ["a", "b"], 0.25, 0.0) is None
    assert turn_of("c", ["a", "b"], 0.25, 5.0) is None
    assert turn_of("a", ["a", "b"], 1.0, 5.0) is None
