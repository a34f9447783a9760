"""The console in a real terminal multiplexer: keys typed through tmux, the pane read back."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.controlplane_rig import deck, embedded_engine

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
ROOT = Path(__file__).resolve().parent.parent
RUN = "import sys; from console.cli import run; sys.exit(run(sys.argv[1:]))"
DEAF = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH]); "
"""No thread is ever told that the terminal has another size."""


class Tmux:
    """One session of a tmux server of its own."""

    def __init__(self, columns: int, rows: int, *command: str) -> None:
        self._name = f"specdeck-test-{uuid.uuid4().hex[:8]}"
        size = ("-x", str(columns), "-y", str(rows))
        self.run("-f", "/dev/null", "new-session", "-d", "-s", "console", *size, *command)

    def run(self, *words: str) -> str:
        """One tmux command."""
        kept = {k: v for k, v in os.environ.items() if "SPECDECK" not in k and k != "NO_COLOR"}
        done = subprocess.run(
            ["tmux", "-L", self._name, *words],
            capture_output=True,
            text=True,
            check=False,
            # A size left over from another terminal must not hold.
            env=kept | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"},
            cwd=ROOT,
        )
        return done.stdout

    def press(self, *keys: str) -> None:
        """Type keys."""
        self.run("send-keys", "-t", "console", *keys)

    def pane(self) -> str:
        """What the terminal shows."""
        return self.run("capture-pane", "-p", "-t", "console")

    def reads(self, *words: str, seconds: float = 40.0) -> str:
        """Wait until all words are shown."""
        end = time.monotonic() + seconds
        while not all(word in (text := self.pane()) for word in words):
            assert time.monotonic() < end, text
            time.sleep(0.1)
        return text

    def leaves(self, word: str, seconds: float = 40.0) -> None:
        """Wait until ``word`` is shown no more."""
        end = time.monotonic() + seconds
        while word in (text := self.pane()):
            assert time.monotonic() < end, text
            time.sleep(0.1)

    @property
    def alive(self) -> bool:
        """Whether the session still runs."""
        return "console" in self.run("list-sessions")


@contextmanager
def tmux(columns: int, rows: int, *command: str) -> Iterator[Tmux]:
    """A session that is gone at the end."""
    session = Tmux(columns, rows, *command)
    try:
        yield session
    finally:
        session.run("kill-server")


def test_every_screen_opens_resizes_and_q_ends_it(tmp_path: Path) -> None:
    with (
        embedded_engine("--tiers", "off,s1k1d2,s3k1d4") as engine,
        deck(
            ["--database", str(tmp_path / "deck.sqlite3"), "--engine", engine.url], os.environ
        ) as running,
        tmux(80, 24, sys.executable, "-c", RUN, running.url, "--author", "op1") as session,
    ):
        session.reads("LIVE ●", "[2 Live]", "ON s3k1d4", "SIMULATED")
        for key, words in (
            ("1", "1 engine"),
            ("3", "[3 Decisions]"),
            ("4", "cost of a decode step"),
            ("5", "reserve per tier"),
            ("6", "service.start"),
        ):
            session.press(key)
            session.reads(words)
        session.press("2")
        session.reads("─ decisions ─")
        session.run("resize-window", "-t", "console", "-x", "120", "-y", "40")
        session.reads("─ KV slots ─")
        session.press("m")
        session.reads("Set override", "Cancel")
        # The focus is on Cancel: enter changes nothing.
        session.press("Enter")
        session.leaves("Set override")
        session.reads("none · m sets one")
        session.press("?")
        session.reads("This page")
        session.press("Escape")
        session.leaves("This page")
        session.reads("[2 Live]", "─ override ─")
        session.press("q")
        end = time.monotonic() + 30
        while session.alive:
            assert time.monotonic() < end, session.pane()
            time.sleep(0.1)


def test_a_resize_that_the_console_was_not_told_of_is_noticed(tmp_path: Path) -> None:
    with (
        embedded_engine("--tiers", "off,s1k1d2,s3k1d4") as engine,
        deck(
            ["--database", str(tmp_path / "deck.sqlite3"), "--engine", engine.url], os.environ
        ) as running,
        tmux(80, 24, sys.executable, "-c", DEAF + RUN, running.url) as session,
    ):
        session.reads("LIVE ●", "[2 Live]", "ON s3k1d4")
        session.run("resize-window", "-t", "console", "-x", "120", "-y", "40")
        session.reads("─ KV slots ─", "─ tiers ─")
        session.run("resize-window", "-t", "console", "-x", "80", "-y", "24")
        session.leaves("─ KV slots ─")
        session.reads("─ override ─")
