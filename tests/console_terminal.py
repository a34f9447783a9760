"""``specdeck console`` in a pseudo-terminal: a process, keys typed into it, what it writes."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

CONSOLE = "console.cli:run"


class Terminal:
    """``specdeck console``, or another command, in a terminal of a given size."""

    def __init__(
        self,
        *arguments: str,
        columns: int = 80,
        rows: int = 24,
        command: str = CONSOLE,
        **environment: str,
    ) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        given = {"TERM": "xterm-256color", "COLORTERM": "truecolor"} | environment
        kept = {k: v for k, v in os.environ.items() if k != "NO_COLOR" and "SPECDECK" not in k}
        module, _, name = command.partition(":")
        code = f"import sys; from {module} import {name}; sys.exit({name}(sys.argv[1:]))"
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

    def until(self, words: bytes, seconds: float = 60.0) -> None:
        """Read until ``words`` were written to the terminal."""
        end = time.monotonic() + seconds
        while words not in self.written:
            assert time.monotonic() < end, self.written[-3000:]
            self._read(0.1)

    def read_for(self, seconds: float) -> None:
        """Read what is written for so long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._read(left)

    def read_some(self, seconds: float) -> None:
        """Read what is written next, waiting at most so long."""
        self._read(seconds)

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

    def leave(self, seconds: float = 60.0) -> int:
        """Press Escape, then q, until the process has ended; returns its exit code.

        On a machine that stood still meanwhile the two arrive in one piece and are read as Alt+q.
        """
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < end, "the console does not end"
            self.press(b"\x1b")
            self.read_for(0.5)
            self.press(b"q")
            with suppress(AssertionError):
                self.end(5.0)
        return self.process.returncode

    def end(self, seconds: float = 60.0) -> int:
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
