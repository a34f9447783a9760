"""One meaning for accept length, accept rate and draft counts."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.acceptance import (
    RateFormula,
    accept_length,
    accept_length_of_tokens,
    accept_rate,
    rate_formula,
    read_request,
)
from controlplane.loads import read_loads
from controlplane.metrics import read_metrics
from controlplane.prometheus_text import MetricsError

SAMPLES = Path(__file__).parent / "samples"


@pytest.mark.parametrize(
    ("version", "formula"),
    [
        ("0.5.3", RateFormula.UNKNOWN),
        ("0.5.4", RateFormula.TOKENS_OVER_WIDTH),
        ("0.5.10.post1", RateFormula.TOKENS_OVER_WIDTH),
        ("0.5.11", RateFormula.DRAFTS_OVER_PROPOSED),
        ("0.5.17", RateFormula.DRAFTS_OVER_PROPOSED),
        ("0.5.23", RateFormula.DRAFTS_OVER_PROPOSED),
        ("0.0.0.dev1+gabcdef", RateFormula.UNKNOWN),
        ("main", RateFormula.UNKNOWN),
    ],
)
def test_the_accept_rate_formula_goes_by_the_version(version: str, formula: RateFormula) -> None:
    assert rate_formula(version) is formula


@pytest.mark.parametrize(
    ("sample", "version"),
    [
        ("h200-0.5.17/chain-acc2.0_metrics.txt", "0.5.17"),
        ("cpu-0.5.23/spec-load.metrics.txt", "0.5.23"),
        ("cpu-0.5.23/spec-idle.metrics.txt", "0.5.23"),
    ],
)
def test_present_versions_export_accepted_over_proposed_drafts(sample: str, version: str) -> None:
    (replica,) = read_metrics((SAMPLES / sample).read_text()).replicas
    assert replica.accept_rate is not None
    assert replica.accept_length is not None
    rate = accept_rate(replica.accept_rate, version, 3, 4)
    assert not rate.flagged
    assert rate.value == pytest.approx((replica.accept_length - 1) / 3)


def test_the_same_accept_length_is_another_rate_on_another_tier() -> None:
    # Two drafts less are proposed at one step: 2.0 tokens per step are 1/3 there and 1 here.
    chain = read_loads((SAMPLES / "h200-0.5.17/chain-acc2.0_v1_loads.json").read_text())
    one_step = read_loads(
        (SAMPLES / "h200-0.5.17/adaptivefix-acc2.0-fa3_v1_loads.json").read_text()
    )
    rates = []
    for loads in (chain, one_step):
        speculative = loads.replicas[0].speculative
        assert speculative is not None
        assert speculative.accept_length == 2.0
        rates.append(speculative.accept_rate)
    assert rates == [pytest.approx(1 / 3), 1.0]


@pytest.mark.constructed
def test_an_old_rate_above_one_is_flagged_and_not_used() -> None:
    # Three drafts and the bonus token over three steps.
    rate = accept_rate(4 / 3, "0.5.3", 3, 4)
    assert rate.flagged
    assert rate.value is None
    assert rate.raw == pytest.approx(4 / 3)


@pytest.mark.constructed
def test_a_rate_above_one_is_flagged_whatever_the_version() -> None:
    assert accept_rate(1.01, "0.5.23", 3, 4).flagged


@pytest.mark.constructed
def test_an_old_rate_that_counts_the_bonus_is_converted() -> None:
    # 0.5.10: (1.5 drafts + 1 bonus) / 4 places; by our meaning 1.5 of 3 drafts.
    assert accept_rate(2.5 / 4, "0.5.10", 3, 4).value == pytest.approx(0.5)
    # Nothing accepted reads 1/4 there, all accepted reads 1.
    assert accept_rate(0.25, "0.5.10", 3, 4).value == pytest.approx(0.0)
    assert accept_rate(1.0, "0.5.10", 3, 4).value == pytest.approx(1.0)


@pytest.mark.constructed
def test_an_old_rate_of_a_tree_is_not_guessed() -> None:
    assert accept_rate(0.2, "0.5.10", 2, 16).value is None
    assert accept_rate(0.2, "0.5.23", 2, 16).value == 0.2


def test_no_rate_without_drafts() -> None:
    assert accept_rate(0.0, "0.5.23", 0, 1).value is None
    assert accept_rate(float("nan"), "0.5.23", 3, 4).value is None


def test_counts_with_and_without_the_bonus_token_give_one_accept_length() -> None:
    # One request: 256 tokens in 128 verify steps, of which 128 were accepted drafts.
    request = read_request(
        (SAMPLES / "h200-0.5.17/chain-acc2.0_generate_meta_info.json").read_text()
    )
    assert request.completion_tokens == 256
    assert request.spec_num_correct_drafts == request.spec_verify_ct == 128
    assert request.length == 2.0
    assert accept_length(128, 128) == accept_length_of_tokens(256, 128) == 2.0
    assert request.rate == pytest.approx(1 / 3)


def test_no_verify_step_means_no_accept_length() -> None:
    assert accept_length(0, 0) is None
    assert accept_length_of_tokens(0, 0) is None
    plain = read_request('{"completion_tokens": 12}')
    assert plain.length is None
    assert plain.rate is None


@given(st.text())
def test_any_meta_info_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(MetricsError):
        read_request(text)


@given(
    st.floats(min_value=0, max_value=1),
    st.sampled_from(["0.5.3", "0.5.4", "0.5.10", "0.5.11", "0.5.23"]),
    st.integers(1, 8),
)
def test_a_rate_that_is_told_lies_between_zero_and_one(raw: float, version: str, k: int) -> None:
    value = accept_rate(raw, version, k, k + 1).value
    assert value is None or 0.0 <= value <= 1.0
