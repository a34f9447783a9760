"""The facts of SGLang's ``/metrics``, each on a raw scrape where there is one."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controlplane.metrics import FAMILIES, EngineMetrics, ReplicaMetrics, read_metrics
from controlplane.prometheus_text import MetricsError

SAMPLES = Path(__file__).parent / "samples"


def text(name: str) -> str:
    return (SAMPLES / name).read_text()


def only(name: str) -> ReplicaMetrics:
    (replica,) = read_metrics(text(name)).replicas
    return replica


CHAIN = "h200-0.5.17/chain-acc2.0_metrics.txt"
LOAD = "cpu-0.5.23/spec-load.metrics.txt"
JUST_IDLE = "cpu-0.5.23/spec-just-idle.metrics.txt"
IDLE = "cpu-0.5.23/spec-idle.metrics.txt"
FRESH = "cpu-0.5.23/spec-fresh.metrics.txt"
PLAIN = "cpu-0.5.23/plain-load.metrics.txt"
TP2 = "constructed-0.5.23/tp2.metrics.txt"
DP2 = "constructed-0.5.23/dp2.metrics.txt"
PRIORITY = "constructed-0.5.23/priority.metrics.txt"


def test_a_scrape_of_0_5_17_is_read_whole() -> None:
    assert only(CHAIN) == ReplicaMetrics(
        dp_rank=0,
        running=64,
        queued=0,
        kv_capacity=861668,
        kv_used=14208,
        kv_evictable=38889,
        decode_tokens=28724,
        prefill_tokens=27779,
        decode_steps=1546,
        graph_misses=0,
        retractions=None,
        gen_throughput=6991.563321506231,
        sum_seq_lens=13888.0,
        accept_length=2.0,
        accept_rate=0.3333333333333333,
        num_steps=3,
        num_draft_tokens=4,
    )


def test_a_scrape_of_0_5_23_is_read_with_the_same_words() -> None:
    replica = only(LOAD)
    assert (replica.running, replica.queued, replica.num_steps) == (8, 0, 3)
    assert replica.accept_length == 1.64375
    assert replica.decode_tokens == 3716


def test_decode_tokens_come_from_the_counter_that_moves_with_every_step() -> None:
    # 8 requests were running: their tokens are in the realtime counter and not in the other one,
    # which only moves when a request finishes.
    metrics = read_metrics(text(LOAD))
    assert metrics.replicas[0].decode_tokens == 3716
    assert metrics.finished_tokens == 1600
    assert metrics.finished_verify_calls == 913
    later = read_metrics(text(JUST_IDLE))
    assert later.replicas[0].decode_tokens == 13576
    assert later.finished_tokens == 13600  # all finished; the first token of each is prefill's


def test_gauges_keep_their_value_while_nothing_runs() -> None:
    # 1 s and 35 s after the last request: the accept length of a past load still stands there.
    just_idle, idle = only(JUST_IDLE), only(IDLE)
    assert just_idle.running == idle.running == 0
    assert just_idle.accept_length == idle.accept_length == pytest.approx(1.8385, abs=1e-4)
    assert just_idle.num_steps == idle.num_steps == 3
    assert just_idle.decode_tokens == idle.decode_tokens


def test_kv_used_and_evictable_are_apart_and_fill_the_capacity_with_the_free_ones() -> None:
    replica = only(CHAIN)
    assert replica.kv_capacity is not None
    assert replica.kv_used is not None
    assert replica.kv_evictable is not None
    free = 808571  # sglang:kv_available_tokens of this scrape
    assert replica.kv_used + replica.kv_evictable + free == replica.kv_capacity
    idle = only(IDLE)
    assert idle.kv_used == 0
    assert idle.kv_evictable == 13655


def test_a_missing_family_is_none_and_named_never_zero() -> None:
    kept = "\n".join(line for line in text(CHAIN).splitlines() if "realtime_tokens" not in line)
    metrics = read_metrics(kept + "\n")
    assert metrics.replicas[0].decode_tokens is None
    assert "realtime_tokens_total" in metrics.missing
    assert only(CHAIN).retractions is None
    assert "num_retracted_requests_total" in read_metrics(text(CHAIN)).missing


def test_a_text_without_sglang_metrics_tells_nothing() -> None:
    assert read_metrics("") == EngineMetrics(replicas=(), missing=tuple(sorted(FAMILIES)))
    other = text(CHAIN).replace("sglang:", "vllm:")
    assert read_metrics(other).replicas == ()


def test_a_mode_that_has_not_happened_yet_is_zero_once_its_family_is_there() -> None:
    # Before the first decode step only prefill is counted.
    fresh = only(FRESH)
    assert fresh.prefill_tokens == 1
    assert fresh.decode_tokens == 0


def test_passes_without_a_graph_are_no_misses_on_a_server_without_graphs() -> None:
    assert only(CHAIN).graph_misses == 0
    cpu = only(LOAD)
    assert cpu.decode_steps == 399
    assert cpu.graph_misses is None


def test_a_plain_server_and_one_before_its_first_step_name_no_shape() -> None:
    # Both export the spec gauges, all zero; tier off would have one draft token.
    for name in (PLAIN, FRESH):
        replica = only(name)
        assert (replica.num_steps, replica.num_draft_tokens) == (0, 0)
        assert replica.accept_length == 0.0


def test_the_sglang_underscore_prefix_is_read_as_well() -> None:
    replica = only("cpu-0.5.23/spec-load.loads.prom.txt")
    assert (replica.running, replica.kv_capacity) == (8, 16384)


def test_the_accept_length_of_v1_loads_is_a_lifetime_mean_and_not_taken() -> None:
    name = "cpu-0.5.23/spec-load.loads.prom.txt"
    assert "sglang_spec_accept_length{" in text(name)
    assert only(name).accept_length is None


@pytest.mark.constructed
def test_tp_ranks_repeat_a_replica_and_are_taken_once() -> None:
    replica = only(TP2)
    assert text(TP2).count("sglang:num_running_reqs{") == 2
    assert (replica.running, replica.queued, replica.decode_tokens) == (12, 3, 4000)
    assert (replica.decode_steps, replica.graph_misses, replica.retractions) == (8, 1, 2)


@pytest.mark.constructed
def test_dp_ranks_are_replicas_of_their_own() -> None:
    first, second = read_metrics(text(DP2)).replicas
    assert (first.dp_rank, first.running, first.decode_tokens) == (0, 12, 4000)
    assert (second.dp_rank, second.running, second.decode_tokens) == (1, 5, 1700)
    assert (first.accept_length, second.accept_length) == (2.25, 2.75)


@pytest.mark.constructed
def test_with_priority_scheduling_the_empty_priority_is_the_total() -> None:
    replica = only(PRIORITY)
    assert text(PRIORITY).count("sglang:num_running_reqs{") == 3
    assert (replica.running, replica.queued) == (12, 5)


@pytest.mark.constructed
def test_a_breakdown_without_its_total_is_not_added_up() -> None:
    kept = "\n".join(line for line in text(PRIORITY).splitlines() if 'priority=""' not in line)
    metrics = read_metrics(kept + "\n")
    assert [replica.running for replica in metrics.replicas] == [None]


@pytest.mark.constructed
def test_counters_sharded_by_the_http_side_are_summed_over_all_their_labels() -> None:
    metrics = read_metrics(text(PRIORITY))
    assert metrics.finished_tokens == 100 + 40 + 60
    assert metrics.finished_verify_calls == 50 + 20 + 30


def test_two_starts_have_different_start_markers_and_one_start_keeps_its_own() -> None:
    spec = {read_metrics(text(name)).start_marker for name in (FRESH, LOAD, JUST_IDLE, IDLE)}
    assert len(spec) == 1
    others = {read_metrics(text(name)).start_marker for name in (PLAIN, CHAIN)}
    assert len(spec | others) == 3
    assert None not in spec | others


def test_a_server_without_start_up_times_has_no_marker() -> None:
    assert read_metrics("sglang:num_running_reqs 3\n").start_marker is None


@pytest.mark.parametrize(
    "line",
    [
        'sglang:num_running_reqs{dp_rank="one"} 3',
        'sglang:num_running_reqs{tp_rank="-1"} 3',
        "sglang:num_running_reqs -3",
    ],
)
def test_an_impossible_label_or_value_is_refused(line: str) -> None:
    with pytest.raises(MetricsError):
        read_metrics(line + "\n")


_line = st.builds(
    "sglang:{}{{{}}} {}".format,
    st.sampled_from(sorted(FAMILIES)),
    st.text(max_size=30)
    | st.builds(
        '{}="{}"'.format,
        st.sampled_from(["dp_rank", "tp_rank", "priority", "mode", "model_name"]),
        st.text(max_size=5),
    ),
    st.floats().map(str) | st.integers().map(str) | st.text(max_size=8),
)


@given(st.lists(_line, max_size=5).map("\n".join), st.booleans())
@example('sglang:realtime_tokens_total{mode="decode"} ' + "9" * 400, True)
@example('sglang:num_running_reqs{dp_rank="²"} 1', True)
def test_any_scrape_is_read_or_refused_as_metrics(lines: str, ended: bool) -> None:
    with contextlib.suppress(MetricsError):
        read_metrics(lines + "\n" * ended)


@given(st.data())
def test_any_beginning_of_a_real_scrape_is_refused_or_read_without_half_numbers(
    data: st.DataObject,
) -> None:
    whole = text(CHAIN)
    cut = data.draw(st.integers(min_value=0, max_value=len(whole)))
    try:
        metrics = read_metrics(whole[:cut])
    except MetricsError:
        assert not whole[:cut].endswith("\n")
        return
    for replica in metrics.replicas:
        assert replica.decode_tokens in (None, 0, 28724)
        assert replica.running in (None, 64)
