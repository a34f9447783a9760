"""Every kind of record comes back from the file exactly as it went in."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from store.db import Store
from store.idempotency import KeptAnswer
from store.measurements import BenchmarkPoint, CostTable
from store.policies import PolicyConfig
from store.records import (
    AuditEntry,
    ControlInput,
    Decision,
    EngineRecord,
    EngineSwitch,
    Marker,
    Override,
    RawScrape,
    SessionRecord,
    Tick,
)
from store.rules import FleetRule
from tests.conftest import KINDS
from tests.store_records import STRATEGIES

_LAST: dict[type[BaseModel], Callable[[Store, Any], Any]] = {
    Tick: lambda store, r: store.last_tick(r.engine_id),
    Decision: lambda store, r: store.decisions(r.engine_id)[0],
    EngineSwitch: lambda store, r: store.switches(r.engine_id)[0],
    Override: lambda store, r: store.overrides(r.engine_id)[0],
    PolicyConfig: lambda store, r: store.policy(r.engine_id),
    EngineRecord: lambda store, r: store.engine(r.engine_id),
    AuditEntry: lambda store, _: store.audit(limit=1)[0],
    RawScrape: lambda store, r: store.scrapes(r.engine_id, r.seq, r.seq)[0],
    ControlInput: lambda store, r: store.inputs(r.engine_id, r.after_seq, r.after_seq)[-1],
    Marker: lambda store, r: store.markers(r.engine_id)[0],
    SessionRecord: lambda store, _: store.sessions()[0],
    BenchmarkPoint: lambda store, r: store.benchmark_points(r.setup_key)[-1],
    CostTable: lambda store, r: store.cost_table(r.setup_key),
    FleetRule: lambda store, _: store.fleet_rules()[-1],
    KeptAnswer: lambda store, r: store.kept_answer(r.caller, r.key),
}


@pytest.fixture(scope="module", params=KINDS)
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    if request.param == "sqlite":
        with Store.open(tmp_path_factory.mktemp("store") / "s.db") as opened:
            yield opened
    else:
        with Store.open(request.getfixturevalue("postgres_server").emptied()) as opened:
            yield opened


_engines = itertools.count()


def test_every_kind_of_record_has_a_way_in_and_a_way_out() -> None:
    assert set(STRATEGIES) == set(_LAST)


@pytest.mark.parametrize("kind", STRATEGIES, ids=lambda kind: kind.__name__)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_record_comes_back_equal_but_for_its_id(
    kind: type[BaseModel], data: st.DataObject, store: Store
) -> None:
    given_record = data.draw(STRATEGIES[kind])
    if "engine_id" in kind.model_fields:
        # An engine of its own for each example: sequence numbers and versions are kept unique.
        given_record = given_record.model_copy(
            update={"engine_id": f"{next(_engines)} {given_record.engine_id}"}
        )
    (written,) = store.write([given_record]).result(timeout=20)
    found = _LAST[kind](store, given_record)
    assert found == written
    if "id" in kind.model_fields:
        assert written.id > 0
        filled = {"id": written.id} | ({"hash": written.hash} if kind is AuditEntry else {})
        assert found == given_record.model_copy(update=filled)
    else:
        assert found == given_record


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ticks=st.lists(STRATEGIES[Tick], min_size=2, max_size=3))
def test_ticks_packed_against_an_unlike_one_come_back_equal(
    ticks: list[Tick], store: Store
) -> None:
    engine = f"unlike {next(_engines)}"
    renamed = [
        tick.model_copy(
            update={
                "engine_id": engine,
                "observation": tick.observation.model_copy(update={"seq": seq}),
            }
        )
        for seq, tick in enumerate(ticks)
    ]
    written = store.write(renamed).result(timeout=20)
    assert store.ticks(engine, after_id=0) == written
    assert [tick.model_copy(update={"id": 0}) for tick in written] == [
        tick.model_copy(update={"id": 0}) for tick in renamed
    ]
