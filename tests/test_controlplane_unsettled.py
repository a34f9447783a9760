"""Nobody waits any longer for what became of a decision: it is told so, and left open for nobody.

The engine says yes and does nothing, so that each decision stays on its way for seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.messages import AddEngineRequest, OverrideRequest, RemoveEngineRequest
from controlplane.obedience import UNSETTLED
from engine_patch.contract_words import Mode
from store.db import Store
from store.policies import Stance
from store.records import Decision, Outcome
from tests.controlplane_rig import (
    ENGINE,
    EmbeddedEngine,
    Running,
    control_plane,
    embedded_engine,
    settings_of,
    until,
)

ADDED = "e2"
WANTED = OverrideRequest(mode=Mode.OFF, length_s=600, author="alice", reason="a test")


@pytest.fixture
def liar() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4", "--table", "fa3") as engine:
        engine.fault(lie=True)
        yield engine


def _asked(one: Running, engine_id: str) -> bool:
    kept = one.service.store.decisions(engine_id)
    return bool(kept) and kept[0].outcome is Outcome.REQUESTED


def _told(decision: Decision) -> bool:
    settled = decision.settled_utc_ms
    return (
        (decision.outcome, decision.message) == (Outcome.TIMED_OUT, UNSETTLED)
        and settled is not None
        and settled >= decision.at_utc_ms
    )


async def test_a_stop_settles_the_decision_that_is_on_its_way(
    liar: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, liar.url)
    async with control_plane(settings) as one, one.client() as client:
        await until(lambda: one.service.runners[ENGINE].pilot.facts is not None)
        await client.set_override(ENGINE, WANTED)
        await until(lambda: _asked(one, ENGINE))
    with Store.open(tmp_path / "deck.sqlite3", read_only=True) as store:
        newest = store.decisions(ENGINE)[0]
    assert _told(newest), newest


async def test_an_engine_that_is_left_alone_leaves_no_decision_open(
    liar: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, liar.url, engines=[])
    async with control_plane(settings) as one, one.client() as client:
        add = AddEngineRequest(
            id=ADDED, url=liar.url, stance=Stance.ACTIVE, author="alice", reason="a test"
        )
        await client.add_engine(add)
        await until(lambda: one.service.runners[ADDED].pilot.facts is not None)
        await client.set_override(ADDED, WANTED)
        await until(lambda: _asked(one, ADDED))
        remove = RemoveEngineRequest(author="alice", reason="it is done with")
        await client.remove_engine(ADDED, remove)
        await until(lambda: _told(one.service.store.decisions(ADDED)[0]))
