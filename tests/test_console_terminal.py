"""The console in a real terminal: a pseudo-terminal, a process, keys typed into it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane_rig import deck, embedded_engine

COLOUR = re.compile(rb"\x1b\[[0-9;]*?\b(?:3[0-7]|4[0-7]|38;[25]|48;[25]|9[0-7]|10[0-7])\b[0-9;]*m")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A control plane with an embedded engine."""
    database = str(tmp_path_factory.mktemp("deck") / "deck.sqlite3")
    with (
        embedded_engine("--tp", "2") as engine,
        deck(["--database", database, "--engine", engine.url], os.environ) as running,
    ):
        yield running.url


class Terminal:
    """``specdeck console`` in an 80x24 terminal."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        given = {"TERM": "xterm-256color", "COLORTERM": "truecolor"} | environment
        kept = {k: v for k, v in os.environ.items() if k != "NO_COLOR" and "SPECDECK" not in k}
        code = "import sys; from console.cli import run; sys.exit(run(sys.argv[1:]))"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=kept | given,
            cwd=Path(__file__).resolve().parent.parent,
            start_new_session=True,
        )
        os.close(slave)
        self.written = b""

    def until(self, words: bytes, seconds: float = 20.0) -> None:
        """Read until ``words`` were written to the terminal."""
        end = time.monotonic() + seconds
        while words not in self.written:
            assert time.monotonic() < end, self.written[-3000:]
            self._read(0.1)

    def _read(self, seconds: float) -> None:
        if select.select([self.master], [], [], seconds)[0]:
            try:
                self.written += os.read(self.master, 65536)
            except OSError:
                # Linux reports the far end's closing as an error.
                return

    def press(self, keys: bytes) -> None:
        """Type ``keys``."""
        os.write(self.master, keys)

    def end(self, seconds: float = 10.0) -> int:
        """The exit code, once the process has ended."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < end, "the console does not end"
            self._read(0.1)
        return self.process.returncode

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)


def test_it_opens_shows_the_engine_and_q_leaves_the_terminal_as_it_was(url: str) -> None:
    with Terminal(url) as terminal:
        terminal.until(b"ON s3k1d4")
        terminal.until(b"SIMULATED")
        terminal.press(b"?")
        terminal.until(b"This page")
        terminal.press(b"\x1b")
        time.sleep(0.5)
        terminal.press(b"q")
        assert terminal.end() == 0
        assert b"\x1b[?1049h" in terminal.written
        assert b"\x1b[?1049l" in terminal.written
        assert b"\x1b[?25h" in terminal.written
        assert COLOUR.search(terminal.written)
        assert b"Traceback" not in terminal.written


def test_no_color_is_honoured(url: str) -> None:
    with Terminal(url, NO_COLOR="1") as terminal:
        terminal.until(b"ON s3k1d4")
        terminal.press(b"m")
        terminal.until(b"Set override")
        terminal.press(b"\x1b")
        time.sleep(0.5)
        terminal.press(b"q")
        assert terminal.end() == 0
        found = COLOUR.search(terminal.written)
        assert found is None, found


def test_ascii_writes_ascii_alone(url: str) -> None:
    with Terminal(url, "--ascii", "--utc") as terminal:
        terminal.until(b"ON s3k1d4")
        terminal.press(b"m")
        terminal.until(b"Set override")
        terminal.press(b"\x1b")
        time.sleep(0.5)
        terminal.press(b"q")
        assert terminal.end() == 0
        assert terminal.written.isascii(), set(terminal.written.decode("utf-8", "replace")) - set(
            map(chr, range(128))
        )
