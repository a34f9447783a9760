"""Fixed work on virtual time, and the closed loop behind it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from engine_patch.embedded.closed_loop import run_closed_loop
from engine_patch.embedded.core import Engine, EngineConfig, Kind, Pass
from engine_patch.embedded.table import load
from engine_patch.embedded.work import Phases, run_phases

TABLE = load("triton")
STORY = {
    "phases": [
        {"concurrency": 2, "requests": [[128, 100 + place] for place in range(8)]},
        {"concurrency": 128, "requests": [[128, 64]] * 256},
        {"concurrency": 2, "requests": [[128, 100]] * 4},
    ]
}


def work(
    tmp_path: Path, *arguments: str, story: object = STORY
) -> subprocess.CompletedProcess[str]:
    phases = tmp_path / "phases.json"
    phases.write_text(json.dumps(story))
    return subprocess.run(
        [
            *(sys.executable, "-m", "engine_patch.embedded", "work"),
            *("--phases", str(phases)),
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_each_phase_is_reported_and_the_same_seed_gives_the_same(tmp_path: Path) -> None:
    first = work(tmp_path, "--table", "triton", "--mode", "on")
    assert first.returncode == 0
    answer = json.loads(first.stdout)
    assert answer["simulated"] is True
    assert (answer["table"], answer["tier"]) == ("h200-8b-triton", "s3k1d4")
    assert [phase["concurrency"] for phase in answer["phases"]] == [2, 128, 2]
    assert [phase["tokens"] for phase in answer["phases"]] == [828, 256 * 64, 400]
    for part in (*answer["phases"], answer["overall"]):
        assert part["tok_s"] == pytest.approx(part["tokens"] / part["seconds"], rel=1e-4)
    assert work(tmp_path, "--table", "triton", "--mode", "on").stdout == first.stdout


def test_on_wins_when_quiet_and_off_when_busy() -> None:
    phases = Phases.model_validate(STORY)
    on = run_phases(Engine(EngineConfig(table=TABLE)), phases)
    off = run_phases(Engine(EngineConfig(table=TABLE, launch_tier="off")), phases)
    assert on[0].tok_s > 1.2 * off[0].tok_s
    assert off[1].tok_s > 1.2 * on[1].tok_s


def test_a_phase_ends_when_all_its_requests_are_answered() -> None:
    engine = Engine(EngineConfig(table=TABLE))
    run_phases(engine, Phases.model_validate(STORY))
    assert engine.idle
    assert engine.books.finished == 8 + 256 + 4


def test_no_more_requests_are_under_way_than_there_are_clients() -> None:
    most = 0

    def watch(started: Pass) -> None:
        nonlocal most
        prefilling = started.requests if started.kind is Kind.PREFILL else []
        most = max(most, len(engine.running) + len(engine.waiting) + len(prefilling))

    engine = Engine(EngineConfig(table=TABLE), on_pass=watch)
    run_closed_loop(engine, [(64, 50)] * 40, clients=7)
    assert most == 7


def test_a_turnaround_makes_a_closed_loop_slower() -> None:
    def seconds(turnaround_ms: float) -> float:
        engine = Engine(EngineConfig(table=TABLE))
        return run_closed_loop(
            engine, [(64, 50)] * 4, clients=1, turnaround_ms=turnaround_ms
        ).seconds

    assert seconds(10.0) == pytest.approx(seconds(0.0) + 0.030, abs=1e-6)


def test_a_loop_without_clients_or_work_is_refused() -> None:
    engine = Engine(EngineConfig(table=TABLE))
    with pytest.raises(ValueError, match="at least one client"):
        run_closed_loop(engine, [(1, 1)], clients=0)
    with pytest.raises(ValueError, match="one request"):
        run_closed_loop(engine, [], clients=1)


@pytest.mark.parametrize(
    ("story", "arguments", "code", "said"),
    [
        ({"phases": []}, ("--mode", "on"), 2, "no phases file"),
        ({"stages": 1}, ("--mode", "on"), 2, "no phases file"),
        (STORY, ("--mode", "on", "--tiers", "off"), 2, "speculating"),
        (STORY, ("--mode", "maybe"), 2, "invalid choice"),
    ],
)
def test_wrong_input_is_refused_with_what_is_wrong(
    tmp_path: Path, story: object, arguments: tuple[str, ...], code: int, said: str
) -> None:
    ended = work(tmp_path, *arguments, story=story)
    assert ended.returncode == code
    assert said in ended.stderr


def test_a_missing_phases_file_is_named(tmp_path: Path) -> None:
    ended = work(tmp_path, "--mode", "off", "--phases", str(tmp_path / "nowhere.json"))
    assert ended.returncode == 5
    assert "nowhere.json" in ended.stderr
