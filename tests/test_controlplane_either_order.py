"""Plugin and control plane are upgraded in either order: each reads the other's earlier release.

Earlier answers are recorded ones of a real server (``tests/samples/cpu-0.5.23``); an earlier reader
is the contract's JSON Schema of then (``tests/samples/contract-protocol-1``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest

from controlplane import patched
from controlplane.commanding import command_body
from controlplane.handshake import read_answer
from controlplane.patched import Seen
from controlplane.polled import Stamp
from engine_patch import published
from engine_patch.contract import (
    PROTOCOL,
    PROTOCOL_MIN,
    Identity,
    KvSlots,
    SpeculationState,
    Versions,
)
from engine_patch.contract_words import Mode, OnLeaseEnd
from engine_patch.published import Rank, RankFacts, RankLive
from engine_patch.tier import Boundary, Thresholds
from store.observations import PluginStatus
from store.records import Command
from tests.controlplane_rig import EmbeddedEngine, embedded_engine

SAMPLES = Path(__file__).parent / "samples"
EARLIER = sorted((SAMPLES / "cpu-0.5.23").glob("patched-*.speculation.json"))
SCHEMAS = json.loads((SAMPLES / "contract-protocol-1" / "schema.json").read_text())
STAMP = Stamp("e", 7, 1000, 50, "clock", 2.5)
THRESHOLDS = Thresholds(tiers=("s3k1d4", "off"), boundaries=(Boundary(up_at=24, down_at=16),))


def read_by_the_earlier_one(model: str, answer: Any) -> None:
    """Fails where a reader of then would not understand the answer."""
    jsonschema_rs.validate(SCHEMAS[model], answer)


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4", "--dp", "2", "--tp", "2") as started:
        yield started


@pytest.mark.parametrize("path", EARLIER, ids=lambda path: path.name)
def test_an_earlier_plugin_is_read_with_all_its_numbers(path: Path) -> None:
    shake = read_answer(200, path.read_bytes())
    assert (shake.plugin, shake.protocol) == (PluginStatus.PRESENT, 1)
    assert shake.state is not None
    facts = patched.facts_of(shake.state)
    assert facts.launch_tier == "s3k1d4"
    _, sample = patched.observe(Seen(), shake.state, STAMP)
    told = json.loads(path.read_bytes())["replicas"]
    assert sample.unseen_replicas == 0
    assert sample.concurrency == sum(one["running"] for one in told)
    assert sample.decode_tokens == sum(one["decode_tokens"] for one in told)
    assert sample.engine_tier == told[0]["ranks"][0]["tier"]
    assert sample.finished is None  # it counts none, and says 0


def test_there_are_answers_of_an_earlier_plugin() -> None:
    assert len(EARLIER) >= 5
    for path in EARLIER:
        answer = json.loads(path.read_bytes())
        assert "observed" not in answer["replicas"][0]
        read_by_the_earlier_one("SpeculationState", answer)


def test_an_earlier_control_plane_reads_this_engine(engine: EmbeddedEngine) -> None:
    order = 0
    with httpx.Client(base_url=engine.url, trust_env=False) as http:
        for mode in ({"mode": "off"}, {"mode": "on", "tier": "s3k1d4"}, {"mode": "up"}):
            order += 1
            body = {"holder": "h", "epoch": 0, "generation": order, "lease_s": 30, **mode}
            answer = http.put("/speculation", json=body)
            kind = "CommandAnswer" if answer.status_code == 200 else "Refusal"
            read_by_the_earlier_one(kind, answer.json())
            read_by_the_earlier_one("SpeculationState", http.get("/speculation").json())
        assert answer.status_code == 422


def test_an_earlier_control_plane_reads_a_plugin_that_sees_half_of_its_replicas() -> None:
    facts = RankFacts(pid=1, identity=Identity(model="m", dp_size=2), launch_tier="s3k1d4")
    kv = KvSlots(capacity=100, committed=10, evictable=5, reserve=8)
    rank = Rank(facts=facts, live=RankLive.model_validate({"tier": "s3k1d4", "kv": kv}), sample=7)
    replicas = published.replicas([rank])
    assert [one.observed for one in replicas] == [True, False]
    state = SpeculationState(
        protocol=PROTOCOL,
        protocol_min=PROTOCOL_MIN,
        boot_id="b",
        uptime_s=1.0,
        versions=Versions(engine="sglang", engine_version="0.5.23", plugin_version="1"),
        identity=facts.identity,
        capabilities=(),
        tiers=(),
        launch_tier="s3k1d4",
        mode=Mode.ON,
        desired_tier="s3k1d4",
        thresholds=None,
        epoch=0,
        generation=0,
        replicas=replicas,
    )
    read_by_the_earlier_one("SpeculationState", json.loads(state.model_dump_json()))


@pytest.mark.parametrize(
    "asked",
    [
        {"mode": Mode.OFF, "tier": None},
        {"mode": Mode.ON, "tier": "s3k1d4", "takeover": True},
        {"mode": Mode.AUTO, "tier": None, "on_lease_end": OnLeaseEnd.HOLD},
    ],
)
def test_an_earlier_plugin_takes_the_commands_of_this_control_plane(asked: dict[str, Any]) -> None:
    command = Command(thresholds=THRESHOLDS, lease_s=30.0, epoch=1, generation=2, **asked)
    body = json.loads(command_body(command, "holder"))
    # It refuses keys that it does not know, so that none may be new.
    read_by_the_earlier_one("SpeculationCommand", body)


def test_the_earlier_reader_can_say_no() -> None:
    answer = json.loads(EARLIER[0].read_bytes())
    del answer["replicas"][0]["running"]
    with pytest.raises(jsonschema_rs.ValidationError):
        read_by_the_earlier_one("SpeculationState", answer)
    with pytest.raises(jsonschema_rs.ValidationError):
        read_by_the_earlier_one("SpeculationCommand", {"mode": "off", "new_key": 1})
