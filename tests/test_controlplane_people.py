"""What people decide, from the command line with ``--json``: windows, pins, stops, versions."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from controlplane.policy_cli import run_policy
from controlplane.stops_cli import run_pause, run_pin, run_resume
from store.policies import Stance
from store.records import Outcome
from tests.controlplane_rig import (
    ENGINE,
    EmbeddedEngine,
    Running,
    control_plane,
    embedded_engine,
    settings_of,
    until,
)

Cli = Callable[..., Any]


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4") as started:
        yield started


@pytest_asyncio.fixture
async def running(engine: EmbeddedEngine, tmp_path: Path) -> AsyncIterator[Running]:
    async with control_plane(settings_of(tmp_path, engine.url)) as started:
        await until(lambda: started.service.runner(ENGINE).pilot.policy is not None, 30.0)
        yield started


@pytest.fixture
def cli(running: Running, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs one command line and reads its one JSON line."""

    async def call(run: Any, *words: str, code: int = 0) -> Any:
        rest = [one for one in words if one != "--"]
        place = words.index("--") if "--" in words else len(words)
        line = [*words[:place], "--json", "--url", running.url, *words[place:]]
        assert await asyncio.to_thread(run, line) == code, (rest, capsys.readouterr().err)
        lines = capsys.readouterr().out.splitlines()
        return json.loads(lines[0]) if lines else None

    return call


def stance(running: Running) -> Stance | None:
    tick = running.service.runner(ENGINE).status().tick
    return None if tick is None else tick.stance


async def test_a_window_of_the_week_changes_the_stance_while_it_lasts(
    running: Running, cli: Cli
) -> None:
    await until(lambda: stance(running) is Stance.ACTIVE, 30.0)
    now = datetime.now(UTC)
    start, end = ((now + timedelta(hours=h)).strftime("%H:%M") for h in (-2, 2))
    made = await cli(run_policy, "set", ENGINE, "--window", f"mon-sun {start}-{end} paused")
    (window,) = made["windows"]
    assert (window["start"], window["end"], window["stance"]) == (start, end, "paused")
    assert (made["stance"], made["version"]) == ("active", 2)
    await until(lambda: stance(running) is Stance.PAUSED, 30.0)
    # A policy over another tier is not acted on while the window lasts.
    await cli(run_policy, "set", ENGINE, "tier=off")
    await until(
        lambda: (running.service.runner(ENGINE).status().tick or tick()).policy_version == 3
    )
    asked = [one.outcome for one in running.service.store.decisions(ENGINE)]
    assert Outcome.REQUESTED not in asked
    gone = await cli(run_policy, "set", ENGINE, "--window", "none", "--wait", "60s")
    assert gone["windows"] == []
    assert stance(running) is Stance.ACTIVE
    seen = running.service.runner(ENGINE).status().tick
    assert seen is not None
    assert seen.confirmed == "off"


def tick() -> Any:
    class Nothing:
        policy_version = 0

    return Nothing()


async def test_versions_have_authors_and_a_step_back_is_one_command(
    running: Running, cli: Cli
) -> None:
    await cli(run_policy, "set", ENGINE, "tier=off", "--author", "alice", "--reason", "night")
    await cli(run_policy, "set", ENGINE, "--stance", "shadow", "--author", "bob")
    back = await cli(run_policy, "rollback", ENGINE, "--author", "carol")
    assert (back["policy"]["tier"], back["stance"], back["version"]) == ("s3k1d4", "shadow", 4)
    history = await cli(run_policy, "history", ENGINE)
    told = [(one["version"], one["author"]) for one in history]
    assert told == [(4, "carol"), (3, "bob"), (2, "alice"), (1, "settings")]
    assert (await cli(run_policy, "history", ENGINE, "--limit", "1"))[0]["version"] == 4
    shown = await cli(run_policy, "show", ENGINE)
    assert shown == history[0]
    again = await cli(run_policy, "rollback", ENGINE, "--to", "2")
    assert again["policy"]["tier"] == "off"
    await cli(run_policy, "rollback", ENGINE, "--to", "99", code=4)


async def test_a_stop_of_the_whole_fleet_and_back(running: Running, cli: Cli) -> None:
    stopped = await cli(run_pause, "--all", "--reason", "incident")
    assert [one["policy"]["stance"] for one in stopped] == ["paused"]
    assert stopped[0]["policy"]["paused_from"] == "active"
    resumed = await cli(run_resume, "--all")
    assert [one["policy"]["stance"] for one in resumed] == ["active"]
    # A misspelt group is no stop of nobody.
    assert await cli(run_pause, "--group", "nobody", code=4) is None


async def test_a_pin_holds_its_tier_for_a_command(running: Running, cli: Cli) -> None:
    exits = [sys.executable, "-c", "raise SystemExit(3)"]
    held = await cli(run_pin, ENGINE, "off", "--for", "1m", "--wait", "60s", "--", *exits, code=3)
    assert (held["override"]["mode"], held["override"]["guards"]) == ("off", "suspend")
    assert running.service.runner(ENGINE).pilot.override is None
    ended = running.service.store.overrides(ENGINE)[0]
    assert ended.ended_by.startswith("released by")
