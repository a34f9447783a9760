"""Two servers that take turns, from the command line."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.bench_records import BenchFile
from tests.controlplane_rig import EmbeddedEngine, embedded_engine

RUN = "import sys; from controlplane.bench_cli import run; sys.exit(run(sys.argv[1:]))"
BENCH = [sys.executable, "-c", RUN]


@pytest.fixture(scope="module")
def plain() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off") as engine:
        yield engine


@pytest.fixture(scope="module")
def spec() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "s3k1d4") as engine:
        yield engine


def servers(*arguments: str) -> subprocess.CompletedProcess[str]:
    short = ["--window", "0.3s", "--in", "16", "--out", "32"]
    return subprocess.run(
        [*BENCH, "servers", *short, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_they_are_measured_in_turns_and_only_one_has_load(
    plain: EmbeddedEngine, spec: EmbeddedEngine, tmp_path: Path
) -> None:
    # Without its plugin a server is watched by /v1/loads and /metrics.
    for one in (plain, spec):
        one.fault(drop_speculation=True)
    out = tmp_path / "two.json"
    done = servers(
        "--plain", plain.url, "--spec", spec.url, "--concurrency", "2", "--budget", "10s",
        "--json", str(out),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    file = BenchFile.model_validate_json(out.read_bytes())
    first = [(point.tier, point.repeat) for point in file.points[:4]]
    assert first == [("plain", 1), ("s3k1d4", 1), ("s3k1d4", 2), ("plain", 2)]
    assert file.points[1].accept_length is not None
    assert file.points[0].accept_length is None
    assert file.simulated
    assert len(file.client) == 2
    assert "compared with a plain server" in done.stdout or "not comparable" in done.stdout
    for one in (plain, spec):
        one.fault(clear=True)
    # What the benchmark left when it ended is cut as soon as the engine notices.
    end = time.monotonic() + 10
    while any(one.state()["replicas"][0]["running"] for one in (plain, spec)):
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("swap", "words"),
    [
        (True, "speculates (s3k1d4): the plain server is one without"),
        (False, "cannot connect to 127.0.0.1:9"),
    ],
)
def test_servers_that_do_not_fit_are_refused(
    plain: EmbeddedEngine, spec: EmbeddedEngine, swap: bool, words: str
) -> None:
    spec.fault(clear=True)
    urls = (spec.url, plain.url) if swap else (plain.url, "http://127.0.0.1:9")
    done = servers("--plain", urls[0], "--spec", urls[1], "--budget", "5s")
    assert done.returncode == 5
    assert words in done.stderr
    assert "Traceback" not in done.stderr
