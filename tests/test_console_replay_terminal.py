"""``specdeck replay`` as it is called: on a terminal, without one, where the screen is missing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from controlplane import sessions_replay_cli
from controlplane.sessions_cli import run_replay
from tests.console_replay_pictures import EXAMPLE
from tests.console_terminal import Terminal

REPLAY = "controlplane.sessions_cli:run_replay"
CODE = (
    "import sys; from controlplane.sessions_cli import run_replay as r; sys.exit(r(sys.argv[1:]))"
)


def server_of(terminal: Terminal) -> psutil.Process:
    """The private replay that the command started."""
    (server,) = psutil.Process(terminal.process.pid).children()
    return server


def test_on_a_terminal_it_opens_the_screen_and_leaves_nothing_behind() -> None:
    with Terminal(str(EXAMPLE), "--utc", command=REPLAY) as terminal:
        terminal.until(b"REPLAY", 60)
        terminal.until(b"s3k1d4", 60)
        terminal.until(b"20:11:10", 60)
        server = server_of(terminal)
        terminal.press(b"m")
        terminal.until(b"nothing can be sent", 60)
        terminal.press(b"q")
        assert terminal.end(60) == 0
        assert b"\x1b[?1049l" in terminal.written
        assert b"Traceback" not in terminal.written
        assert not server.is_running()


def test_the_private_replay_ends_with_a_console_that_is_killed() -> None:
    with Terminal(str(EXAMPLE), "--utc", "--ascii", command=REPLAY) as terminal:
        terminal.until(b"20:11:10", 60)
        assert terminal.written.isascii()
        server = server_of(terminal)
        terminal.process.send_signal(signal.SIGKILL)
        terminal.process.wait()
        assert server.wait(60) is None  # not ours to reap


def test_a_file_that_cannot_be_replayed_is_told_before_the_screen_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "none.specdeck"
    with Terminal(str(file), command=REPLAY) as terminal:
        assert terminal.end(60) == 5
        terminal.read_for(0.1)
        assert b"none.specdeck" in terminal.written
        assert b"\x1b[?1049h" not in terminal.written


@pytest.mark.parametrize("words", [[], ["--headless", "--json"]])
def test_without_a_terminal_it_serves_and_prints_the_url(words: list[str]) -> None:
    command = [sys.executable, "-c", CODE, str(EXAMPLE), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["ready"] is True
        process.terminate()
        assert process.wait(60) == 0


def test_where_the_screen_is_not_installed_the_pip_line_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sessions_replay_cli, "_on_a_terminal", lambda: True)
    monkeypatch.setattr(sessions_replay_cli, "find_spec", lambda _: None)
    assert run_replay([str(EXAMPLE)]) == 7
    assert "pip install 'specdeck[console]'" in capsys.readouterr().err


def test_verify_and_serve_together_make_no_sense(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_replay([str(EXAMPLE), "--verify", "--headless"]) == 2
    assert "not both" in capsys.readouterr().err
