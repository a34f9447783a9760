"""What the GPU measurements make of what they read: ratios, bounds, windows, swings, samples."""

from __future__ import annotations

import importlib
import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_patch.tier import Thresholds
from tests.embedded_process import running
from tests.engine.token_spread import compare, places

GPU = Path(__file__).parent / "benchmarks/gpu"


def _load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A script as a module, with its neighbours in reach as when it is run."""
    monkeypatch.syspath_prepend(str(GPU))
    spec = importlib.util.spec_from_file_location(f"gpu_{name}", GPU / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run(off_ms: float, auto: float) -> dict[str, Any]:
    return {
        "rounds": [
            {"tier": "plain", "clients": 1, "round_ms": 4.0},
            {"tier": "off", "clients": 1, "round_ms": off_ms},
            {"tier": "off", "clients": 2, "round_ms": None},
        ],
        "loops": [
            {"tier": "plain", "clients": 1, "tok_s": 100.0},
            {"tier": "s3k1d4", "clients": 1, "tok_s": 200.0},
            {"tier": "auto", "clients": 1, "tok_s": auto},
        ],
    }


def test_a_ratio_passes_by_median_and_lower_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    summary = _load("bounds", monkeypatch).summary
    rows = {row["ratio"]: row for row in summary([_run(4.0, 200), _run(4.0, 202), _run(4.1, 198)])}
    assert set(rows) == {"off / plain", "auto / best fixed", "auto / plain"}
    assert rows["off / plain"]["median"] == 1.0
    assert 0.95 < rows["off / plain"]["lower95"] < 1.0
    assert rows["off / plain"]["pass"]
    wide = {row["ratio"]: row for row in summary([_run(4.0, 200), _run(4.0, 240), _run(4.0, 160)])}
    assert wide["auto / best fixed"]["median"] == 1.0
    assert not wide["auto / best fixed"]["pass"]
    alone = summary([_run(4.0, 200)])
    assert all(row["lower95"] is None and row["pass"] is None for row in alone)


def test_automation_is_compared_without_the_noise_of_simulated_acceptance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One draw serves the whole batch, so a window's accept length says little about its tier."""

    def row(tier: str, ms: float, accept: float | None) -> dict[str, Any]:
        tokens = 128 * (accept or 1.0) / ms * 1000
        return {"tier": tier, "clients": 128, "round_ms": ms, "accept_length": accept,
                "tok_s": tokens}  # fmt: skip

    run: dict[str, list[dict[str, Any]]] = {
        "rounds": [
            row("off", 7.7, None), row("s1k1d2", 10.0, 1.70), row("s3k1d4", 16.7, 2.0),
            row("auto", 10.1, 1.45),
        ],
        "loops": [],
    }  # fmt: skip
    rows = {one["ratio"]: one for one in _load("bounds", monkeypatch).summary([run])}
    assert rows["auto / best fixed, clean windows"]["median"] == pytest.approx(0.844, abs=1e-3)
    stated = rows["auto / best fixed, stated acceptance"]["median"]
    assert stated == pytest.approx(10 / 10.1, abs=1e-4)
    run["rounds"][-1] = row("auto", 7.7, None)  # on off: the chain would have given a fifth more
    (worse,) = (
        one
        for one in _load("bounds", monkeypatch).summary([run])
        if one["ratio"] == "auto / best fixed, stated acceptance"
    )
    assert worse["median"] == pytest.approx((1 / 7.7) / (1.544 / 10), abs=1e-4)


