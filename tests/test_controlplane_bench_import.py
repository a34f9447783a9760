"""Results of other tools.  Their files here are constructed: see the samples' README."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controlplane.bench_analysis import analyse
from controlplane.bench_import import import_results
from controlplane.bench_read import BenchFileError

SAMPLES = Path(__file__).parent / "samples/bench-constructed"
RECORDED = Path(__file__).parent / "samples/bench-0.5.23"


@pytest.mark.constructed
def test_sglangs_own_benchmark_says_the_tier_and_the_cap_by_itself() -> None:
    file = import_results([SAMPLES / "sglang-plain.jsonl"], [SAMPLES / "sglang-chain.jsonl"])
    assert {run.tier for run in file.points} == {"plain", "s3k1d4"}
    run = next(run for run in file.points if run.tier == "s3k1d4" and run.concurrency == 16)
    assert (run.tok_s, run.accept_length, run.cap, run.backend) == (4400.0, 2.1, 256, "fa3")
    assert (run.input_len, run.output_len, run.engine_version) == (128, 256, "SGLang 0.5.23")
    assert run.tpot_s == pytest.approx(16 / 4400, abs=1e-5)
    found = analyse(file)
    assert (found.crossover.low, found.crossover.high) == (16, 128)


def test_recorded_results_of_sglangs_own_benchmark_are_read_and_judged() -> None:
    file = import_results([RECORDED / "plain.jsonl"], [RECORDED / "chain.jsonl"])
    assert [(run.tier, run.concurrency) for run in file.points] == [
        (tier, clients) for tier in ("plain", "s3k1d4") for clients in (1, 4, 8)
    ]
    for run in file.points:
        assert run.tok_s == pytest.approx(run.output_len * run.requests / run.seconds)
        assert (run.cap, run.input_len, run.output_len, run.failed) == (16, 32, 48, 0)
        assert (run.backend, run.engine_version) == ("torch_native", "SGLang 0.5.23")
        assert run.not_comparable == ()
        assert run.tpot_s is not None
        assert (run.accept_length is None) == (run.tier == "plain")
        assert run.accept_length is None or 1.5 < run.accept_length < 1.6
    assert [point.concurrency for point in analyse(file).points] == [1, 4, 8]


@pytest.mark.constructed
def test_a_recorded_result_of_aiperf_tells_its_concurrency_and_whether_it_was_held() -> None:
    paths = [RECORDED / "aiperf-0.13.0-4.json", RECORDED / "aiperf-0.13.0-rate.json"]
    held, open_loop = import_results([], paths, tier="s3k1d4").points
    assert (held.concurrency, held.requests, held.failed, held.not_comparable) == (4, 12, 0, ())
    assert held.tok_s == pytest.approx(566 / 0.8489, rel=0.02)
    assert held.tpot_s == pytest.approx(0.002935, rel=1e-3)
    assert (held.input_len, held.output_len) == (32, 47)
    assert open_loop.not_comparable == (
        f"requests came at 20 per second: concurrency {open_loop.concurrency} was not held",
    )


def test_a_recorded_result_of_guidellm_has_the_time_per_token_without_the_first() -> None:
    (run,) = import_results([], [RECORDED / "guidellm-0.8.1.json"], tier="s3k1d4").points
    assert (run.concurrency, run.requests, run.failed, run.output_len) == (4, 12, 0, 32)
    assert run.not_comparable == ()
    metrics = json.loads((RECORDED / "guidellm-0.8.1.json").read_text())["benchmarks"][0]["metrics"]
    latency = metrics["request_latency"]["successful"]["mean"]
    first = metrics["time_to_first_token_ms"]["successful"]["mean"] / 1000
    assert run.tpot_s == pytest.approx((latency - first) / 31, rel=0.02)


@pytest.mark.constructed
def test_results_under_the_wrong_heading_are_refused() -> None:
    with pytest.raises(BenchFileError, match="results of s3k1d4, not of a plain server"):
        import_results([SAMPLES / "sglang-chain.jsonl"], [])
    with pytest.raises(BenchFileError, match="results of a plain server, not of s1k1d2"):
        import_results([], [SAMPLES / "sglang-plain.jsonl"], tier="s1k1d2")


@pytest.mark.constructed
def test_aiperf_needs_the_tier_and_brings_the_rest() -> None:
    plain, spec = SAMPLES / "aiperf-plain-16.json", SAMPLES / "aiperf-spec-16.json"
    with pytest.raises(BenchFileError, match="give it with --tier"):
        import_results([plain], [spec])
    file = import_results([plain], [spec], tier="s3k1d4")
    (point,) = analyse(file).points
    assert (point.concurrency, point.speedup) == (16, pytest.approx(1.5))
    assert point.accept_length is None
    assert point.floor is None


@pytest.mark.constructed
def test_guidellm_brings_several_levels_and_open_ones_are_not_compared() -> None:
    file = import_results(
        [SAMPLES / "guidellm-plain.json"], [SAMPLES / "guidellm-spec.json"], tier="s3k1d4"
    )
    found = analyse(file)
    assert [point.concurrency for point in found.points] == [1, 16]
    assert {gone.concurrency for gone in found.not_comparable} == {14, 20}
    assert "was not held" in found.not_comparable[0].reasons[0]


@pytest.mark.constructed
def test_files_given_twice_are_repeats() -> None:
    path = SAMPLES / "sglang-plain.jsonl"
    file = import_results([path, path], [])
    assert sorted(run.repeat for run in file.points if run.concurrency == 16) == [1, 2]


def _changed(tmp_path: Path, **changes: object) -> Path:
    row = json.loads((SAMPLES / "sglang-plain.jsonl").read_text().splitlines()[0])
    path = tmp_path / "changed.jsonl"
    path.write_text(json.dumps(row | changes) + "\n")
    return path


@pytest.mark.constructed
def test_a_run_at_a_rate_did_not_hold_its_concurrency(tmp_path: Path) -> None:
    file = import_results([_changed(tmp_path, request_rate=4.0)], [])
    assert "4 per second" in file.points[0].not_comparable[0]


@pytest.mark.constructed
def test_an_unlimited_run_needs_the_concurrency(tmp_path: Path) -> None:
    path = _changed(tmp_path, max_concurrency=None)
    with pytest.raises(BenchFileError, match=r"changed\.jsonl:1:1: .*--concurrency"):
        import_results([path], [])
    assert import_results([path], [], concurrency=32).points[0].concurrency == 32


@pytest.mark.constructed
def test_mean_lengths_that_hardly_differ_are_the_same_load(tmp_path: Path) -> None:
    path = _changed(tmp_path, total_output_tokens=4 * 254)
    file = import_results([SAMPLES / "sglang-plain.jsonl", path], [])
    assert {run.output_len for run in file.points} == {256}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"output_throughput": 0}, "tok_s"),
        ({"output_throughput": float("nan")}, "tok_s"),
        ({"output_throughput": "fast"}, "tok_s"),
        ({"max_concurrency": -1}, "concurrency"),
        ({"accept_length": 2.0}, "at most 1 tokens"),
    ],
)
@pytest.mark.constructed
def test_impossible_figures_are_refused_with_their_place(
    tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    with pytest.raises(BenchFileError, match=rf"changed\.jsonl:1:1: .*{words}"):
        import_results([_changed(tmp_path, **changes)], [])


@pytest.mark.constructed
def test_what_no_tool_wrote_is_refused_with_what_was_expected(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"hello": 1}')
    with pytest.raises(BenchFileError, match="not understood: expected output_throughput"):
        import_results([path], [])
