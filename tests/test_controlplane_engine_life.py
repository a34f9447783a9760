"""An engine's life: restarts and upgrades, on the time line and in what automation reckons with."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane import cost_lookup
from controlplane.clock import SystemClock
from controlplane.cost_lookup import CostLookup, worth
from controlplane.engine_life import RESTART, SETUP, life_notes
from controlplane.messages import PolicyRequest
from controlplane.pilot import Pilot
from controlplane.settings import EngineSettings
from controlplane.setup_key import setup_key
from engine_patch.contract import Identity, Versions
from engine_patch.costs import StepCost
from engine_patch.quiet_port import quiet_port
from store.db import Store
from store.measurements import CostTable
from store.observations import EngineFacts, PluginStatus
from store.policies import HysteresisPolicy
from tests.controlplane_rig import (
    ENGINE,
    EmbeddedEngine,
    Running,
    control_plane,
    embedded_engine,
    settings_of,
    until,
)
from tests.controlplane_script import facts as scripted_facts

COST = StepCost(tier="s3k1d4", bucket=8, samples=100, mean_ms=10.0)


def facts(version: str = "0.5.23", **more: Any) -> EngineFacts:
    given = {
        "boot_id": "b1",
        "plugin": PluginStatus.PRESENT,
        "versions": Versions(engine="sglang", engine_version=version, plugin_version="1"),
        "identity": Identity(model="m", gpu="H200", kv_capacity=861_000),
    }
    return scripted_facts().model_copy(update=given | more)


# -- what facts tell ----------------------------------------------------------------------------


def test_another_boot_id_is_a_start_and_another_version_a_setup() -> None:
    assert life_notes(None, facts()) == ()
    assert life_notes(facts(), facts()) == ()
    (restart,) = life_notes(facts(), facts(boot_id="b2"))
    assert restart.kind == RESTART
    kinds = [one.kind for one in life_notes(facts(), facts("0.5.24", boot_id="b2"))]
    assert kinds == [RESTART, SETUP]
    (setup,) = life_notes(facts(), facts("0.5.24"))
    assert "engine_version 0.5.23 → 0.5.24" in setup.text
    assert "until measured anew" in setup.text


def test_what_is_not_known_is_no_other_setup() -> None:
    unknown = facts(versions=None, identity=None, tiers=())
    assert life_notes(unknown, facts()) == ()
    assert life_notes(facts(), unknown) == ()
    less = facts(identity=Identity(model="m", gpu="H200"))
    assert life_notes(less, facts()) == ()


def test_starts_of_an_unpatched_server_are_counted_anew_by_each_control_plane() -> None:
    absent = {"plugin": PluginStatus.ABSENT}
    assert life_notes(facts(boot_id="m.3", **absent), facts(boot_id="m.0", **absent)) == ()
    for later in ("m.4", "n.0"):
        notes = life_notes(facts(boot_id="m.3", **absent), facts(boot_id=later, **absent))
        assert [one.kind for one in notes] == [RESTART]
    # A plugin that came along, or went away, has names of its own.
    assert life_notes(facts(boot_id="m.3", **absent), facts(boot_id="b1")) == ()


def test_costs_of_another_setup_are_not_used_until_it_tells_its_own() -> None:
    pilot = Pilot(EngineSettings(url="http://a:1"), "holder")
    pilot.adopt(facts(), (COST,), 0)
    pilot.adopt(facts(boot_id="b2"), (), 0)
    assert pilot.costs == (COST,)  # the same setup, started anew
    pilot.adopt(facts("0.5.24", boot_id="b3"), (), 0)
    assert pilot.costs == ()
    pilot.adopt(facts("0.5.24", boot_id="b3"), (COST,), 0)
    assert pilot.costs == (COST,)


# -- which table counts ---------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "s.db") as opened:
        yield opened


def stored(store: Store, of: EngineFacts, mean_ms: float, source: str = "benchmark") -> StepCost:
    cost = COST.model_copy(update={"mean_ms": mean_ms})
    table = CostTable(setup_key=setup_key(of), source=source, created_utc_ms=1, costs=(cost,))
    store.write([table]).result(timeout=10)
    return cost


async def test_a_stored_table_counts_for_its_own_setup_alone(store: Store) -> None:
    lookup = CostLookup(store, SystemClock())
    old = stored(store, facts(), 7.0)
    assert await lookup.look(facts(), (COST,), changed=True) == (old,)
    assert (lookup.source, lookup.told) == ("benchmark", (COST,))
    assert await lookup.look(facts("0.5.24"), (), changed=True) == ()
    assert await lookup.look(facts(), (), changed=True) == (old,)
    simulated = facts(simulated=True, simulation_table="t")
    stored(store, simulated, 1.0)
    assert await lookup.look(simulated, (COST,), changed=True) == (COST,)
    await lookup.close()


async def test_a_table_that_a_benchmark_stores_meanwhile_is_taken_up(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost_lookup, "STORED_EVERY_MS", 0)
    monkeypatch.setattr(cost_lookup, "TOLD_EVERY_MS", 0)
    lookup = CostLookup(store, SystemClock())
    assert await lookup.look(facts(), (), changed=True) == ()
    new = stored(store, facts(), 7.0)
    found: list[Any] = []
    for _ in range(3000):
        found.append(await lookup.look(facts(), (), changed=False))
        if found[-1] is not None:
            break
        await asyncio.sleep(0.01)
    assert found[-1] == (new,)
    assert await lookup.look(facts(), (), changed=False) is None
    await lookup.close()


def test_a_mean_that_moves_a_little_is_no_other_table() -> None:
    moved = COST.model_copy(update={"mean_ms": 11.0, "samples": 150})
    assert not worth((COST,), (COST,))
    assert not worth((moved,), (COST,))
    assert worth((COST.model_copy(update={"samples": 200}),), (COST,))
    assert worth((COST, COST.model_copy(update={"bucket": 16})), (COST,))
    assert worth((COST,), ())
    assert worth((), (COST,))


# -- on a running control plane -------------------------------------------------------------------


def notes(running: Running) -> list[str]:
    return [one.kind for one in running.service.store.markers(ENGINE)]


async def test_a_restart_is_marked_thresholds_come_back_and_no_rate_is_negative(
    tmp_path: Path,
) -> None:
    policy = HysteresisPolicy(tiers=("s3k1d4", "off"), boundaries=({"up_at": 24, "down_at": 16},))
    with embedded_engine("--tiers", "off,s3k1d4") as engine:
        async with control_plane(settings_of(tmp_path, engine.url)) as running:
            runner = running.service.runner(ENGINE)
            await until(lambda: runner.pilot.policy is not None)
            async with running.client() as client:
                request = PolicyRequest(policy=policy, delegate=True, author="alice")
                await client.set_policy(ENGINE, request)
            await until(lambda: engine.state()["thresholds"] is not None)
            engine.load(4)
            await until(lambda: (runner.status().tick or no_tick()).decode_tok_s not in (None, 0))
            boot = engine.state()["boot_id"]
            engine.fault(restart=True)
            await until(lambda: engine.state()["boot_id"] != boot)
            await until(lambda: RESTART in notes(running))
            await until(lambda: engine.state()["thresholds"] is not None)
            assert engine.state()["mode"] == "auto"
            await until(lambda: (runner.status().tick or no_tick()).decode_tok_s not in (None, 0))
            engine.unload()
            ticks = running.service.store.ticks(ENGINE)
            assert all(tick.decode_tok_s is None or tick.decode_tok_s >= 0 for tick in ticks)
            (marker,) = running.service.store.markers(ENGINE)
            first = next(one for one in ticks if one.observation.seq == marker.seq)
            assert getattr(first.observation, "boot_id", "") != boot


def no_tick() -> Any:
    class Nothing:
        decode_tok_s = None

    return Nothing()


async def test_an_upgrade_while_the_control_plane_was_down_is_marked(tmp_path: Path) -> None:
    port = str(quiet_port())

    def engine(*more: str) -> Any:
        return embedded_engine("--tiers", "off,s3k1d4", "--port", port, *more)

    settings = settings_of(tmp_path, f"http://127.0.0.1:{port}")
    old: EmbeddedEngine
    with engine() as old:
        assert old.url.endswith(port)
        async with control_plane(settings) as running:
            await until(lambda: running.service.runner(ENGINE).pilot.policy is not None)
            before = running.service.runner(ENGINE).pilot.costs
            assert before
    with engine("--table", "triton"):
        async with control_plane(settings) as running:
            await until(lambda: SETUP in notes(running))
            assert notes(running) == [RESTART, SETUP]
            assert running.service.runner(ENGINE).pilot.costs != before
