"""``specdeck bench`` on a live engine: results, progress, interruption, apply, refusals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from controlplane.bench_cli import run
from controlplane.bench_records import BenchFile
from tests.controlplane_rig import ENGINE, Deck, EmbeddedEngine, deck, embedded_engine

RUN = "import sys; from controlplane.bench_cli import run; sys.exit(run(sys.argv[1:]))"
SHORT = ["--concurrency", "2", "--in", "16", "--out", "24", "--window", "0.3s"]


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4") as running:
        yield running


@pytest.fixture(scope="module")
def plane(engine: EmbeddedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deck]:
    folder = tmp_path_factory.mktemp("bench")
    engines = json.dumps([{"id": ENGINE, "url": engine.url, "poll_s": 0.1}])
    with deck(
        ["--database", str(folder / "deck.sqlite3")], os.environ | {"SPECDECK_ENGINES": engines}
    ) as running:
        end = time.monotonic() + 10
        while httpx.get(f"{running.url}/v1/engines/{ENGINE}").json()["engine"]["facts"] is None:
            assert time.monotonic() < end
            time.sleep(0.05)
        yield running


def started(plane: Deck, arguments: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments, "--url", plane.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )


def bench(plane: Deck, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    with started(plane, arguments) as process:
        out, errors = process.communicate(timeout=60)
    return process.returncode, out, errors


def test_it_prints_points_as_they_come_and_the_verdict_and_writes_the_results(
    plane: Deck, tmp_path: Path
) -> None:
    out = tmp_path / "results.json"
    code, said, progress = bench(
        plane, ENGINE, *SHORT, "--budget", "8s", "--author", "op1", "--json", str(out)
    )
    assert code == 0, progress
    assert "s3k1d4" in said
    lines = progress.splitlines()
    assert lines[0].startswith("specdeck: benchmark ")
    assert "interrupt to cancel it" in lines[0]
    assert sum(" tok/s  accept " in line for line in lines) >= 4
    assert "\r" not in progress, "a bar is for terminals"
    assert " done: " in lines[-1]
    file = BenchFile.model_validate_json(out.read_bytes())
    assert len(file.points) >= 4

    name = lines[0].split()[2]
    code, listed, _ = bench(plane, "list", ENGINE)
    assert code == 0
    assert f"benchmark {name} done" in listed
    code, again, _ = bench(plane, "results", ENGINE, name)
    assert code == 0
    assert BenchFile.model_validate_json(again).points == file.points

    if not any(point.not_comparable for point in file.points):
        code, said, _ = bench(plane, "apply", ENGINE, name, "--as", "shadow")
        assert code == 2, "nobody can answer the question"
        code, said, _ = bench(plane, "apply", ENGINE, name, "--as", "shadow", "--yes")
        assert code == 0
        assert "proposed  " in said
        assert "gain  " in said
        assert "by bench " in said


def test_an_interrupted_one_is_cancelled_and_the_engine_released(
    plane: Deck, engine: EmbeddedEngine
) -> None:
    arguments = [ENGINE, *SHORT[:-1], "5s", "--tiers", "off", "--budget", "60s", "--json", "-"]
    with started(plane, arguments) as process:
        end = time.monotonic() + 15
        while engine.state()["mode"] != "off":
            assert time.monotonic() < end
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "cancelled after" in errors
    assert not BenchFile.model_validate_json(out).complete
    override = httpx.get(f"{plane.url}/v1/engines/{ENGINE}/override").json()["override"]
    assert override is None


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["e9"], 4, "there is no engine 'e9'"),
        ([ENGINE, "--concurrency", "two"], 2, "is no list of numbers"),
        ([ENGINE, "--concurrency", "0"], 2, "must lie between 1 and 1024"),
        ([ENGINE, "--budget", "soon"], 2, "--budget: 'soon' is no length of time"),
        ([ENGINE, "--arrivals", "poisson:x"], 2, "write closed, or poisson:RATE"),
        ([ENGINE, "--tiers", "s9k1d10"], 4, "was not built; built are: off, s3k1d4"),
        (["cancel", ENGINE, "20260101-000000"], 4, "has no benchmark"),
        (["apply", ENGINE, "20260101-000000", "--yes"], 4, "has no benchmark"),
    ],
)
def test_what_is_wrong_ends_with_a_sentence_and_the_right_code(
    plane: Deck,
    arguments: list[str],
    code: int,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run([*arguments, "--url", plane.url]) == code
    out, errors = capsys.readouterr()
    assert words in errors
    assert out == ""
