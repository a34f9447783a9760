"""What the GPU measurements would start and measure, and the arguments of their scripts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

GPU = Path(__file__).parent / "benchmarks/gpu"
SCRIPTS = ("rounds", "equality", "sampled", "swing", "switches", "ranks", "bounds", "kernels")


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
