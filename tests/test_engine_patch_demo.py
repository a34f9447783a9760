"""``specdeck demo`` as a person or a script runs it, and what it leaves behind: nothing."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from engine_patch import dispatch

COMMAND = [sys.executable, "-m", "engine_patch.dispatch", "demo"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment whose temporary files and settings are seen by nobody else."""
    for name in ("tmp", "home"):
        (tmp_path / name).mkdir()
    return {
        **os.environ,
        "TMPDIR": str(tmp_path / "tmp"),
        "HOME": str(tmp_path / "home"),
        "TERM": "xterm-256color",
        # A setting of the person that would stop any control plane that saw it.
        "SPECDECK_OVERRIDE_MAX_S": "-1",
    }


def _left_behind(environment: dict[str, str]) -> list[list[str]]:
    """Processes that carry this demo's own temporary folder in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR") == environment["TMPDIR"]:
                found.append(process.cmdline())
        except psutil.Error:
            continue
    return found


def _nothing_left(environment: dict[str, str]) -> None:
    assert _left_behind(environment) == []
    assert list(Path(environment["TMPDIR"]).iterdir()) == []
    assert [p for p in Path(environment["HOME"]).rglob("*") if "specdeck" in p.name] == []


def _wait(condition: Callable[[], bool], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_headless_run_prints_one_object_that_holds_what_it_promises(
    environment: dict[str, str],
) -> None:
    answer = subprocess.run(
        [*COMMAND, "--headless", "--seconds", "12", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )
    assert answer.returncode == dispatch.OK, answer.stderr
    _nothing_left(environment)
    document = json.loads(answer.stdout)
    assert answer.stdout.count("\n") == 1
    assert document["schema"] == "specdeck.demo/1"
    assert document["simulated"] is True
    assert document["table"] == "h200-8b-fa3"
    assert document["valid"] is True
    assert document["gaps"] == 0
    assert document["seconds"] == pytest.approx(12, rel=0.08)
    assert [phase["concurrency"] for phase in document["phases"]] == [4, 256, 4]
    overall = document["overall"]
    assert overall["tokens"] == sum(phase["tokens"] for phase in document["phases"])
    assert overall["dynamic_tok_s"] > max(overall["on_tok_s"], overall["off_tok_s"])
    for phase, regret in zip(document["phases"], document["regret"], strict=True):
        best = max(phase["on_tok_s"], phase["off_tok_s"])
        assert regret == pytest.approx(1 - phase["dynamic_tok_s"] / best, abs=1e-3)
        # The promise of 0.05 is for 30 s; here a phase is less than half as long.
        assert regret < 0.1
    first, second, *_ = document["switches"]
    assert (first["from"], first["to"], first["reason"]) == ("s3k1d4", "off", "load_up")
    assert (second["from"], second["to"], second["reason"]) == ("off", "s3k1d4", "load_down")
    assert first["confirmed"] is True
    assert second["confirmed"] is True
    # One switch per change of load, in the phase that asked for it.
    busy_from = document["phases"][0]["tokens"] / document["phases"][0]["dynamic_tok_s"]
    assert busy_from < first["at_s"] < busy_from + 2
    assert len(document["switches"]) <= 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_headless_run_and_everything_it_started(
    environment: dict[str, str], number: signal.Signals
) -> None:
    with subprocess.Popen(
        [*COMMAND, "--headless", "--seconds", "60", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        # Itself, engine, control plane and traffic.
        _wait(lambda: len(_left_behind(environment)) == 4, 30)
        process.send_signal(number)
        out, errors = process.communicate(timeout=15)
    assert process.returncode == 128 + number
    assert (out, errors) == ("", "")
    _nothing_left(environment)


def _on_terminal(environment: dict[str, str], leave: Callable[[int, int], None]) -> tuple[int, str]:
    """Run the demo on a terminal of 80x24, ``leave`` it once it shows traffic."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    shown = b""
    left = False
    deadline = time.monotonic() + 50
    with subprocess.Popen(
        COMMAND, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
    ) as process:
        os.close(slave)
        try:
            while process.poll() is None:
                assert time.monotonic() < deadline, shown[-2000:]
                if select.select([master], [], [], 0.1)[0]:
                    try:
                        shown += os.read(master, 65536)
                    except OSError:
                        break
                if not left and b"s3k1d4" in shown and len(_left_behind(environment)) == 5:
                    left = True
                    leave(master, process.pid)
            code = process.wait(15)
        finally:
            process.kill()
            os.close(master)
    assert left
    return code, shown.decode(errors="replace")


def test_q_leaves_the_console_and_ends_everything(environment: dict[str, str]) -> None:
    code, shown = _on_terminal(environment, lambda master, _: os.write(master, b"q") and None)
    assert code == dispatch.OK
    assert "simulated times: table h200-8b-fa3" in shown
    assert "Traceback" not in shown
    # The last words to the terminal: the first screen is back, the cursor is shown.
    assert shown.rindex("\x1b[?1049l") > shown.rindex("\x1b[?1049h")
    assert shown.rstrip().endswith("\x1b[?25h")
    _nothing_left(environment)


def test_ctrl_c_on_the_console_ends_everything(environment: dict[str, str]) -> None:
    code, shown = _on_terminal(environment, lambda master, _: os.write(master, b"\x03") and None)
    assert code == dispatch.OK
    assert "Traceback" not in shown
    _nothing_left(environment)


def test_a_signal_takes_the_screen_back_and_ends_everything(environment: dict[str, str]) -> None:
    code, shown = _on_terminal(environment, lambda _, pid: os.kill(pid, signal.SIGTERM))
    assert code == 128 + signal.SIGTERM
    assert shown.rstrip().endswith("\x1b[?25h")
    _nothing_left(environment)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--headless --seconds 30 --json"),
        (("--json",), "--json needs --headless"),
        (("--headless", "--seconds", "0"), "--seconds"),
        (("--headless", "--seconds", "601"), "--seconds"),
        (("--headless", "--port", "70000"), "--port"),
        (("--headless", "--table", "nope"), "fa3"),
        (("--headless", "--seconds", "4"), "the least is"),
    ],
)
def test_words_that_cannot_be_obeyed_are_refused_with_what_can(
    environment: dict[str, str], words: tuple[str, ...], says: str
) -> None:
    answer = subprocess.run(
        [*COMMAND, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=environment,
    )
    assert answer.returncode == dispatch.USAGE
    assert says in answer.stderr
    assert answer.stdout == ""
    _nothing_left(environment)


def test_a_taken_port_is_named_and_nothing_is_left(environment: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        answer = subprocess.run(
            [*COMMAND, "--headless", "--seconds", "12", "--port", str(port)],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env=environment,
        )
    assert answer.returncode == dispatch.CANNOT_START
    assert f"port {port} on 127.0.0.1 is taken" in answer.stderr
    _nothing_left(environment)


def test_a_part_that_dies_ends_the_run_with_its_last_words(environment: dict[str, str]) -> None:
    with subprocess.Popen(
        [*COMMAND, "--headless", "--seconds", "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        _wait(lambda: len(_left_behind(environment)) == 4, 30)
        (engine,) = [
            child
            for child in psutil.Process(process.pid).children()
            if "engine_patch.embedded" in child.cmdline()
        ]
        engine.kill()
        _, errors = process.communicate(timeout=15)
    assert process.returncode == dispatch.CANNOT_START
    assert "engine ended with code -9" in errors
    _nothing_left(environment)
