"""What can be checked of the GPU measurements without a GPU: shell, arguments, arithmetic."""

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
SCRIPTS = ("rounds", "equality", "sampled", "swing", "switches", "ranks", "bounds", "kernels")


def _load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A script as a module, with its neighbours in reach as when it is run."""
    monkeypatch.syspath_prepend(str(GPU))
    spec = importlib.util.spec_from_file_location(f"gpu_{name}", GPU / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _suite(*parts: str, out: Path, **more: str) -> str:
    return _dry("suite.sh", "chunks", "triton", *parts, out=out, **more)


def _dry(script: str, *words: str, out: Path, **more: str) -> str:
    """What a script would start and measure."""
    done = subprocess.run(
        ["bash", GPU / script, *words],
        env={"PATH": "/usr/bin:/bin", "DRY": "1", "OUT": str(out)} | more,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout


def test_every_part_of_the_suite_names_its_servers_and_measurements(tmp_path: Path) -> None:
    for part, servers, script in (
        ("equality", 3, "equality.py"),
        ("sampled", 3, "sampled.py"),
        ("switches", 1, "switches.py"),
        ("ranks", 1, "ranks.py"),
        ("speed", 2, "rounds.py"),
    ):
        said = _suite(part, out=tmp_path, EXTRA="--page-size 64").splitlines()
        launched = [line for line in said if line.startswith("launch")]
        assert len(launched) == servers
        assert all(line.endswith("--page-size 64") for line in launched)
        assert any(line.startswith("measure") and script in line for line in said)


def test_repeats_and_the_swing_follow_the_rounds(tmp_path: Path) -> None:
    said = _suite("speed", out=tmp_path, REPEATS="3", SWING="1", UPSTREAM="1", FLAVOURS="keep,cold")
    assert said.count("rounds.py") == 3
    assert said.count("--flavours keep,cold") == 3
    assert said.index("bounds.py") < said.index("swing.py")
    assert "speed-triton-3.json --high 256" in said
    assert said.count("--upstream") == 4


def _launched(said: list[str]) -> list[str]:
    """The names of the servers that would be started."""
    return [line.split()[3] for line in said if line.startswith("launch")]


def test_times_are_read_on_four_servers_side_by_side(tmp_path: Path) -> None:
    said = _dry("beside.sh", "chunks", "times", out=tmp_path).splitlines()
    assert _launched(said) == [
        "plain-fa3", "specdeck-fa3", "plain-triton", "specdeck-triton",
    ]  # fmt: skip
    measured = [line for line in said if line.startswith("measure")]
    assert sum("rounds.py" in line and "--parts rounds" in line for line in measured) == 10
    assert sum("--auto" in line for line in measured) == 2
    assert sum("latency" in line and "rounds.py" in line for line in measured) == 2
    assert sum("swing.py" in line for line in measured) == 2
    for line in measured:
        if "--auto" in line:
            given = line.split("--auto ")[1].split(",")
            assert all(Path(name).is_file() for name in given)


def test_two_cards_hold_more_servers_and_more_clients(tmp_path: Path) -> None:
    said = _dry("beside.sh", "chunks", "times", out=tmp_path, CARDS="2", KEEP="1").splitlines()
    assert _launched(said) == [
        f"{kind}-{backend}"
        for backend in ("fa3", "triton")
        for kind in ("plain", "specdeck", "upstream")
    ]
    rounds = [line for line in said if "rounds.py" in line and "--parts rounds" in line]
    assert all("--clients 1,4,16,32,64,128,256 " in line for line in rounds)
    swings = [line for line in said if "swing.py" in line]
    assert len(swings) == 2
    assert all("--high 256" in line and "--upstream" in line for line in swings)
    stock = _dry(
        "beside.sh", "chunks", "times", out=tmp_path, CARDS="2", THIRD="stock", PROFILE="1",
        SETUPS="fa3 flashinfer",
    ).splitlines()  # fmt: skip
    assert _launched(stock)[2::3] == ["stock-fa3", "stock-flashinfer"]
    assert sum("--stock http://127.0.0.1:300" in line for line in stock) == 2
    assert not any("--upstream" in line for line in stock)
    assert sum("kernels.py" in line for line in stock) == 2
    # Both cards measure at once, so their lines come in any order.
    (profile,) = (line for line in stock if "kernels-fa3.json" in line)
    for case in ("stock=http://127.0.0.1:30002", "chain=http://127.0.0.1:30001,s3k1d4"):
        assert f"--case {case} " in profile
    few = _dry("beside.sh", "chunks", "answers", out=tmp_path, SETS="flashinfer")
    assert _launched(few.splitlines()) == [
        "plain-triton", "specdeck-triton", "plain-flashinfer", "specdeck-flashinfer",
        "specdeck-control", "specdeck-switches",
    ]  # fmt: skip
    more = _dry("beside.sh", "chunks", "more", out=tmp_path, CARDS="2").splitlines()
    assert _launched(more) == [
        "plain-fa3-page64", "specdeck-fa3-page64", "plain-flashinfer", "specdeck-flashinfer",
    ]  # fmt: skip
    assert sum("--page-size 64" in line for line in more if line.startswith("launch")) == 2
    assert sum("--parts rounds,auto" in line for line in more) == 2
    ranks = _dry("beside.sh", "chunks", "answers", out=tmp_path, CARDS="2")
    assert "--tp-size 2" in ranks
    assert "ranks.py --patched http://127.0.0.1:31091" in ranks


def test_one_backend_on_one_card_has_a_third_server_and_all_clients(tmp_path: Path) -> None:
    said = _dry(
        "beside.sh", "chunks", "times", out=tmp_path, SETUPS="fa3", EARLIER="/earlier", SWINGS="2"
    ).splitlines()
    assert _launched(said) == ["plain-fa3", "specdeck-fa3", "upstream-fa3"]
    rounds = [line for line in said if "--parts rounds" in line]
    assert all("--clients 1,4,16,32,64,128,256 " in line for line in rounds)
    assert [line for line in rounds if "--auto /earlier/rounds-fa3-1.json" in line] == rounds[:1]
    (swing,) = (line for line in said if "swing.py" in line)
    assert "--high 256" in swing
    assert "--upstream http://127.0.0.1:30002" in swing


def test_the_third_server_may_be_a_second_plain_one_or_none(tmp_path: Path) -> None:
    twins = _dry(
        "beside.sh", "chunks", "times", out=tmp_path, CARDS="2", THIRD="plain", SETUPS="fa3",
        REPEATS="3",
    ).splitlines()  # fmt: skip
    assert _launched(twins) == ["plain-fa3", "specdeck-fa3", "plain-again-fa3"]
    against = "--stock http://127.0.0.1:30002 --stock-tier plain"
    assert sum(against in line for line in twins) == 3
    alone = _dry("beside.sh", "chunks", "times", out=tmp_path, CARDS="2", THIRD="none")
    assert _launched(alone.splitlines()) == [
        "plain-fa3", "specdeck-fa3", "plain-triton", "specdeck-triton",
    ]  # fmt: skip


def test_automation_may_run_on_thresholds_of_the_same_run(tmp_path: Path) -> None:
    fresh = [
        line
        for line in _dry(
            "beside.sh", "chunks", "times", out=tmp_path, CARDS="2", FRESH="1", REPEATS="2",
            SETUPS="fa3", THIRD="stock", SWINGS="0", FLAVOURS="warm,cold",
        ).splitlines()
        if "--parts rounds" in line
    ]  # fmt: skip
    assert ["--auto" in line for line in fresh] == [False, True, False]
    assert ["--stock" in line for line in fresh] == [True, True, False]
    assert f"--auto {tmp_path}/rounds-fa3-1.json" in fresh[1]
    assert "--flavours warm,cold" in fresh[2]


def test_servers_are_profiled_last(tmp_path: Path) -> None:
    order = _dry(
        "beside.sh", "chunks", "times", out=tmp_path, CARDS="2", SETUPS="fa3", FLAVOURS="cold",
        PROFILE="1",
    )  # fmt: skip
    assert order.index("--flavours cold") < order.index("kernels.py")  # which slows launches


def test_off_alone_may_be_read_and_profiled_between_two_reads_of_plain(tmp_path: Path) -> None:
    *reads, profile, _ = (
        line
        for line in _dry(
            "beside.sh", "chunks", "times", out=tmp_path, SETUPS="fa3", THIRD="plain",
            PROFILE="off", PROFILE_AT="64,256", READ="off", REPEATS="2",
        ).splitlines()
        if line.startswith("measure")
    )  # fmt: skip
    assert len(reads) == 2
    assert all("--tiers off " in line and "--auto" not in line for line in reads)
    assert "kernels.py" in profile
    cases = [case.split("=")[0] for case in profile.split("--case ")[1:]]
    assert cases == ["plain", "cold", "plain-again", "keep", "plain-later"]
    assert "--clients 64,256" in profile


def test_a_fourth_server_shows_another_bound_of_rows_in_the_same_windows(tmp_path: Path) -> None:
    said = _dry(
        "beside.sh", "chunks", "times", out=tmp_path, SETUPS="triton", THIRD="plain", AGAIN="256",
        READ="off", REPEATS="2", KEEP="all",
    ).splitlines()  # fmt: skip
    assert _launched(said) == [
        "plain-triton", "specdeck-triton", "plain-again-triton", "specdeck-again-triton",
    ]  # fmt: skip
    # Four of them hold fewer tokens each.
    assert all("--max-total-tokens 106000 " in line for line in said if line.startswith("launch"))
    rounds = [line for line in said if "rounds.py" in line]
    assert len(rounds) == 2
    assert all("--again http://127.0.0.1:30003 --again-what 256 rows" in line for line in rounds)
    both = _dry("beside.sh", "chunks", "times", out=tmp_path, AGAIN="256")
    assert "again" not in both  # two backends on one card leave no room


def test_the_servers_that_were_kept_are_benchmarked_and_profiled_last(tmp_path: Path) -> None:
    alone = _dry(
        "beside.sh", "chunks", "times", out=tmp_path, SETUPS="fa3", READ="none", KEEP="all"
    )
    assert "rounds.py" not in alone
    kept: dict[str, str] = {"SETUPS": "fa3", "AGAIN": "256", "PROFILE": "off"}
    parts = ("bench", "auto", "swing", "profile")
    said = [_dry("beside.sh", "chunks", part, out=tmp_path, **kept) for part in parts]
    assert not any(_launched(one.splitlines()) for one in said)
    bench, auto, swing, profile = said
    assert "bench.sh" in bench
    thresholds = "/tmp/specdeck-thresholds-fa3.json"
    assert f"--auto {thresholds}" in auto
    assert f"--thresholds {thresholds} " in swing
    assert "--upstream http://127.0.0.1:30002" in swing
    assert "--case again=http://127.0.0.1:30003,off-keep" in profile


def test_two_cards_are_benchmarked_at_once_each_with_a_third_server_of_its_own(
    tmp_path: Path,
) -> None:
    two: dict[str, str] = {
        "CARDS": "2", "SETUPS": "triton fa3", "THIRD": "plain upstream", "PROFILE": "off",
    }  # fmt: skip
    start = _dry("beside.sh", "chunks", "times", out=tmp_path, READ="none", KEEP="all", **two)
    assert _launched(start.splitlines())[2::3] == ["plain-again-triton", "upstream-fa3"]
    said = {
        part: _dry("beside.sh", "chunks", part, out=tmp_path, **two)
        for part in ("bench", "auto", "swing", "profile")
    }
    assert said["bench"].count("bench.sh") == 2
    for backend, port in (("triton", 30001), ("fa3", 30011)):
        (line,) = (one for one in said["auto"].splitlines() if f"--label {backend} " in one)
        assert f"--patched http://127.0.0.1:{port} " in line
        assert f"--auto /tmp/specdeck-thresholds-{backend}.json" in line
    (upstream,) = (one for one in said["swing"].splitlines() if "--upstream" in one)
    assert "--label fa3 " in upstream
    (again,) = (one for one in said["profile"].splitlines() if "plain-again" in one)
    assert "--case plain-again=http://127.0.0.1:30002 " in again


def test_an_idle_plugin_is_read_beside_a_server_without_it(tmp_path: Path) -> None:
    said = _dry(
        "beside.sh", "chunks", "times", out=tmp_path, SETUPS="fa3", THIRD="stock", READ="idle",
        REPEATS="2", TOKENS="150000",
    ).splitlines()  # fmt: skip
    assert all("--max-total-tokens 150000 " in one for one in said if one.startswith("launch"))
    rounds = [one for one in said if "rounds.py" in one]
    assert len(rounds) == 2
    assert all("--tiers s3k1d4 " in one and "--stock http://" in one for one in rounds)


def test_a_flavour_of_off_may_be_read_in_the_same_windows(tmp_path: Path) -> None:
    reads = [
        one
        for one in _dry(
            "beside.sh", "chunks", "times", out=tmp_path, SETUPS="triton", READ="off",
            REPEATS="2", FLAVOURS="cold",
        ).splitlines()
        if "rounds.py" in one
    ]  # fmt: skip
    assert len(reads) == 2
    assert all("--flavours cold" in one for one in reads)


def test_a_measurement_stops_for_the_budget_and_says_that_it_failed(tmp_path: Path) -> None:
    """One script that fails, one that is late, one for which no time is left."""
    kit = tmp_path / "kit"
    kit.mkdir()
    for name in ("bootstrap.sh", "serve.sh"):
        (kit / name).write_text("")
    shell = (
        f"CHUNKS= KIT={kit} OUT={tmp_path}; . {GPU}/servers.sh; "
        'measure 20 -c "raise SystemExit(3)" --label a; '
        'BUDGET=$((SECONDS + 15)); measure 90 -c "import time; time.sleep(30)" --label b; '
        "measure 90 -c pass --label c"
    )
    said = subprocess.run(
        ["bash", "-c", shell], capture_output=True, text=True, check=True, timeout=60
    ).stdout.splitlines()
    assert said == [
        "MEASURE ended with 3 (124: after 20 s): -c raise SystemExit(3) --label a",
        "MEASURE ended with 124 (124: after 15 s): -c import time; time.sleep(30) --label b",
        "MEASURE left out, no time: -c pass --label c",
    ]


def test_answers_are_compared_on_every_setup_and_with_a_control(tmp_path: Path) -> None:
    said = _dry("beside.sh", "chunks", "answers", out=tmp_path)
    assert said.count("launch port") == 15
    for name in (
        "triton", "page64", "fa3", "fa3-page64", "flashinfer", "prefill", "standalone",
    ):  # fmt: skip
        assert f"--label {name} --out {tmp_path}/equality-{name}.json" in said
    assert "--patched http://127.0.0.1:31071" in said
    assert "switches.py" in said
    assert said.count("sampled.py") == 2
    ports = [line.split()[2] for line in said.splitlines() if line.startswith("launch")]
    assert len(set(ports)) == len(ports)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_takes_its_arguments(name: str) -> None:
    pytest.importorskip("aiohttp")
    done = subprocess.run(
        [sys.executable, GPU / f"{name}.py", "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "usage" in done.stdout


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
