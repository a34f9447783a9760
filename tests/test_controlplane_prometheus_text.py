"""Choosing and reading the needed lines of a scrape."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.prometheus_text import MetricsError, read_series

SAMPLES = Path(__file__).parent / "samples"
CHAIN = (SAMPLES / "h200-0.5.17/chain-acc2.0_metrics.txt").read_text()
LOADS_PROM = (SAMPLES / "cpu-0.5.23/spec-load.loads.prom.txt").read_text()
BUILT = (SAMPLES / "constructed-0.5.23/tp2.metrics.txt").read_text()


def test_only_the_wanted_families_are_parsed() -> None:
    found = read_series(CHAIN, {"num_running_reqs", "realtime_tokens_total"})
    assert set(found) == {"num_running_reqs", "realtime_tokens_total"}
    assert found["num_running_reqs"][0].value == 64.0
    # A line nobody asked for is not even looked at, so it cannot break the scrape either.
    assert read_series("sglang:other{ 1\n" + CHAIN, {"num_running_reqs"}).keys() == {
        "num_running_reqs"
    }


def test_both_prefixes_are_accepted() -> None:
    assert read_series(CHAIN, {"num_used_tokens"})["num_used_tokens"][0].value == 14208.0
    assert read_series(LOADS_PROM, {"num_used_tokens"})["num_used_tokens"][0].value > 0


def test_a_family_under_both_prefixes_is_taken_once() -> None:
    both = 'sglang_num_running_reqs{dp_rank="0"} 7\n' + CHAIN
    assert [s.value for s in read_series(both, {"num_running_reqs"})["num_running_reqs"]] == [64.0]


def test_neither_prefix_present_is_metric_not_found_and_never_zero() -> None:
    other = CHAIN.replace("sglang:", "vllm:")
    assert read_series(other, {"num_running_reqs", "realtime_tokens_total"}) == {}


@pytest.mark.constructed
def test_created_series_beside_a_total_are_ignored() -> None:
    assert "sglang:realtime_tokens_created{" in BUILT
    values = [
        s.value for s in read_series(BUILT, {"realtime_tokens_total"})["realtime_tokens_total"]
    ]
    assert values == [500.0, 4000.0, 500.0, 4000.0]
    assert read_series(BUILT, {"realtime_tokens"}) == {}


def test_a_name_does_not_bring_longer_names_along() -> None:
    found = read_series(CHAIN, {"generation_tokens_histogram", "queue_time_seconds"})
    assert found == {}


def test_a_value_that_is_no_number_is_none() -> None:
    assert "sglang:fwd_occupancy" in CHAIN
    series = read_series(CHAIN, {"fwd_occupancy"})["fwd_occupancy"]
    assert [one.value for one in series] == [None]


def test_a_scrape_that_was_cut_off_is_refused_not_read_by_halves() -> None:
    whole = CHAIN[: CHAIN.rindex("sglang:realtime_tokens_total")]
    read_series(whole, {"realtime_tokens_total"})
    with pytest.raises(MetricsError, match="cut off"):
        read_series(CHAIN[:-4], {"realtime_tokens_total"})  # "28724.0" would read as 2872


def test_a_malformed_wanted_line_is_named() -> None:
    with pytest.raises(MetricsError, match="cannot be read"):
        read_series('sglang:num_running_reqs{tp_rank="0} 1\n', {"num_running_reqs"})


@given(st.text())
def test_any_text_is_read_or_refused_as_metrics(text: str) -> None:
    with contextlib.suppress(MetricsError):
        read_series(text, {"num_running_reqs"})


@given(st.text(alphabet='sglang:_{}"=,0123456789 .eE+-\\\n#\t\x00é', max_size=80))
def test_any_rest_of_a_wanted_line_is_read_or_refused(rest: str) -> None:
    try:
        found = read_series(f"sglang:num_running_reqs{rest}\n", {"num_running_reqs"})
    except MetricsError:
        return
    assert set(found) <= {"num_running_reqs"}
