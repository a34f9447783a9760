"""Engines that are not in the settings are found again after a start, with all that was given."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.added import added_engines, added_record
from controlplane.settings import EngineSettings
from engine_patch.tier import Boundary
from store.db import Store
from store.policies import FixedPolicy, GoodputPolicy, HysteresisPolicy, Policy, Stance

POLICIES = [
    None,
    FixedPolicy(tier="off"),
    HysteresisPolicy(tiers=("s3k1d4", "off"), boundaries=(Boundary(up_at=9, down_at=4),)),
    GoodputPolicy(tiers=("s3k1d4", "off")),
]


@pytest.mark.parametrize("policy", POLICIES)
def test_an_added_engine_is_read_back_as_it_was_given(
    tmp_path: Path, policy: Policy | None
) -> None:
    engine = EngineSettings(
        id="e2",
        url="http://10.0.0.9:30000",
        group="prod",
        stance=Stance.ACTIVE,
        policy=policy,
        poll_s=0.25,
        admin_key_file=Path("/etc/specdeck/prod.key"),
    )
    path = tmp_path / "deck.sqlite3"
    with Store.open(path) as store:
        store.write([added_record(None, engine, "router http://10.0.0.1:30001", 1)]).result(20)
    with Store.open(path) as store:
        ((found, record),) = added_engines(store, ())
    assert found == engine
    assert record.source == "router http://10.0.0.1:30001"
