"""The step-cost table of a setup: from runs, merged by age and weight, for one key only."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.bench_records import BenchPoint
from controlplane.bench_table import (
    HALF_LIFE_MS,
    MOST_SAMPLES,
    Contribution,
    KeyDiffersError,
    merged,
    of_runs,
    of_stored,
    text,
)
from controlplane.setup_key import setup_key
from engine_patch.contract import Identity, Versions
from engine_patch.costs import ContextBand, StepCost
from store.db import Store
from store.observations import EngineFacts, PluginStatus

NOW = 1_800_000_000_000
KEY = "SGLang-0.5.23_m_H200x1_fa3_tp1-dp1_0123456789ab"


def _cost(mean: float, samples: int = 100, **changes: object) -> StepCost:
    fields = {"tier": "s3k1d4", "bucket": 8, "samples": samples, "mean_ms": mean}
    return StepCost.model_validate(fields | changes)


def _source(cost: StepCost, name: str = "live", age_ms: int = 0, key: str = KEY) -> Contribution:
    return Contribution(key, name, NOW - age_ms, (cost,))


def test_a_runs_step_time_is_batch_times_tokens_over_speed() -> None:
    run = BenchPoint(
        tier="s3k1d4", concurrency=16, tok_s=3200, accept_length=2.0, seconds=10, input_len=128,
        output_len=256,
    )  # fmt: skip
    (cost,) = of_runs([run])
    assert (cost.tier, cost.bucket, cost.band) == ("s3k1d4", 16, ContextBand.UP_TO_1K)
    assert cost.mean_ms == pytest.approx(10.0)
    assert cost.samples == 1000
    assert cost.tokens_per_step == pytest.approx(32)


def test_repeats_give_the_variance_and_replicas_their_share_of_the_batch() -> None:
    runs = [
        BenchPoint(tier="off", concurrency=32, tok_s=speed, repeat=repeat)
        for repeat, speed in enumerate((3200.0, 3000.0), 1)
    ]
    (cost,) = of_runs(runs, dp_size=2)
    assert cost.bucket == 16
    assert cost.var_ms2 > 0
    assert cost.mean_ms == pytest.approx((10.0 + 32000 / 3000) / 2)


def test_what_has_no_step_time_brings_none() -> None:
    points = [
        BenchPoint(tier="plain", concurrency=8, tok_s=100),
        BenchPoint(tier="s3k1d4", concurrency=8, tok_s=100),
        BenchPoint(tier="s3k1d4", concurrency=8, tok_s=100, accept_length=2, client_bound=True),
    ]
    assert of_runs(points) == ()


def test_sources_of_equal_age_count_by_their_samples() -> None:
    table = merged(KEY, [_source(_cost(10, 300)), _source(_cost(14, 100), "bench")], NOW)
    (cost,) = table.costs
    assert cost.mean_ms == pytest.approx(11.0)
    assert cost.samples == 400
    assert cost.var_ms2 == pytest.approx(3.0), "they disagree, so the spread is theirs"
    assert {origin.source: origin.weight for origin in table.origins} == pytest.approx(
        {"live": 0.75, "bench": 0.25}
    )


def test_a_source_loses_half_its_weight_in_a_week() -> None:
    old = _source(_cost(20, 100), "bench", age_ms=HALF_LIFE_MS)
    table = merged(KEY, [_source(_cost(10, 100)), old], NOW)
    assert [round(origin.weight, 3) for origin in table.origins] == [0.667, 0.333]
    assert table.costs[0].mean_ms == pytest.approx(13.333, abs=0.001)


def test_a_source_that_ran_for_ever_does_not_drown_a_new_one() -> None:
    table = merged(KEY, [_source(_cost(10, 10**9)), _source(_cost(20, MOST_SAMPLES))], NOW)
    assert table.costs[0].mean_ms == pytest.approx(15.0)


def test_interpolated_cells_give_way_to_measured_ones_and_stay_where_there_are_none() -> None:
    guess = _cost(99, 0, measured=False)
    only = _cost(7, 0, measured=False, bucket=16)
    table = merged(KEY, [Contribution(KEY, "live", NOW, (guess, only)), _source(_cost(10))], NOW)
    by_bucket = {cost.bucket: cost for cost in table.costs}
    assert by_bucket[8].mean_ms == pytest.approx(10)
    assert by_bucket[8].measured
    assert (by_bucket[16].mean_ms, by_bucket[16].measured, by_bucket[16].samples) == (7, False, 0)


def test_another_setup_is_refused_with_what_differs() -> None:
    other = KEY.replace("fa3", "triton")
    with pytest.raises(KeyDiffersError, match="attention backend: triton, here fa3") as caught:
        merged(KEY, [_source(_cost(10), key=other)], NOW)
    assert "run specdeck bench" in str(caught.value)


def test_a_difference_in_the_digest_alone_is_named_too() -> None:
    facts = EngineFacts(
        boot_id="b",
        plugin=PluginStatus.PRESENT,
        versions=Versions(engine="SGLang", engine_version="0.5.23", plugin_version="1"),
        identity=Identity(model="a_b/c_d", max_running_requests=48),
    )
    here = setup_key(facts)
    assert facts.identity is not None
    capped = facts.identity.model_copy(update={"max_running_requests": 256})
    there = setup_key(facts.model_copy(update={"identity": capped}))
    assert here != there
    with pytest.raises(KeyDiffersError, match=r"details .*cap on running requests"):
        merged(here, [_source(_cost(10), key=there)], NOW)


def test_nothing_to_merge_is_refused() -> None:
    with pytest.raises(ValueError, match="no step costs"):
        merged(KEY, [], NOW)


def test_a_table_survives_the_store_and_its_next_merge(tmp_path: Path) -> None:
    first = merged(KEY, [_source(_cost(10), age_ms=HALF_LIFE_MS)], NOW)
    with Store.open(tmp_path / "s.db") as store:
        store.write([first]).result(10)
        stored = store.cost_table(KEY)
    assert stored is not None
    assert (stored.costs, stored.origins) == (first.costs, first.origins)
    second = merged(KEY, [of_stored(stored), _source(_cost(20), "bench")], NOW)
    # 100 samples a week old count 50 against 100 fresh ones, and are not discounted twice.
    assert second.costs[0].mean_ms == pytest.approx(50 / 3)
    at_once = merged(
        KEY, [_source(_cost(10), age_ms=HALF_LIFE_MS), _source(_cost(20), "bench")], NOW
    )
    assert second.costs[0].mean_ms == pytest.approx(at_once.costs[0].mean_ms)
    ages = {origin.source: NOW - origin.at_utc_ms for origin in second.origins}
    assert ages == {"live": HALF_LIFE_MS, "bench": 0}, "sources keep their own age"


def test_merging_again_and_again_does_not_pile_up_sources() -> None:
    table = merged(KEY, [_source(_cost(10))], NOW)
    for day in range(1, 200):
        now = NOW + day * 86_400_000
        fresh = Contribution(KEY, f"bench {day}", now, (_cost(10),))
        table = merged(KEY, [of_stored(table), fresh], now)
    assert len(table.origins) < 60
    assert sum(origin.weight for origin in table.origins) == pytest.approx(1)


def test_every_cell_shows_its_age_and_sources() -> None:
    shown = text(merged(KEY, [_source(_cost(10), "bench x", age_ms=HALF_LIFE_MS)], NOW), NOW)
    assert KEY in shown
    assert "bench x 100 % 7.0 d old" in shown