def test_simulated_acceptance_keeps_its_mean_in_every_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[Any] = []
    registry = SimpleNamespace(
        HookRegistry=SimpleNamespace(register=lambda _, hook, __: found.append(hook)),
        HookType=SimpleNamespace(AROUND="around"),
    )
    monkeypatch.setitem(sys.modules, "sglang.srt.plugins.hook_registry", registry)
    monkeypatch.setenv("ACCEPT_POSITIONS", "0.544,0.544,0.544")
    monkeypatch.setattr(sys, "path", [str(GPU / "plugin"), *sys.path])
    importlib.import_module("accept_per_tier").register()
    (sample,) = found

    def drawn(mean: float, method: str, longest: int) -> str:
        return f"{mean} {method} {longest}"

    lengths = [sample(drawn, 2.0, "match-expected", 2) for _ in range(300)]
    assert set(lengths) == {1, 2}
    for begin in (0, 60, 150):
        assert sum(lengths[begin : begin + 150]) / 150 == pytest.approx(1.544, abs=1 / 150)
    # A tier that is not in the model is drawn as SGLang does.
    assert sample(drawn, 2.5, "match-expected", 17) == "2.5 match-expected 17"


def _window(tier: str, begin: int, end: int, every: int) -> dict[str, Any]:
    """A window of rounds that take 1 ms and 10 us for each token of context, told now and then."""
    times = [0.0]
    for context in range(128, 400):
        times.append(times[-1] + 0.001 + context * 1e-5)
    told = range(begin, end, every)
    points = [[times[r] - times[begin], r - begin, 128 + r] for r in told]
    mean = points[-1][0] / points[-1][1] * 1000
    return {"tier": tier, "clients": 64, "round_ms": mean, "contexts": points}


def test_windows_of_other_contexts_are_compared_where_they_overlap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two servers of equal speed, one of which tells its rounds seldom and so begins later."""
    run = {"rounds": [_window("plain", 45, 200, 15), _window("off", 3, 180, 3)], "loops": []}
    found = {one["ratio"]: one["median"] for one in _load("bounds", monkeypatch).summary([run])}
    assert found["off / plain"] > 1.03
    assert found["off / plain, equal contexts"] == pytest.approx(1.0, abs=2e-3)
    apart = {"rounds": [_window("plain", 150, 200, 15), _window("off", 3, 150, 3)], "loops": []}
    names = {one["ratio"] for one in _load("bounds", monkeypatch).summary([apart])}
    assert names == {"off / plain"}


def test_the_end_of_a_prefill_counts_for_neither_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that tells its rounds seldom has its last prefill in the first ones it tells."""
    plain, off = _window("plain", 0, 200, 15), _window("off", 0, 180, 3)
    plain["contexts"] = [[at + (at > 0) * 0.06, *rest] for at, *rest in plain["contexts"]]
    found = {
        one["ratio"]: one["median"]
        for one in _load("bounds", monkeypatch).summary([{"rounds": [plain, off], "loops": []}])
    }
    assert found["off / plain, equal contexts"] == pytest.approx(1.0, abs=2e-3)


def test_round_times_lie_on_a_line_over_context(monkeypatch: pytest.MonkeyPatch) -> None:
    run = {"rounds": [_window("plain", 0, 200, 15), _window("off", 0, 180, 3)], "loops": []}
    lines = _load("bounds", monkeypatch).context_lines([run])
    assert [line["line"] for line in lines] == ["off", "plain"]
    for line in lines:  # 1 ms and 10 us for each token
        assert line["us_per_token"] == pytest.approx(10, abs=0.01)
        assert line["round_ms_at_200"] == pytest.approx(3.0, abs=0.01)


@settings(deadline=None)  # the first one loads aiohttp
@given(
    grid=st.lists(st.integers(1, 256), min_size=1, max_size=8, unique=True).map(sorted),
    rates=st.lists(st.lists(st.floats(0, 1e5), min_size=8, max_size=8), min_size=3, max_size=3),
)
def test_an_engine_takes_the_thresholds_of_any_table(
    grid: list[int], rates: list[list[float]]
) -> None:
    pytest.importorskip("aiohttp")
    with pytest.MonkeyPatch.context() as patch:
        found = _load("rounds", patch).thresholds(
            {
                tier: dict(zip(grid, row, strict=False))
                for tier, row in zip(("s3k1d4", "s1k1d2", "off"), rates, strict=True)
            }
        )
    Thresholds.model_validate(found)


