"""The embedded engine over a real socket."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine_patch.contract import SpeculationState
from engine_patch.embedded.config import EngineConfig
from engine_patch.embedded.faults import Faults
from engine_patch.embedded.generate import Job
from engine_patch.embedded.host import Answer, Host
from engine_patch.embedded.requests import Request
from engine_patch.embedded.state import Options
from engine_patch.embedded.table import load
from tests.embedded_process import Embedded, running


@pytest.fixture(scope="module")
def engine() -> Iterator[Embedded]:
    with running("--table", "fa3", "--seed", "3") as started:
        yield started


def events(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_generate_answers_in_sglangs_shape(engine: Embedded) -> None:
    answer = engine.generate(output=32, prompt=16)
    body = answer.json()
    meta = body["meta_info"]
    assert answer.status_code == 200
    assert len(body["output_ids"]) == meta["completion_tokens"] == 32
    assert meta["prompt_tokens"] == 16
    assert meta["finish_reason"] == {"type": "length", "length": 32}
    assert meta["spec_accept_length"] == pytest.approx(32 / meta["spec_verify_ct"])
    assert meta["spec_num_proposed_drafts"] == 3 * meta["spec_verify_ct"]
    assert 0 < meta["e2e_latency"] < 1


def test_meta_info_has_the_fields_of_a_real_answer(engine: Embedded) -> None:
    sample = Path(__file__).parent / "samples/h200-0.5.17/chain-acc2.0_generate_meta_info.json"
    real = json.loads(sample.read_text())
    ours = engine.generate().json()["meta_info"]
    missing = set(real) - set(ours)
    assert missing == {
        "api_server_dispatch_finish_ts",
        "cached_tokens_details",
        "decode_throughput",
        "reasoning_tokens",
        "response_sent_to_client_ts",
        "spec_accept_histogram",
        "spec_correct_drafts_histogram",
    }


def test_a_request_takes_its_simulated_time(engine: Embedded) -> None:
    start = time.monotonic()
    meta = engine.generate(output=100).json()["meta_info"]
    wall = time.monotonic() - start
    assert meta["e2e_latency"] == pytest.approx(
        # one prefill pass of 16 tokens, then steps of a chain of three alone
        0.021913 + 16 * 32.7e-6 + meta["spec_verify_ct"] * 0.006053,
        rel=0.02,
    )
    assert wall >= meta["e2e_latency"] - 0.002


def test_generate_streams_what_is_there_so_far(engine: Embedded) -> None:
    body = {"text": "hello", "stream": True, "sampling_params": {"max_new_tokens": 200}}
    answer = engine.http.post("/generate", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    chunks = events(answer.text)
    counts = [chunk["meta_info"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(set(counts))
    assert counts[-1] == 200
    assert len(counts) > 3
    assert chunks[0]["meta_info"]["finish_reason"] is None
    assert chunks[-1]["meta_info"]["finish_reason"]["type"] == "length"


@pytest.mark.parametrize(("interval", "whole"), [(7, 200), (500, 200), (1, 3), (None, 3)])
def test_answers_come_in_the_parts_that_were_asked_for(
    engine: Embedded, interval: int | None, whole: int
) -> None:
    params = {"max_new_tokens": whole, "stream_interval": interval}
    body = {"text": "hello", "stream": True, "sampling_params": params}
    answer = engine.http.post("/generate", json=body)
    counts = [chunk["meta_info"]["completion_tokens"] for chunk in events(answer.text)]
    # The first token comes at once, the rest in parts, and the end is never held back.
    assert counts[-1] == whole
    parts = [after - before for before, after in itertools.pairwise(counts)]
    assert all(part >= (interval or 1) for part in parts[:-1])
    assert len(counts) <= 2 + whole // (interval or 1)
    refused = engine.http.post("/generate", json=body | {"sampling_params": {"stream_interval": 0}})
    assert refused.status_code == 400


def test_a_part_is_what_was_there_when_it_was_due_however_late_it_is_read() -> None:
    """On a busy host the engine decodes on before the stream is written."""

    async def first() -> tuple[tuple[int, int, bool], int]:
        config = EngineConfig(table=load("fa3"), tiers=("off", "s3k1d4"), launch_tier="s3k1d4")
        request, answer = (
            Request(16, 200, arrival_ms=0.0, part=7),
            Answer(asyncio.get_running_loop()),
        )
        request.told, request.emitted = 8, 12
        job = Job(Host(Options(config=config), Faults()), request, answer, "late", 0.0)
        answer.news.set()
        step = await anext(job.progress())
        return step, job.meta(step[1])["completion_tokens"]

    assert asyncio.run(first()) == ((0, 8, False), 8)


def test_completions_answer_in_openais_shape(engine: Embedded) -> None:
    body = {"model": "any", "prompt": "hello there, engine", "max_tokens": 9}
    answer = engine.http.post("/v1/completions", json=body).json()
    assert answer["object"] == "text_completion"
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14}


def test_completions_stream_deltas_and_the_usage_if_wanted(engine: Embedded) -> None:
    body = {
        "prompt": [1, 2, 3],
        "max_tokens": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    chunks = events(engine.http.post("/v1/completions", json=body).text)
    text = "".join(chunk["choices"][0]["text"] for chunk in chunks[:-1])
    assert text == " tok" * 9
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 9
    without = engine.http.post("/v1/completions", json=body | {"stream_options": {}}).text
    assert "usage" not in without


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/generate", {"sampling_params": {}}, "text or input_ids"),
        ("/generate", {"text": "a", "input_ids": [1]}, "text or input_ids"),
        ("/generate", {"text": ["a", "b"]}, "text"),
        ("/generate", {"text": "a", "sampling_params": {"max_new_tokens": 0}}, "max_new_tokens"),
        ("/generate", {"text": "a", "sampling_params": {"max_new_tokens": 10**6}}, "KV slots"),
        ("/v1/completions", {"max_tokens": 3}, "prompt"),
    ],
)
def test_a_wrong_request_is_answered_with_what_is_wrong(
    engine: Embedded, path: str, body: dict[str, Any], said: str
) -> None:
    answer = engine.http.post(path, json=body)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]


def test_the_state_answer_is_the_contracts(engine: Embedded) -> None:
    state = SpeculationState.model_validate(engine.speculation())
    assert state.simulation is not None
    assert state.simulation.table == "h200-8b-fa3"
    assert [tier.name for tier in state.tiers] == ["off", "s1k1d2", "s3k1d4"]
    assert {cost.tier for cost in state.costs} == {"off", "s1k1d2", "s3k1d4"}
    assert {cost.measured for cost in state.costs} == {True, False}
    assert state.identity.attention_backend == "fa3"


@pytest.mark.parametrize("path", ["/health", "/v1/loads", "/metrics", "/speculation", "/nowhere"])
def test_every_answer_says_that_times_are_simulated(engine: Embedded, path: str) -> None:
    assert engine.http.get(path).headers["x-specdeck-simulated"] == "h200-8b-fa3"


def test_bodies_say_it_too(engine: Embedded) -> None:
    assert engine.http.get("/server_info").json()["specdeck_simulated"]["table"] == "h200-8b-fa3"
    assert engine.http.get("/v1/loads").json()["specdeck_simulated"] == "h200-8b-fa3"
    assert engine.http.get("/get_model_info").json()["specdeck_simulated"] == "h200-8b-fa3"
    assert 'specdeck_simulated{table="h200-8b-fa3"} 1.0' in engine.http.get("/metrics").text
    assert engine.generate(4).json()["meta_info"]["specdeck_simulated"] == "h200-8b-fa3"


@pytest.mark.parametrize("path", ["/health", "/health_generate", "/v1/models", "/model_info"])
def test_the_small_routes_answer(engine: Embedded, path: str) -> None:
    assert engine.http.get(path).status_code == 200


def test_server_info_has_the_fields_of_a_real_answer(engine: Embedded) -> None:
    sample = Path(__file__).parent / "samples/h200-0.5.17/chain-acc2.0_server_info.json"
    real = json.loads(sample.read_text())
    ours = engine.http.get("/server_info").json()
    assert set(ours) - set(real) == {"specdeck_simulated"}
    assert set(ours["internal_states"][0]) <= set(real["internal_states"][0])


def test_loads_have_the_fields_of_a_real_answer(engine: Embedded) -> None:
    sample = Path(__file__).parent / "samples/h200-0.5.17/chain-acc2.0_v1_loads.json"
    real = json.loads(sample.read_text())
    engine.generate()
    ours = engine.http.get("/v1/loads").json()
    assert set(ours) - set(real) == {"specdeck_simulated"}
    assert set(ours["loads"][0]) <= set(real["loads"][0])
    assert "sglang_num_running_reqs" in engine.http.get("/v1/loads?format=prometheus").text


def test_set_internal_state_refuses_what_it_does_not_know(engine: Embedded) -> None:
    def post(arguments: dict[str, float]) -> Any:
        return engine.http.post("/set_internal_state", json={"server_args": arguments}).json()

    assert post({}) == [True]
    assert post({"speculative_num_steps": 1}) == [False]


def test_nothing_but_loopback_is_listened_on_by_default(engine: Embedded) -> None:
    assert engine.url.startswith("http://127.0.0.1:")
