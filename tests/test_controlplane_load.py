"""The load generator's command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from controlplane import load


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    """URL of an embedded engine."""
    with subprocess.Popen(
        [sys.executable, "-m", "engine_patch.embedded", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
        process.terminate()


def _main(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "controlplane.load", *words],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.fixture
def phases(tmp_path: Path) -> str:
    path = tmp_path / "phases.json"
    path.write_text('{"phases": [{"concurrency": 2, "requests": [[16, 8], [16, 8], [16, 8]]}]}')
    return str(path)


def test_the_command_prints_one_json_object(engine: str, phases: str) -> None:
    answer = _main("--url", engine, "--phases", phases, "--json")
    assert answer.returncode == load.OK, answer.stderr
    document = json.loads(answer.stdout)
    assert document["schema"] == "specdeck.load/1"
    assert document["phases"][0]["output_tokens"] == 24
    assert "requests" not in document
    full = json.loads(_main("--url", engine, "--phases", phases, "--json", "--requests").stdout)
    assert len(full["requests"]) == 3


def test_the_command_prints_a_table_with_units_and_dashes(engine: str, phases: str) -> None:
    answer = _main("--url", engine, "--phases", phases)
    header, row = answer.stdout.splitlines()[1:3]
    assert "TTFT p50 ms" in header
    assert row.split()[:4] == ["0", "2", "3", "0"]
    assert row.split()[6] == "-"  # no first token without streaming


def test_the_command_refuses_another_machine(phases: str) -> None:
    answer = _main("--url", "http://192.0.2.1:30000", "--phases", phases)
    assert answer.returncode == load.REFUSED
    assert "--allow-remote" in answer.stderr


def test_allowing_another_machine_needs_both_bounds(phases: str) -> None:
    words = ("--url", "http://192.0.2.1:30000", "--phases", phases, "--allow-remote")
    for more in ((), ("--max-requests", "5"), ("--max-seconds", "5")):
        answer = _main(*words, *more)
        assert answer.returncode == load.USAGE
        assert "--max-requests and --max-seconds" in answer.stderr


def test_the_command_names_what_is_wrong_with_its_input(phases: str, tmp_path: Path) -> None:
    here = ("--url", "http://127.0.0.1:1", "--phases")
    missing = _main(*here, str(tmp_path / "nowhere.json"))
    assert (missing.returncode, "nowhere.json" in missing.stderr) == (load.USAGE, True)
    bad = tmp_path / "bad.json"
    bad.write_text('{"phases": [{"concurrency": 0, "requests": [[1, 1]]}]}')
    answer = _main(*here, str(bad))
    assert (answer.returncode, "phases.0.concurrency" in answer.stderr) == (load.USAGE, True)
    assert _main(*here, phases, "--max-requests", "2").returncode == load.USAGE
    assert _main(*here, phases, "--max-requests", "0").returncode == load.USAGE
    assert _main(*here, phases).returncode == load.UNREACHABLE


def _finished(engine: str) -> int:
    """Requests that the engine has answered."""
    state = httpx.get(f"{engine}/speculation", trust_env=False).json()
    return sum(replica["finished"] for replica in state["replicas"])


def test_ctrl_c_prints_what_was_measured_so_far(engine: str, tmp_path: Path) -> None:
    path, before = tmp_path / "long.json", _finished(engine)
    path.write_text(json.dumps({"phases": [{"concurrency": 1, "requests": [[8, 20]] * 5000}]}))
    with subprocess.Popen(
        [sys.executable, "-m", "controlplane.load", "--json", "--url", engine, "--phases", path],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        end = time.monotonic() + 60
        while _finished(engine) < before + 3:
            assert time.monotonic() < end
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == load.INTERRUPTED
    document = json.loads(out)
    assert document["stopped_by"] == "stop"
    assert document["phases"][0]["requests"] > 0
