"""The database is locked by another process, or the disk is full: control goes on, and what was to
be recorded is there afterwards."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import psutil
import pytest

from controlplane.client import ControlPlaneClient, RefusedError
from controlplane.messages import OverrideRequest
from engine_patch.contract_words import Mode
from store.db import Store
from store.records import Outcome
from tests.controlplane_rig import ENGINE, EmbeddedEngine, deck, embedded_engine
from tests.fault_rig import POLICY, eventually

Fault = Callable[[Path, subprocess.Popen[str]], AbstractContextManager[None]]


@contextmanager
def locked(database: Path, process: subprocess.Popen[str]) -> Iterator[None]:
    """Another process, this one, is inside a transaction."""
    with closing(sqlite3.connect(database, timeout=60, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            other.execute("ROLLBACK")


@contextmanager
def full(database: Path, process: subprocess.Popen[str]) -> Iterator[None]:
    """No file of the control plane can grow: every write beyond two pages is refused."""
    told = psutil.Process(process.pid)
    _, hard = told.rlimit(resource.RLIMIT_FSIZE)
    told.rlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        yield
    finally:
        told.rlimit(resource.RLIMIT_FSIZE, (hard, hard))


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4") as running:
        yield running


async def refused(client: ControlPlaneClient) -> None:
    """A person's override is stored before it acts, so it is refused, not lost."""
    request = OverrideRequest(mode=Mode.OFF, length_s=60, author="a", reason="b")
    with pytest.raises(RefusedError) as caught:
        await client.set_override(ENGINE, request)
    assert caught.value.problem is not None
    assert caught.value.problem.status == 503
    assert await client.override(ENGINE) is None


@pytest.mark.parametrize("fault", [locked, full])
async def test_control_goes_on_and_the_record_is_whole_afterwards(
    engine: EmbeddedEngine, tmp_path: Path, fault: Fault
) -> None:
    database, config = tmp_path / "deck.sqlite3", tmp_path / "deck.toml"
    config.write_text(
        f'database = "{database}"\nholder = "specdeck@test"\n[[engines]]\nid = "{ENGINE}"\n'
        f'url = "{engine.url}"\nstance = "active"\npoll_s = 0.1\n{POLICY}\n'
    )
    with deck(["--config", str(config)], os.environ) as running:
        async with ControlPlaneClient(running.url, timeout_s=60) as client:

            def runs(tier: str) -> bool:
                ranks = engine.state()["replicas"][0]["ranks"]
                return bool(ranks[0]["tier"] == tier)

            async def quiet() -> bool:
                tick = (await client.engine(ENGINE)).tick
                return tick is not None and tick.confirmed == "s3k1d4" and not tick.alarms

            async def busy() -> bool:
                return runs("off")

            async def calm() -> bool:
                return runs("s3k1d4")

            async def told() -> bool:
                tick = (await client.engine(ENGINE)).tick
                return tick is not None and "store_failed" in {a.code for a in tick.alarms}

            await eventually("the engine is watched", quiet)
            before = len(await client.decisions(ENGINE))
            with fault(database, running.process):
                await eventually("the alarm that nothing is recorded", told)
                # The policy goes on to steer: off under load, back when it is quiet.
                engine.load(20, tokens=32)
                await eventually("off under load", busy)
                engine.unload()
                await eventually("back when it is quiet", calm)
                if fault is full:  # locked, the answer would take the 5 s that a lock may last
                    await refused(client)
            await eventually("the alarm is over", quiet)

            async def arrived() -> bool:
                made = await client.decisions(ENGINE)
                return len(made) >= before + 2 and made[0].outcome is not Outcome.REQUESTED

            await eventually("the decisions arrive", arrived)
        code, errors, _ = running.end(15)
        assert (code, "Traceback" in errors) == (0, False), errors
    with Store.open(database, read_only=True) as store:
        seqs = [tick.observation.seq for tick in store.ticks(ENGINE, after_id=0, limit=100_000)]
        assert seqs == list(range(1, len(seqs) + 1))
        made = [one for one in store.decisions(ENGINE) if one.author == "auto"]
        assert {one.to_tier for one in made[: len(made) - before]} == {"off", "s3k1d4"}
        entries = sorted(one.entry.seq for one in store.switches(ENGINE, limit=1000))
        assert entries == list(range(entries[0], entries[0] + len(entries)))
        assert store.overrides(ENGINE) == []
        assert store.check_audit().intact
