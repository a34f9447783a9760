"""``/server_info``: identity, caps and the launch shape."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.prometheus_text import MetricsError
from controlplane.server_info import read_server_info

SAMPLES = Path(__file__).parent / "samples"
CHAIN = (SAMPLES / "h200-0.5.17/chain-acc2.0_server_info.json").read_text()
PLAIN = (SAMPLES / "h200-0.5.17/plain_server_info.json").read_text()
ADAPTIVE = (SAMPLES / "h200-0.5.17/adaptivefix-acc2.0-fa3_server_info.json").read_text()
CPU_SPEC = (SAMPLES / "cpu-0.5.23/spec-load.server_info.json").read_text()
CPU_PLAIN = (SAMPLES / "cpu-0.5.23/plain-idle.server_info.json").read_text()


def changed(text: str, **top: object) -> str:
    return json.dumps({**json.loads(text), **top})


def test_the_identity_of_0_5_17_is_read() -> None:
    info = read_server_info(CHAIN)
    assert info.version == "0.5.17"
    identity = info.identity
    assert identity.model == "models/llama8b"
    assert identity.draft_model == "models/llama8b-eagle3"
    assert (identity.algorithm, identity.attention_backend) == ("EAGLE3", "triton")
    assert (identity.tp_size, identity.dp_size, identity.page_size) == (1, 1, 1)
    assert identity.kv_capacity == 861668


def test_the_identity_of_0_5_23_is_read() -> None:
    info = read_server_info(CPU_SPEC)
    assert info.version == "0.5.23"
    assert info.identity.attention_backend == "intel_amx"  # the one decoding uses
    assert info.identity.kv_capacity == 16384


def test_the_launch_shape_is_the_top_level_one_not_the_present_one() -> None:
    # Recorded while one step was active; the top level does not follow a switch.
    present = json.loads(ADAPTIVE)["internal_states"][0]
    assert (present["speculative_num_steps"], present["speculative_num_draft_tokens"]) == (1, 2)
    info = read_server_info(ADAPTIVE)
    assert info.launch_shape is not None
    assert info.launch_shape.name == "s3k1d4"
    assert info.adaptive


def test_a_plain_server_has_no_launch_shape() -> None:
    assert read_server_info(PLAIN).launch_shape is None
    assert not read_server_info(CHAIN).adaptive


def test_a_cap_nobody_asked_for_is_the_speculative_default() -> None:
    # --max-running-requests was not given, and SGLang put 48.
    identity = read_server_info(CPU_SPEC).identity
    assert identity.requested_max_running_requests is None
    assert identity.max_running_requests == 48
    assert identity.cap_origin == "speculative default 48"


def test_a_requested_cap_is_told_apart_from_the_effective_one() -> None:
    identity = read_server_info(CPU_PLAIN).identity
    assert identity.requested_max_running_requests == 16
    assert identity.max_running_requests == 16
    assert identity.cap_origin == "flag"
    lowered = json.loads(CPU_PLAIN)
    lowered["internal_states"][0]["effective_max_running_requests_per_dp"] = 12
    identity = read_server_info(json.dumps(lowered)).identity
    assert (identity.requested_max_running_requests, identity.max_running_requests) == (16, 12)


def test_without_a_launch_command_the_origin_says_what_is_not_known() -> None:
    identity = read_server_info(CHAIN).identity
    assert (identity.requested_max_running_requests, identity.cap_origin) == (256, "flag")
    unasked = read_server_info(changed(CHAIN, max_running_requests=48)).identity
    assert unasked.requested_max_running_requests is None
    assert unasked.cap_origin == "speculative default 48 (or a flag)"
    engine_default = read_server_info(changed(PLAIN, max_running_requests=None)).identity
    assert engine_default.requested_max_running_requests is None
    assert engine_default.max_running_requests == 256
    assert engine_default.cap_origin == "engine default"


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        ("--model-path m --max-running-requests 64 --tp 2", 64),
        ("--model-path m --max-running-requests=64", 64),
        ("Engine(model_path='m', max_running_requests=64)", 64),
        ("--model-path 'unclosed --max-running-requests 64", 64),
        ("--model-path m", None),
        ("--max-running-requests", None),
    ],
)
def test_the_requested_cap_is_found_in_the_launch_command(command: str, asked: int | None) -> None:
    identity = read_server_info(changed(CPU_SPEC, launch_command=command)).identity
    assert identity.requested_max_running_requests == asked


@pytest.mark.constructed
@pytest.mark.parametrize(("attention", "gpus"), [(False, 16), (True, 8)])
def test_dp_attention_shares_the_gpus_of_the_tp_group(attention: bool, gpus: int) -> None:
    text = changed(CHAIN, tp_size=8, dp_size=2, enable_dp_attention=attention)
    assert read_server_info(text).identity.gpu_count == gpus


@pytest.mark.constructed
def test_an_impossible_shape_is_none() -> None:
    text = changed(CHAIN, speculative_num_draft_tokens=9)
    assert read_server_info(text).launch_shape is None


def test_lifetime_accept_length_and_last_throughput_are_not_even_kept() -> None:
    # The throughput is what stood there 35 s after the last request.
    idle = json.loads(CPU_PLAIN)["internal_states"][0]
    assert idle["last_gen_throughput"] == pytest.approx(570.5, abs=0.1)
    assert "570.5" not in repr(read_server_info(CPU_PLAIN))
    lifetime = json.loads(CPU_SPEC)["internal_states"][0]["avg_spec_accept_length"]
    assert lifetime == pytest.approx(1.7009, abs=1e-4)
    assert "1.70" not in repr(read_server_info(CPU_SPEC))


def test_keys_in_the_answer_are_not_kept() -> None:
    info = read_server_info(changed(CHAIN, api_key="sk-secret", admin_api_key="sk-secret"))
    assert "sk-secret" not in repr(info)


@given(st.text() | st.dictionaries(st.text(), st.integers()).map(json.dumps))
def test_any_answer_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(MetricsError):
        read_server_info(text)
