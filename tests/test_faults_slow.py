"""Engines that hang, drip or only accept delay nobody but themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.server import bind
from store.observations import Gap, GapReason, PluginStatus, Sample
from store.records import Tick
from tests.controlplane_rig import Running, control_plane, settings_of, until
from tests.engine_herd import Herd, herd

HANGS, DRIPS, INFO = "hangs", "drips", "info"
"""Places of the three faulty engines in the herd; those behind are well."""
NAMES = (HANGS, DRIPS, INFO, "well-1", "well-2", "well-3")
DEAF = "deaf"
"""A socket whose backlog takes connections and that nobody ever reads."""


@pytest.fixture(scope="module")
def engines() -> Iterator[Herd]:
    with herd(len(NAMES)) as running:
        yield running


async def more(running: Running, name: str, count: int) -> list[Tick]:
    """The next ticks of an engine."""
    store = running.service.store
    last = (await asyncio.to_thread(store.ticks, name, limit=1))[-1].id
    polls = running.service.runners[name].counts.polls
    await until(lambda: running.service.runners[name].counts.polls >= polls + count + 1, 60)
    return await asyncio.to_thread(store.ticks, name, after_id=last, limit=count)


async def test_slow_and_half_open_engines_delay_no_other(engines: Herd, tmp_path: Path) -> None:
    engines.fault(NAMES.index(INFO), drop_speculation=True, hang_info=120)
    with bind("127.0.0.1", 0) as sock:
        deaf = f"http://127.0.0.1:{sock.getsockname()[1]}"
        places = dict(zip(NAMES, engines.urls, strict=True)) | {DEAF: deaf}
        given = [
            {"id": name, "url": url, "poll_s": 0.1, "timeout_s": 60.0, "stance": "active"}
            for name, url in places.items()
        ]
        async with control_plane(settings_of(tmp_path, deaf, engines=given)) as one:
            runners = one.service.runners
            await until(lambda: all(runners[n].counts.polls > 2 for n in NAMES), 60)
            engines.fault(NAMES.index(HANGS), hang=120)
            engines.fault(NAMES.index(DRIPS), drip=1000)
            # What was under way when the faults began has its answer by then.
            await asyncio.gather(*(more(one, name, 5) for name in NAMES[3:]))
            stuck = {name: runners[name].counts.polls for name in (HANGS, DRIPS, DEAF)}
            for ticks in await asyncio.gather(*(more(one, name, 15) for name in NAMES[3:])):
                assert [t for t in ticks if not isinstance(t.observation, Sample)] == []
            # Those 15 polls were answered while each of the others still waited for one: nothing
            # but its time-out of 60 s could end that.
            assert {name: runners[name].counts.polls for name in stuck} == stuck
            # /server_info hangs, and the very engine it belongs to is watched all the same.
            for tick in await more(one, INFO, 15):
                assert isinstance(tick.observation, Sample)
            facts = runners[INFO].pilot.facts
            assert facts is not None
            assert facts.plugin is PluginStatus.ABSENT
    engines.fault(NAMES.index(HANGS), clear=True)
    engines.fault(NAMES.index(DRIPS), clear=True)


async def test_a_stuck_engine_is_told_with_the_time_out_and_comes_back(
    engines: Herd, tmp_path: Path
) -> None:
    given = [{"id": "e1", "url": engines.urls[-1], "poll_s": 0.1, "timeout_s": 0.5}]
    async with control_plane(settings_of(tmp_path, engines.urls[-1], engines=given)) as one:
        runner = one.service.runners["e1"]
        for order in ({"hang": 120.0}, {"drip": 1000.0}):
            await until(lambda: runner.counts.polls > 2, 60)
            engines.fault(len(NAMES) - 1, **order)

            def gap() -> bool:
                tick = runner.status().tick
                seen = None if tick is None else tick.observation
                return isinstance(seen, Gap) and seen.reason is GapReason.TIMEOUT

            await until(gap, 60)
            engines.fault(len(NAMES) - 1, clear=True, hang=0, drip=0)

            def sample() -> bool:
                tick = runner.status().tick
                return tick is not None and isinstance(tick.observation, Sample)

            await until(sample, 60)
