"""``specdeck`` alone, in a terminal: it finds a control plane, or offers the demo."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.controlplane_rig import deck, embedded_engine
from tests.test_console_tmux import ROOT, Tmux, tmux

NOBODY = "http://127.0.0.1:9"
in_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


def bare(url: str) -> tuple[str, ...]:
    """``specdeck``, and a shell that says how it ended and stays."""
    line = f"SPECDECK_URL={url} {sys.executable} -m engine_patch.dispatch; echo ended $?; sleep 600"
    return ("sh", "-c", line)


def asked(session: Tmux) -> None:
    """Wait for the question."""
    session.reads(f"no control plane answers at {NOBODY}", "specdeck serve", "[y/N]")


@in_tmux
def test_a_control_plane_that_answers_is_opened(tmp_path: Path) -> None:
    database = str(tmp_path / "deck.sqlite3")
    with (
        embedded_engine() as engine,
        deck(["--database", database, "--engine", engine.url], os.environ) as running,
        tmux(80, 24, *bare(running.url)) as session,
    ):
        session.reads("LIVE ●", "[2 Live]", seconds=60)
        session.press("q")
        session.reads("ended 0")


@in_tmux
@pytest.mark.parametrize("answer", ["n", "", "perhaps"])
def test_anything_but_yes_leaves_the_demo_alone(answer: str) -> None:
    with tmux(80, 24, *bare(NOBODY)) as session:
        asked(session)
        session.press(*answer, "Enter")
        session.reads("ended 3")


@in_tmux
def test_yes_opens_the_demo() -> None:
    with tmux(80, 24, *bare(NOBODY)) as session:
        asked(session)
        session.press("y", "Enter")
        session.reads("LIVE ●", "SIMULATED", seconds=90)
        session.press("q")
        session.reads("ended 0", seconds=60)


def test_without_a_terminal_nothing_is_asked() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "engine_patch.dispatch"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
        cwd=ROOT,
        env={**os.environ, "SPECDECK_URL": NOBODY},
    )
    assert answer.returncode == 3
    assert "specdeck serve" in answer.stderr
    assert "[y/N]" not in answer.stderr
