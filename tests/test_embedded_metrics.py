"""SGLang's metric habits, as the embedded engine shows them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from engine_patch.contract_words import Mode
from engine_patch.embedded.core import Engine, EngineConfig
from engine_patch.embedded.exposition import settle_gauges
from engine_patch.embedded.requests import Request
from engine_patch.embedded.table import load
from engine_patch.wire import RankCommand
from tests.embedded_process import Embedded, running

MODEL = 'engine_type="unified",model_name="llama-3.1-8b-shape"'


@pytest.fixture(scope="module")
def engine() -> Iterator[Embedded]:
    with running("--tp", "2") as started:
        yield started


def busy(requests: int, **changes: object) -> Engine:
    config = replace(EngineConfig(table=load("fa3")), **changes)  # type: ignore[arg-type]
    running_engine = Engine(config)
    for _ in range(requests):
        running_engine.submit(Request(128, 2000, arrival_ms=0))
    return running_engine


def steps(engine: Engine, count: int) -> None:
    target = engine.books.decode_steps + count
    while engine.books.decode_steps < target:
        due = engine.next_event_ms
        assert due is not None
        engine.advance(due)


def test_gauges_keep_their_values_between_two_log_lines_forty_steps_apart() -> None:
    engine = busy(8)
    steps(engine, 39)
    gauges = engine.books.gauges
    assert gauges.gen_throughput == 0.0
    assert gauges.accept_length is None
    steps(engine, 1)
    assert gauges.gen_throughput > 0
    assert gauges.running == 8
    seen = (gauges.gen_throughput, gauges.used_tokens, gauges.accept_length)
    steps(engine, 39)
    assert (gauges.gen_throughput, gauges.used_tokens, gauges.accept_length) == seen
    steps(engine, 1)
    assert (gauges.gen_throughput, gauges.used_tokens, gauges.accept_length) != seen


def test_the_realtime_counter_moves_with_every_step_and_the_others_do_not() -> None:
    engine = busy(4)
    steps(engine, 1)
    before = engine.books.decode_tokens
    steps(engine, 1)
    assert engine.books.decode_tokens > before
    assert engine.books.generation_tokens == engine.books.verify_calls == 0


def test_finishing_moves_the_other_counters() -> None:
    engine = Engine(EngineConfig(table=load("fa3")))
    request = engine.submit(Request(10, 50, arrival_ms=0))
    while (due := engine.next_event_ms) is not None:
        engine.advance(due)
    books = engine.books
    assert books.generation_tokens == 50
    assert books.decode_tokens == 49
    assert books.verify_calls == request.verifies
    assert books.prompt_tokens == 10


def test_a_window_with_a_switch_in_it_mixes_tiers() -> None:
    engine = busy(8, accept_length=4.0)
    steps(engine, 20)
    engine.command(RankCommand(mode=Mode.OFF))
    steps(engine, 20)
    gauges = engine.books.gauges
    assert gauges.accept_length is not None
    assert 1.5 < gauges.accept_length < 3.5, "half at 4, half at 1"
    assert gauges.num_steps == 0


def test_at_zero_steps_the_accept_length_reads_one() -> None:
    engine = busy(8)
    engine.command(RankCommand(mode=Mode.OFF))
    steps(engine, 80)
    gauges = engine.books.gauges
    assert (gauges.accept_length, gauges.num_steps, gauges.num_draft_tokens) == (1.0, 0, 1)


def test_idle_gauges_are_stale_for_half_a_minute_and_throughput_for_good() -> None:
    engine = Engine(EngineConfig(table=load("fa3")))
    for _ in range(8):
        engine.submit(Request(128, 400, arrival_ms=0))
    while (due := engine.next_event_ms) is not None:
        engine.advance(due)
    ended = engine.now_ms
    gauges = engine.books.gauges
    assert gauges.running > 0
    throughput, accept = gauges.gen_throughput, gauges.accept_length
    engine.advance(ended + 29_000)
    settle_gauges(engine, ended + 29_000)
    assert gauges.running > 0
    engine.advance(ended + 31_000)
    settle_gauges(engine, ended + 31_000)
    assert (gauges.running, gauges.used_tokens) == (0, 0)
    assert (gauges.gen_throughput, gauges.accept_length) == (throughput, accept)


def test_the_page_has_sglangs_names_and_types(engine: Embedded) -> None:
    text = engine.http.get("/metrics").text
    assert "# TYPE sglang:num_running_reqs gauge" in text
    assert "# TYPE sglang:realtime_tokens_total counter" in text
    assert "# TYPE sglang:generation_tokens_total counter" in text
    helps = [line for line in text.splitlines() if line.startswith("# HELP sglang:")]
    assert helps
    assert all("simulated" in line for line in helps)


def test_tp_ranks_repeat_a_gauge_and_share_a_counter(engine: Embedded) -> None:
    text = engine.http.get("/metrics").text
    gauges = [line for line in text.splitlines() if line.startswith("sglang:num_running_reqs{")]
    counters = [
        line
        for line in text.splitlines()
        if line.startswith("sglang:realtime_tokens_total{") and 'mode="decode"' in line
    ]
    assert len(gauges) == 2
    assert len(counters) == 1


def test_served_counters_agree_with_what_was_generated(engine: Embedded) -> None:
    before = engine.metrics()
    answers = engine.generate_many(4, output=40)
    after = engine.metrics()
    series = (
        f'sglang:generation_tokens_total{{engine_type="unified",is_streaming="false",{MODEL[22:]}}}'
    )
    assert after[series] - before[series] == 160
    calls = sum(answer.json()["meta_info"]["spec_verify_ct"] for answer in answers)
    name = f"sglang:spec_verify_calls_total{{{MODEL}}}"
    assert after[name] - before[name] == calls
    decode = next(key for key in after if key.startswith("sglang:realtime") and '"decode"' in key)
    assert after[decode] - before[decode] == 160 - 4


def test_dp_replicas_have_series_of_their_own() -> None:
    with running("--dp", "2") as engine:
        text = engine.http.get("/metrics").text
    assert 'dp_rank="0"' in text
    assert 'dp_rank="1"' in text
