"""``/v1/loads`` of both releases."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.loads import read_loads
from controlplane.prometheus_text import MetricsError

SAMPLES = Path(__file__).parent / "samples"


def load(name: str) -> str:
    return (SAMPLES / name).read_text()


def test_the_shape_of_0_5_17_is_read() -> None:
    loads = read_loads(load("h200-0.5.17/chain-acc2.0_v1_loads.json"))
    assert (loads.version, loads.accelerator, loads.num_accelerators) == (
        "0.5.17",
        "NVIDIA H200",
        1,
    )
    (replica,) = loads.replicas
    assert (replica.num_running_reqs, replica.num_waiting_reqs) == (64, 0)
    assert (replica.num_used_tokens, replica.max_total_num_tokens) == (16256, 861668)
    assert replica.max_running_requests == 256


def test_the_shape_of_0_5_23_is_read() -> None:
    loads = read_loads(load("cpu-0.5.23/spec-load.loads.json"))
    assert (loads.version, loads.accelerator) == ("0.5.23", None)
    (replica,) = loads.replicas
    assert (replica.num_running_reqs, replica.num_used_tokens) == (8, 2111)
    assert replica.max_running_requests == 48


def test_a_plain_server_has_no_speculative_part() -> None:
    assert read_loads(load("h200-0.5.17/plain_v1_loads.json")).replicas[0].speculative is None


def test_its_accept_length_is_a_lifetime_mean_that_differs_from_the_windows() -> None:
    (replica,) = read_loads(load("cpu-0.5.23/spec-load.loads.json")).replicas
    assert replica.speculative is not None
    assert replica.speculative.accept_length == pytest.approx(1.7042, abs=1e-4)
    assert "sglang:spec_accept_length" in load("cpu-0.5.23/spec-load.metrics.txt")
    assert "} 1.64375\n" in load("cpu-0.5.23/spec-load.metrics.txt")


def test_running_requests_are_right_at_once_after_the_last_one_ended() -> None:
    assert (
        read_loads(load("cpu-0.5.23/spec-just-idle.loads.json")).replicas[0].num_running_reqs == 0
    )


def test_the_snapshots_own_time_tells_a_new_one_from_a_repeated_one() -> None:
    times = [
        read_loads(load(f"cpu-0.5.23/{name}.loads.json")).replicas[0].timestamp
        for name in ("spec-load", "spec-just-idle", "spec-idle")
    ]
    assert times == sorted(set(times))


@pytest.mark.constructed
def test_every_dp_replica_is_kept_by_rising_rank() -> None:
    body = json.loads(load("cpu-0.5.23/spec-load.loads.json"))
    second = {**body["loads"][0], "dp_rank": 1, "num_running_reqs": 3}
    body["loads"] = [second, body["loads"][0]]
    replicas = read_loads(json.dumps(body)).replicas
    assert [(r.dp_rank, r.num_running_reqs) for r in replicas] == [(0, 8), (1, 3)]


@pytest.mark.constructed
def test_a_slot_no_scheduler_has_written_yet_is_nothing_told() -> None:
    # SGLang lays the slot out with zeros and time 0 (managers/load_snapshot.py).
    body = json.loads(load("cpu-0.5.23/spec-load.loads.json"))
    body["loads"][0].update(timestamp=0.0, num_running_reqs=0, max_total_num_tokens=0)
    assert read_loads(json.dumps(body)).replicas == ()


@pytest.mark.constructed
def test_a_replica_named_twice_is_refused() -> None:
    body = json.loads(load("cpu-0.5.23/spec-load.loads.json"))
    body["loads"] *= 2
    with pytest.raises(MetricsError, match="twice"):
        read_loads(json.dumps(body))


def test_a_field_that_is_not_there_is_none() -> None:
    (replica,) = read_loads(
        '{"loads": [{"timestamp": 1.0, "max_total_num_tokens": 5, "dp_rank": 0}]}'
    ).replicas
    assert replica.num_running_reqs is None
    assert replica.num_used_tokens is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"loads": [{"num_running_reqs": -1}]}', "null"])
def test_other_json_is_refused_with_the_place(text: str) -> None:
    with pytest.raises(MetricsError, match="/v1/loads cannot be read"):
        read_loads(text)


@given(
    st.text()
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["loads", "dp_rank", "timestamp", "num_running_reqs", "version"]),
                inner,
                max_size=4,
            )
        ),
    ).map(json.dumps)
)
def test_any_answer_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(MetricsError):
        read_loads(text)
