"""What the load generator computes from its requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.load_records import Quantiles, RequestRecord, own, steady_window, summarise


def _request(
    client: int,
    sent: float,
    done: float,
    tokens: int = 10,
    *,
    first: float | None = None,
    accept: float | None = None,
    steps: int | None = None,
    error: str = "",
) -> RequestRecord:
    return RequestRecord(
        phase=0,
        client=client,
        prompt_tokens=8,
        due_s=sent,
        sent_s=sent,
        first_s=first,
        done_s=done,
        output_tokens=0 if error else tokens,
        accept_length=accept,
        verify_steps=steps,
        error=error,
    )


def test_time_per_token_is_tokens_over_time_after_the_first_one() -> None:
    record = _request(0, 1.0, 3.5, tokens=11, first=1.5)
    assert record.ttft_s == pytest.approx(0.5)
    assert record.tpot_s == pytest.approx(0.2)
    assert record.e2e_s == pytest.approx(2.5)


def test_without_streaming_neither_first_token_nor_time_per_token_is_known() -> None:
    record = _request(0, 1.0, 3.0)
    assert record.ttft_s is None
    assert record.tpot_s is None
    assert _request(0, 1.0, 3.0, tokens=1, first=2.0).tpot_s is None


def test_accept_length_is_weighted_by_verify_steps_and_ignores_requests_without_any() -> None:
    records = [
        _request(0, 0, 1, accept=3.0, steps=10),
        _request(0, 1, 2, accept=1.0, steps=30),
        _request(0, 2, 3),
    ]
    assert summarise(0, 1, records, complete=True).accept_length == pytest.approx(1.5)
    assert summarise(0, 1, records[2:], complete=True).accept_length is None


def test_failed_requests_count_as_failed_and_bring_no_tokens() -> None:
    phase = summarise(0, 1, [_request(0, 0, 2), _request(0, 2, 4, error="x")], complete=True)
    assert (phase.requests, phase.failed, phase.output_tokens) == (2, 1, 10)
    assert phase.tok_s == pytest.approx(10 / 4)
    assert phase.e2e_s is not None
    assert phase.e2e_s.samples == 1


def test_the_steady_window_leaves_out_ramp_and_tail() -> None:
    # Two clients, three requests of one second each; the second starts half a second late.
    records = [_request(0, t, t + 1) for t in (0.0, 1.0, 2.0)]
    records += [_request(1, t + 0.5, t + 1.5) for t in (0.0, 1.0, 2.0)]
    window = steady_window(2, records)
    assert window is not None
    assert (window.start_s, window.end_s) == (1.5, 2.5)
    assert window.tok_s == pytest.approx(20.0)


def test_a_client_that_never_finished_leaves_no_steady_window() -> None:
    assert steady_window(2, [_request(0, 0, 1), _request(0, 1, 2)]) is None
    assert steady_window(1, [_request(0, 0, 1)]) is None


def test_the_sliver_between_two_rounds_in_step_is_no_steady_window() -> None:
    records = [_request(0, 0.0, 1.0), _request(1, 0.0, 1.001)]
    records += [_request(0, 1.0, 2.0), _request(1, 1.0011, 2.0)]
    assert steady_window(2, records) is None


@given(
    st.integers(1, 6),
    st.lists(st.floats(0.1, 5.0), min_size=1, max_size=30),
    st.integers(1, 100),
)
def test_clients_of_one_speed_show_that_speed_whatever_their_lengths(
    clients: int, lengths: list[float], speed: int
) -> None:
    records = []
    for client in range(clients):
        at = 0.0
        for length in lengths:
            tokens = max(1, round(length * speed))
            records.append(_request(client, at, at + tokens / speed, tokens=tokens))
            at += tokens / speed
    window = steady_window(clients, records)
    if window is not None:
        assert window.tok_s == pytest.approx(clients * speed)


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_quantiles_are_values_that_occurred(values: list[float]) -> None:
    quantiles = Quantiles.of(values)
    assert quantiles is not None
    assert {quantiles.p50, quantiles.p99} <= set(values)
    assert quantiles.p50 <= quantiles.p99 <= quantiles.most == max(values)
    assert quantiles.samples == len(values)


def test_quantiles_of_nothing_are_missing() -> None:
    assert Quantiles.of([]) is None


def test_a_generator_that_was_busy_or_late_says_that_it_was_the_bottleneck() -> None:
    assert not own(1.0, 10.0, [0.001] * 100).bottleneck
    assert own(9.5, 10.0, [0.001] * 100).bottleneck
    assert own(1.0, 10.0, [0.001] * 90 + [0.2] * 10).bottleneck
