"""A loop that fails unexpectedly goes on, and what it had just read is not lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.messages import OverrideRequest
from engine_patch.contract_words import Mode
from store.observations import Sample
from tests.controlplane_rig import (
    ENGINE,
    EmbeddedEngine,
    control_plane,
    embedded_engine,
    settings_of,
    until,
)


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4") as running:
        yield running


async def test_journal_entries_read_by_a_step_that_fails_are_read_again(
    engine: EmbeddedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with control_plane(settings_of(tmp_path, engine.url)) as one, one.client() as client:
        runner, store = one.service.runners[ENGINE], one.service.store
        await until(lambda: runner.pilot.facts is not None, 60)
        step, failed = runner.pilot.step, list[int]()

        def fails_once(observation: Any, *more: Any, **named: Any) -> Any:
            if isinstance(observation, Sample) and observation.switches and not failed:
                failed.append(observation.seq)
                raise RuntimeError("a defect")
            return step(observation, *more, **named)

        monkeypatch.setattr(runner.pilot, "step", fails_once)
        request = OverrideRequest(mode=Mode.OFF, length_s=60, author="alice", reason="a test")
        await client.set_override(ENGINE, request)
        await until(lambda: bool(failed), 60)
        await until(lambda: bool(store.switches(ENGINE)), 60)
        assert runner.counts.failures == 1
        made = [entry["seq"] for entry in engine.state()["journal"]]
        assert [one.entry.seq for one in reversed(store.switches(ENGINE))] == made
