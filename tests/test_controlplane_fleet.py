"""All engines in short rows, costs and moments, on a running control plane."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.client import RefusedError
from controlplane.fleet import fleet_row
from store.observations import PluginStatus
from tests.console_story import DEEP, alarm, gap, override, sample, status, tick
from tests.controlplane_rig import ENGINE, EmbeddedEngine, control_plane, embedded_engine
from tests.controlplane_rig import settings_of as settings


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    """One engine for the whole file."""
    with embedded_engine("--tiers", "off,s1k1d2,s3k1d4") as running:
        yield running


def test_a_row_before_the_first_tick_has_no_numbers() -> None:
    row = fleet_row(status())
    assert row.concurrency is None
    assert row.age_s is None
    assert row.kv_used is None
    assert row.policy == "hysteresis"
    assert row.tiers == (DEEP, "s1k1d2", "off")


def test_a_row_carries_what_runs_why_load_alarms_and_age() -> None:
    told = tick(
        sample(10), alarms=(alarm("a", "x"),), override=override(), override_left_s=9.0, stale_s=1.5
    )
    seen = status().model_copy(
        update={"tick": told, "now_utc_ms": told.observation.at_utc_ms + 500}
    )
    row = fleet_row(seen)
    assert (row.confirmed, row.override_by, row.override_left_s) == (DEEP, "op1", 9.0)
    assert row.age_s == 2.0
    assert row.concurrency is not None
    assert row.kv_used is not None
    assert [one.text for one in row.alarms] == ["x"]


def test_a_gap_has_no_numbers_and_says_why() -> None:
    told = tick(gap(10, "connection refused"), None, desired=DEEP, stale_s=3.0)
    row = fleet_row(status().model_copy(update={"tick": told}))
    assert row.gap == "connection refused"
    assert row.concurrency is None
    assert row.confirmed is None


async def test_rows_costs_and_moments_are_served(engine: EmbeddedEngine, tmp_path: Path) -> None:
    async with (
        control_plane(settings(tmp_path, engine.url)) as running,
        running.client() as client,
    ):
        await running.service.runner(ENGINE).next_tick(5)
        fleet = await client.fleet()
        assert [row.engine_id for row in fleet.rows] == [ENGINE]
        row = fleet.rows[0]
        assert (row.confirmed, row.plugin) == ("s3k1d4", PluginStatus.PRESENT)
        assert row.simulated
        assert row.age_s is not None
        assert row.age_s < 5
        costs = await client.costs(ENGINE)
        assert {cost.tier for cost in costs.costs} >= {"off", "s1k1d2", "s3k1d4"}
        assert "simulation table" in costs.source
        assert costs.setup_key
        stored = await client.ticks(ENGINE, 3)
        seq = stored[-1].observation.seq
        moment = await client.moment(ENGINE, seq, 3)
        assert [one.observation for one in moment] == [one.observation for one in stored]
        assert await client.moment(ENGINE, 10**9) == []
        with pytest.raises(RefusedError, match="no engine"):
            await client.costs("nobody")
