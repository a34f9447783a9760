"""The analysis on results whose answer is known: recorded, reported, and made up to be tricky."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.bench_analysis import analyse
from controlplane.bench_crossover import Sign
from controlplane.bench_findings import Analysis, Point, SeriesFindings
from controlplane.bench_read import read
from controlplane.bench_records import BenchFile, BenchPoint
from engine_patch.contract_words import OffKind

KIT = Path(__file__).parent / "samples/h200-0.5.17"


@pytest.fixture(scope="module")
def recorded() -> Analysis:
    return analyse(read(KIT / "bench.jsonl"))


def _series(found: Analysis, backend: str, tier: str, label: str) -> SeriesFindings:
    (one,) = [
        series
        for series in found.series
        if (series.backend, series.tier, series.label) == (backend, tier, label)
    ]
    return one


def _at(series: SeriesFindings, concurrency: int) -> Point:
    (point,) = [point for point in series.points if point.concurrency == concurrency]
    return point


# the recorded H200 rows


def test_the_chain_at_2_0_on_fa3_crosses_between_64_and_128_or_256(recorded: Analysis) -> None:
    band = _series(recorded, "fa3", "s3k1d4", "acc2.0").crossover
    assert band.low == 64
    assert band.high in (128, 256)


def test_the_chain_at_3_0_on_fa3_does_not_cross_and_says_so(recorded: Analysis) -> None:
    series = _series(recorded, "fa3", "s3k1d4", "acc3.0")
    assert (series.crossover.low, series.crossover.high) == (256, None)
    assert "no crossing seen up to 256" in series.crossover.reason
    assert "never seen to cost anything up to 256" in series.verdict


def test_the_chain_on_triton_crosses_earlier(recorded: Analysis) -> None:
    at_2 = _series(recorded, "triton", "s3k1d4", "acc2.0").crossover
    assert at_2.low is not None
    assert at_2.high is not None
    assert 4 <= at_2.low < at_2.high <= 64
    at_3 = _series(recorded, "triton", "s3k1d4", "acc3.0").crossover
    assert at_3.low is not None
    assert at_3.high is not None
    assert 16 <= at_3.low < at_3.high <= 64


def test_differences_within_the_measured_noise_are_ties(recorded: Analysis) -> None:
    # Two plain runs of this very point differ by 9 %, and the means by 6.5 %.
    point = _at(_series(recorded, "fa3", "s3k1d4", "acc2.0"), 128)
    assert point.sign is Sign.TIE
    assert point.interval is not None
    assert point.interval.low < 1 < point.interval.high
    # One run of the stock controller at zero steps, 2 % from plain.
    point = _at(_series(recorded, "fa3", "off", "adaptive"), 256)
    assert point.sign is Sign.TIE
    assert point.interval is None


def test_one_repeat_has_no_interval_and_is_not_resolved(recorded: Analysis) -> None:
    for series in recorded.series:
        for point in series.points:
            if min(point.repeats, point.base_repeats) == 1:
                assert point.interval is None
                assert point.resolution.startswith("not resolved")
            else:
                assert point.interval is not None


def test_the_floor_flags_what_is_slower_than_arithmetic_allows(recorded: Analysis) -> None:
    flagged = {
        (series.backend, series.tier, below.concurrency)
        for series in recorded.series
        for below in series.below_floor
    }
    assert ("triton", "s3k1d4", 256) in flagged
    assert {("triton", "off", 128), ("triton", "off", 256)} <= flagged
    assert not [one for one in flagged if one[1] == "s2k4d16"], "a tree of 16 may be this slow"
    assert not [one for one in flagged if one[0] == "fa3"]
    for below in recorded.below_floor:
        assert below.advice.startswith("below the floor: not speculation arithmetic, look at")


def test_the_true_off_is_equal_to_plain_where_upstreams_is_a_quarter() -> None:
    found = analyse(read(KIT / "off.jsonl"))
    keep = _series(found, "triton", "off", "keep")
    assert keep.off_kind is OffKind.PLAIN_PATH
    assert all(point.sign is not Sign.SLOWER for point in keep.points)
    assert not keep.below_floor
    upstream = _series(found, "triton", "off", "upstream-warm")
    assert [below.concurrency for below in upstream.below_floor] == [128, 256]
    assert "one-token verify" in upstream.verdict


def test_the_break_even_stands_beside_the_measured_accept_length(recorded: Analysis) -> None:
    for series in recorded.series:
        for point in series.points:
            if series.tier == "off":
                assert point.break_even is None
                continue
            assert point.accept_length is not None
            assert point.break_even is not None
            assert (point.break_even < point.accept_length) == (point.speedup > 1)


def test_a_file_of_several_setups_has_no_common_crossover(recorded: Analysis) -> None:
    assert (recorded.crossover.low, recorded.crossover.high) == (None, None)
    assert "4 setups" in recorded.crossover.reason


# the case that started the project


def _origin(at_one: list[tuple[float, float]]) -> Analysis:
    points = [
        BenchPoint(tier=tier, concurrency=at, tok_s=speed, repeat=repeat)
        for repeat, (spec, plain) in enumerate(at_one, 1)
        for tier, at, speed in (("s2k4d16", 1, spec), ("plain", 1, plain))
    ]
    points += [
        BenchPoint(tier="s2k4d16", concurrency=250, tok_s=354),
        BenchPoint(tier="plain", concurrency=250, tok_s=773),
    ]
    return analyse(BenchFile(points=tuple(points)))


def test_the_origins_crossover_is_a_band_and_never_a_point() -> None:
    found = _origin([(96, 93)])
    assert (found.crossover.low, found.crossover.high) == (None, 250)
    assert found.points[0].sign is Sign.TIE
    assert "not shown to pay at any measured load" in found.verdict
    assert "54 %" in found.verdict


def test_the_origins_quiet_point_is_not_resolved_when_repeats_overlap() -> None:
    found = _origin([(96, 93), (92, 95), (97, 91)])
    quiet = found.points[0]
    assert quiet.interval is not None
    assert quiet.interval.low < 1 < quiet.interval.high
    assert quiet.resolution == "not resolved: the interval includes 1"
    assert found.crossover.low is None


def test_the_origins_quiet_point_pays_when_repeats_are_apart_and_it_is_still_a_band() -> None:
    found = _origin([(96.0, 93.0), (96.2, 93.1), (95.9, 92.8)])
    assert found.points[0].resolution == "resolved"
    assert (found.crossover.low, found.crossover.high) == (1, 250)


def test_without_an_accept_length_there_is_no_floor_and_no_break_even() -> None:
    for point in _origin([(96, 93)]).points:
        assert (point.floor, point.below_floor, point.break_even) == (None, None, None)


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.floats(1, 1e5), st.floats(1, 1e5)), min_size=1, max_size=30
    )
)
@settings(max_examples=60, deadline=None)
def test_no_file_has_a_crossover_at_a_point(rows: list[tuple[int, float, float]]) -> None:
    points = [
        BenchPoint(tier=tier, concurrency=2**at, tok_s=speed, repeat=repeat)
        for repeat, (at, spec, plain) in enumerate(rows, 1)
        for tier, speed in (("s3k1d4", spec), ("plain", plain))
    ]
    band = analyse(BenchFile(points=tuple(points))).crossover
    assert band.low is None or band.low != band.high
    assert band.reason


@given(shuffler=st.randoms(use_true_random=False), factor=st.floats(1e-3, 1e3))
@settings(max_examples=25, deadline=None)
def test_neither_the_order_of_rows_nor_the_unit_of_speed_changes_the_answer(
    recorded: Analysis, shuffler: random.Random, factor: float
) -> None:
    file = read(KIT / "bench.jsonl")
    points = [
        run.model_copy(update={"tok_s": run.tok_s * factor})
        for run in file.points
        if run.backend == "fa3" and run.tier in ("plain", "s3k1d4")
    ]
    shuffler.shuffle(points)
    found = analyse(BenchFile(points=tuple(points)))
    series = _series(found, "fa3", "s3k1d4", "acc2.0")
    before = _series(recorded, "fa3", "s3k1d4", "acc2.0")
    assert series.crossover == before.crossover
    for point, was in zip(series.points, before.points, strict=True):
        assert point.speedup == pytest.approx(was.speedup)
        assert (point.interval is None) == (was.interval is None)
        if point.interval is not None and was.interval is not None:
            assert point.interval.low == pytest.approx(was.interval.low)
            assert point.interval.high == pytest.approx(was.interval.high)


# caps


def _capped(spec_cap: int | None, plain_cap: int | None) -> Analysis:
    points = [
        BenchPoint(tier=tier, concurrency=at, tok_s=speed * at, cap=cap)
        for at in (8, 32, 64, 128)
        for tier, speed, cap in (("s3k1d4", 15, spec_cap), ("plain", 10, plain_cap))
    ]
    return analyse(BenchFile(points=tuple(points)))


@pytest.mark.parametrize(("spec_cap", "plain_cap"), [(48, 256), (48, None), (256, 48)])
def test_unequal_caps_give_no_verdict_at_saturation_and_are_named(
    spec_cap: int | None, plain_cap: int | None
) -> None:
    found = _capped(spec_cap, plain_cap)
    assert [point.concurrency for point in found.points] == [8, 32], "below both caps"
    assert {gone.concurrency for gone in found.not_comparable} == {64, 128}
    for gone in found.not_comparable:
        assert "48" in gone.reasons[0]
    assert found.crossover.high is None
    assert "48" in found.crossover.reason
    assert "cap 48" in found.verdict
    assert "above that nothing is said" in found.verdict


def test_equal_caps_are_compared_up_to_the_cap() -> None:
    found = _capped(64, 64)
    assert [point.concurrency for point in found.points] == [8, 32, 64]
    assert found.series[0].limit == ""


def test_a_loss_below_unequal_caps_still_bounds_the_crossover() -> None:
    points = [
        BenchPoint(tier=tier, concurrency=at, tok_s=speed, cap=cap)
        for tier, at, speed, cap in (
            ("s3k1d4", 8, 150, 48),
            ("plain", 8, 100, 256),
            ("s3k1d4", 32, 150, 48),
            ("plain", 32, 300, 256),
            ("s3k1d4", 128, 150, 48),
            ("plain", 128, 900, 256),
        )
    ]
    found = analyse(BenchFile(points=tuple(points)))
    assert (found.crossover.low, found.crossover.high) == (8, 32)
    assert "cap 48" in found.verdict


# what may not be compared


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"client_bound": True}, "load generator"),
        ({"queued": 12.5}, "waited"),
        ({"graph_misses": 7}, "CUDA graph"),
        ({"retractions": 2}, "retracted"),
        ({"failed": 1}, "failed"),
        ({"not_comparable": ("real traffic ran beside it",)}, "real traffic"),
    ],
)
def test_a_run_that_is_not_the_servers_speed_is_taken_out_with_its_reason(
    fields: dict[str, object], word: str
) -> None:
    spoilt = BenchPoint.model_validate(
        {"tier": "s3k1d4", "concurrency": 8, "tok_s": 1, "repeat": 2} | fields
    )
    good = BenchPoint(tier="s3k1d4", concurrency=8, tok_s=150)
    plain = BenchPoint(tier="plain", concurrency=8, tok_s=100)
    found = analyse(BenchFile(points=(good, spoilt, plain)))
    (gone,) = found.not_comparable
    assert gone.repeats == (2,)
    assert word in gone.reasons[0]
    assert found.points[0].speedup == pytest.approx(1.5), "the good repeat still counts"
    alone = analyse(BenchFile(points=(spoilt, plain)))
    assert alone.points == ()
    assert alone.verdict.startswith("Nothing can be said")


def test_a_spoilt_yardstick_is_reported_and_its_point_left_out() -> None:
    found = analyse(
        BenchFile(
            points=(
                BenchPoint(tier="s3k1d4", concurrency=8, tok_s=150),
                BenchPoint(tier="plain", concurrency=8, tok_s=100, client_bound=True),
            )
        )
    )
    assert found.points == ()
    assert {gone.tier for gone in found.not_comparable} == {"plain", "s3k1d4"}


# the yardstick


def test_without_a_plain_server_off_is_the_yardstick_and_says_how_it_runs() -> None:
    off = BenchPoint(tier="off", off_kind=OffKind.ONE_TOKEN_VERIFY, concurrency=8, tok_s=100)
    found = analyse(BenchFile(points=(BenchPoint(tier="s3k1d4", concurrency=8, tok_s=150), off)))
    base = found.series[0].base
    assert base is not None
    assert (base.tier, base.off_kind) == ("off", OffKind.ONE_TOKEN_VERIFY)
    assert "compared with one-token verify on the same server" in found.verdict
    assert "no plain server was measured" in base.text


def test_plain_outranks_off_and_off_is_then_judged_itself() -> None:
    points = tuple(
        BenchPoint(tier=tier, concurrency=8, tok_s=speed)
        for tier, speed in (("s3k1d4", 150.0), ("off", 60.0), ("plain", 100.0))
    )
    found = analyse(BenchFile(points=points))
    assert {series.tier for series in found.series} == {"s3k1d4", "off"}
    assert all(series.base is not None and series.base.tier == "plain" for series in found.series)


def test_runs_of_different_backends_are_never_compared() -> None:
    points = (
        BenchPoint(tier="s3k1d4", concurrency=8, tok_s=150, backend="fa3"),
        BenchPoint(tier="plain", concurrency=8, tok_s=100, backend="triton"),
    )
    found = analyse(BenchFile(points=points))
    assert found.points == ()
    assert "Nothing can be said of s3k1d4" in found.verdict


def test_several_tiers_of_one_server_share_a_crossover_of_the_best_one() -> None:
    speeds = {"s2k4d16": (30, 20, 5, 2), "s1k1d2": (15, 14, 12, 7), "plain": (10, 10, 10, 10)}
    points = tuple(
        BenchPoint(tier=tier, concurrency=at, tok_s=speed * at)
        for tier, row in speeds.items()
        for at, speed in zip((1, 8, 32, 128), row, strict=True)
    )
    found = analyse(BenchFile(points=points))
    assert (found.crossover.low, found.crossover.high) == (32, 128)
    assert "switch it off somewhere between" in found.verdict


def test_a_curve_that_is_not_in_order_says_so() -> None:
    speeds = {"s3k1d4": (20, 5, 20), "plain": (10, 10, 10)}
    points = tuple(
        BenchPoint(tier=tier, concurrency=at, tok_s=speed)
        for tier, row in speeds.items()
        for at, speed in zip((1, 8, 32), row, strict=True)
    )
    found = analyse(BenchFile(points=points))
    assert "not in order" in found.crossover.reason
    assert "measure more" in found.verdict


def test_an_empty_file_says_that_nothing_was_compared() -> None:
    found = analyse(BenchFile())
    assert found.verdict.startswith("Nothing was compared")
    assert found.crossover.low is found.crossover.high is None