def test_a_boundary_lies_where_the_measured_rates_cross(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aiohttp")
    rounds = _load("rounds", monkeypatch)
    # The chain leads by a factor of 4 at 16 and trails by 2 at 128: two thirds of the way.
    table = {"s3k1d4": {16: 400.0, 128: 100.0}, "off": {16: 100.0, 128: 200.0}}
    assert rounds.crossing(table["s3k1d4"], table["off"], 16, 128) == pytest.approx(64.0)
    assert rounds.thresholds(table) == {
        "tiers": ["s3k1d4", "off"],
        "boundaries": [{"up_at": 70, "down_at": 58}],
        "min_dwell_steps": 16,
    }
    again = rounds.thresholds({
        "s3k1d4": {1: 0.0, 2: 1.0, 6: 14798.0, 7: 0.0},
        "s1k1d2": {1: 0.0, 2: 0.5, 6: 14906.0, 7: 1e-219},
        "off": {1: 0.0, 2: 0.0, 6: 1.0, 7: 1.0},
    })  # fmt: skip
    Thresholds.model_validate(again)
    # A tier without a reading there says nothing about where.
    assert rounds.crossing({16: 400.0}, table["off"], 16, 64) == pytest.approx(32.0)


def test_an_answer_is_sized_by_the_last_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aiohttp")
    expectation = _load("rounds", monkeypatch).expectation
    rows = [
        {"tier": "s1k1d2", "clients": 64, "round_ms": ms, "accept_length": accept}
        for ms, accept in ((20.0, 1.5), (21.0, 1.6), (None, None))
    ]
    assert expectation(rows, "s1k1d2", 64) == (21.0, 1.6)
    assert expectation(rows, "off-cold", 110) == (7.5, 1.0)
    assert expectation(rows, "auto", 64) == (10.0, 2.0)


def test_automation_is_compared_with_the_best_fixed_tier_of_the_same_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [
        {"tier": tier, "clients": 4, "round_ms": 5.0, "tok_s": rate}
        for tier, rate in (("plain", 90.0), ("off", 80.0), ("off-cold", 500.0), ("s1k1d2", 100.0),
                           ("auto", 99.0))
    ]  # fmt: skip
    summary = _load("bounds", monkeypatch).summary([{"rounds": rows, "loops": []}])
    found = {row["ratio"]: row["median"] for row in summary}
    assert found["auto / best fixed, clean windows"] == 0.99
    assert "s1k1d2 / without plugin" not in found
    assert found["off-cold / plain"] == 1.0


def test_a_tier_is_compared_with_a_server_of_that_tier_without_the_plugin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [
        {"tier": tier, "clients": 4, "round_ms": ms, "tok_s": None}
        for tier, ms in (("stock", 6.0), ("s3k1d4", 6.1), ("s3k1d4", 6.3), ("s1k1d2", 5.0))
    ]
    run = {"rounds": rows, "loops": [], "stock_tier": "s3k1d4"}
    (row,) = _load("bounds", monkeypatch).summary([run])
    assert (row["ratio"], row["median"]) == ("s3k1d4 / without plugin", 0.9677)
    twins = run | {
        "stock_tier": "plain",
        "rounds": [row | {"tier": "plain"} for row in run["rounds"]],
    }
    twins["rounds"].append(run["rounds"][0] | {"tier": "stock"})
    (row,) = _load("bounds", monkeypatch).summary([twins])
    assert row["ratio"] == "plain / plain again"


def test_a_trace_is_reduced_to_what_one_round_does(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aiohttp")
    kernels = _load("kernels", monkeypatch)

    def event(name: str, ts: float, dur: float, **args: object) -> dict[str, Any]:
        return {"ph": "X", "cat": "kernel", "name": name, "ts": ts, "dur": dur, "args": args}

    trace = [{"ph": "M", "name": "no work"}]
    for start in (0.0, 100.0, 200.0, 300.0):
        trace += [
            event("void at::native::reduce<ArgMaxOps>", start, 10.0, stream=7),
            event("beside", start + 5, 15.0, stream=8),
            event("layer", start + 50, 30.0, stream=7, **{"graph node id": 3}),
        ]
    found = kernels.reduce_trace(trace)
    assert (found["rounds"], found["round_us"]) == (3, 100.0)
    # 0-20 and 50-80 of each 100: what runs side by side counts once.
    assert (found["busy_us"], found["idle_us"], found["launched_alone_us"]) == (50.0, 50.0, 25.0)
    assert found["kernels"][0]["kernel"] == "layer"
    assert found["kernels"][0]["in_graph"]
    assert [row[3] for row in found["one_round"]] == ["reduce<ArgMaxOps>", "beside"]
    # A chain drafts with argmax, too: there verify tells rounds apart.
    chain = [
        event("void at::native::reduce<ArgMaxOps>", start + at, 5.0)
        for start in (0.0, 100.0, 200.0, 300.0)
        for at in (10.0, 20.0, 30.0)
    ] + [event("void VerifyTreeGreedy<long>", start, 5.0) for start in (0.0, 100.0, 200.0, 300.0)]
    found = kernels.reduce_trace(chain)
    assert (found["rounds"], found["round_us"]) == (3, 100.0)
    with pytest.raises(RuntimeError, match="1 rounds in the trace"):
        kernels.reduce_trace(trace[:2])


def test_the_committed_runs_can_be_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    results = GPU.parent / "results/gpu-2026-11-29"
    runs = [json.loads((results / name).read_text()) for name in ("speed-fa3.json",)]
    bounds = _load("bounds", monkeypatch)
    rows = bounds.summary(runs)
    assert {row["ratio"] for row in rows} >= {"off / plain", "auto / best fixed"}
    newer = sorted((GPU.parent / "results/gpu-2026-11-30").glob("rounds-fa3-*.json"))
    rows = bounds.summary([json.loads(file.read_text()) for file in newer])
    off = {row["clients"]: row["median"] for row in rows if row["ratio"] == "off / plain"}
    assert set(off) == {1, 16, 64, 128}
    assert all(0.97 < ratio < 1.005 for ratio in off.values())
    # What docs/gpu-results.md says.
    text = (GPU.parents[2] / "docs/gpu-results.md").read_text()
    for backend, machines, worst, said in (
        ("triton", ["11-30-x2"], 0.985, "0.985 (0.984)"),
        ("fa3", ["11-30-x2"], 0.9798, "**0.9798** (0.976)"),
        ("fa3", ["11-30-x2-2", "11-30-x2-3", "11-30-x1", "11-30-x1-3"], 0.9835, "0.983 (0.979)"),
        ("triton", ["11-30-x1-2", "11-30-x1-3"], 0.9829, "0.983 (0.974)"),
        ("triton", ["11-30-x1"], 0.9738, "**0.974** (0.968)"),
        ("triton", ["12-01-x1"], 0.9845, "0.985 (0.968)"),
        ("fa3", ["12-01-x1"], 0.9884, "0.988 (0.985)"),
        ("triton", ["12-01-x1-2"], 0.9849, "0.985 (0.979)"),
        ("flashinfer", ["11-30-x2"], 0.788, "**0.79**"),
        ("flashinfer", ["11-30-x2-3"], 0.9821, "0.982 (0.979)"),
    ):
        files = [
            file
            for machine in machines
            for file in sorted(
                (GPU.parent / f"results/gpu-2026-{machine}").glob(f"rounds-{backend}-[0-9].json")
            )
        ]
        rows = bounds.summary([json.loads(file.read_text()) for file in files])
        off = [r["median"] for r in rows if r["ratio"] == "off / plain" and r["clients"] < 256]
        assert min(off) == pytest.approx(worst, abs=5e-4)
        assert said in text
        alike = {r["clients"]: r for r in rows if r["ratio"] == "off / plain, equal contexts"}
        if machines == ["12-01-x1-2"]:
            assert [(n, r["median"], r["pass"]) for n, r in alike.items()] == [
                (64, 0.9925, True),
                (128, 0.9847, True),
                (256, 0.9872, True),
            ]
        else:
            assert not alike


@pytest.mark.parametrize("cut_off", [True, False])
def test_a_swing_that_is_cut_off_keeps_what_it_has_measured(cut_off: bool, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    out = tmp_path / "swing.json"
    order = {"tiers": ["s3k1d4", "off"], "boundaries": [{"up_at": 3, "down_at": 2}]}
    with running("--tiers", "off,s3k1d4") as engine:
        script = subprocess.Popen(
            [
                *(sys.executable, GPU / "swing.py", "--label", "x", "--out", out),
                *("--plain", engine.url, "--patched", engine.url, "--tiers", "off,s3k1d4"),
                *("--thresholds", json.dumps({**order, "min_dwell_steps": 4})),
                *("--high", "4", "--phases", "2", "--phase", "0.2", "--new-tokens", "16"),
                *("--repeats", "1"),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert script.stdout is not None
        if cut_off:
            assert "plain" in script.stdout.readline()
            assert "off" in script.stdout.readline()
            script.kill()
            script.communicate()
        else:
            script.communicate(timeout=60)
            assert script.returncode == 0
    kept = json.loads(out.read_text())
    if cut_off:
        assert kept["runs"] == []
        assert all(len(phases) == 2 for phases in kept["unfinished"].values())
        assert list(kept["unfinished"])[:2] == ["plain", "off"]
    else:
        assert kept["unfinished"] == {}
        assert list(kept["runs"][0]) == ["plain", "off", "s3k1d4", "auto"]
        assert kept["auto_over"]["oracle"]["median"] > 0


def test_the_oracle_of_a_swing_knows_the_best_tier_of_each_phase(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("aiohttp")
    swing = _load("swing", monkeypatch)
    assert swing.work_of(256, 20_000, 6.0, 256) == 512
    assert swing.work_of(1, 200, 6.0, 256) == 5
    assert swing.work_of(256, 100, 1.0, 256) == 256
    rows = {
        "plain": [6.0, 6.0], "off": [6.2, 6.0], "s3k1d4": [3.0, 9.0], "auto": [3.1, 6.1],
    }  # fmt: skip
    assert swing.oracle(rows, ["off", "s3k1d4"]) == 9.0
    found = swing.verdict([rows], ["off", "s3k1d4"])
    assert found["oracle"]["median"] == pytest.approx(9.0 / 9.2, abs=1e-4)
    assert found["plain"]["median"] > 1


def test_equal_samples_are_told_from_others_at_the_stated_rate() -> None:
    rng = random.Random(1)

    def sample(weights: list[float]) -> list[int]:
        return rng.choices(range(len(weights)), weights, k=3000)

    even, tilted = [1.0] * 30, [1.0] * 29 + [2.0]
    # One false alarm in 10,000 is accepted: none in 200 pairs.
    assert all(compare(sample(even), sample(even), z=3.72).same for _ in range(200))
    assert not compare(sample(even), sample(tilted), z=3.72).same
    # Rare ones are put together and do not speak.
    assert compare(list(range(900)), list(range(900, 1800)), z=3.72).same
    assert compare([1] * 10, [1] * 10, z=3.72).same


def test_a_place_is_a_token_with_the_one_before_it() -> None:
    assert places([[5, 6, 7]], 0) == [(5,)]
    assert places([[5, 6, 7]], 2) == [(6, 7)]
