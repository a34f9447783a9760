"""The demo's child processes: started apart, watched, and gone when the demo is gone.

Each background child leads a process group of its own, so that Ctrl-C in the terminal reaches the
demo alone, which then stops them in order; and the whole group is ended, so that nothing a child
started is left over.  Where the system can do it (Linux), a child is also told to die with the
demo, so that even SIGKILL leaves nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Self

TERM_WAIT_S = 3.0
"""Seconds a child may take to end by itself before its group is killed."""
_PR_SET_PDEATHSIG = 1
_POLL_S = 0.02
_PLAIN_SCREEN = "\x1b[?1049l\x1b[?1000l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?25h"


class ChildError(Exception):
    """A child did not start or ended too early; the message holds the end of what it wrote."""


@dataclass
class Child:
    """A background process with its output in two files."""

    name: str
    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self.process.poll() is None

    def first_line(self) -> str | None:
        """The first complete line of its standard output, None while there is none."""
        text = self.out.read_text(errors="replace")
        line, newline, _ = text.partition("\n")
        return line if newline else None

    def wait_line(self, timeout_s: float) -> str:
        """Wait for the first line of its standard output.

        Raises:
            ChildError: it ended, or wrote nothing in time.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            line = self.first_line()
            if line is not None:
                return line
            self.check()
            time.sleep(_POLL_S)
        raise ChildError(f"{self.name} was not ready within {timeout_s:g} s{self.last_words()}")

    def wait(self, timeout_s: float) -> str:
        """Wait for its end and return its whole standard output.

        Raises:
            ChildError: it failed, or did not end in time.
        """
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ChildError(
                f"{self.name} did not end within {timeout_s:g} s{self.last_words()}"
            ) from None
        if code != 0:
            raise ChildError(f"{self.name} ended with code {code}{self.last_words()}")
        return self.out.read_text(errors="replace")

    def check(self) -> None:
        """See that it still runs.

        Raises:
            ChildError: it has ended.
        """
        code = self.process.poll()
        if code is not None:
            raise ChildError(f"{self.name} ended with code {code}{self.last_words()}")

    def last_words(self) -> str:
        """The end of what it wrote to its standard error, ready to be appended to a message."""
        lines = self.err.read_text(errors="replace").strip().splitlines()[-5:]
        return "".join(f"\n  {self.name}: {line}" for line in lines)

    def ask_to_end(self) -> None:
        """Ask it to end, without waiting."""
        if self.running:
            self._signal(signal.SIGTERM)

    def stop(self, wait_s: float = TERM_WAIT_S) -> None:
        """End it and everything in its group: asked first, then killed."""
        if self.running:
            self.ask_to_end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(wait_s)
        # Also when it ended by itself: something it started may be left in its group.
        self._signal(signal.SIGKILL)
        self.process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


@dataclass
class Children:
    """All background children of a demo; leaving the context stops them, last started first."""

    folder: Path
    environment: dict[str, str]
    started: list[Child] = field(default_factory=list)

    def start(self, name: str, *words: str) -> Child:
        """Start ``python -m`` with these words in the background."""
        out, err = self.folder / f"{name}.out", self.folder / f"{name}.err"
        with out.open("wb") as to_out, err.open("wb") as to_err:
            process = subprocess.Popen(
                [sys.executable, "-m", *words],
                stdin=subprocess.DEVNULL,
                stdout=to_out,
                stderr=to_err,
                env=self.environment,
                start_new_session=True,
                preexec_fn=dies_with_parent(),
            )
        child = Child(name, process, out, err)
        self.started.append(child)
        return child

    @contextlib.contextmanager
    def foreground(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """Give the terminal to ``python -m`` with these words; leaving the context ends it."""
        with kept_terminal():
            process = subprocess.Popen(
                [sys.executable, "-m", *words],
                env=self.environment,
                # Not a group of its own: only the foreground group may read from the terminal.
                preexec_fn=dies_with_parent(),
            )
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.terminate()
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(TERM_WAIT_S)
                if process.poll() is None:
                    process.kill()
                    process.wait()

    def check(self, *names: str) -> None:
        """See that the named children still run.

        Raises:
            ChildError: one has ended.
        """
        for child in self.started:
            if child.name in names:
                child.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        stopped: Stopped | None = None
        while self.started:
            try:
                # All are asked before the first is waited for: they end side by side.
                for child in reversed(self.started):
                    child.ask_to_end()
                while self.started:
                    self.started[-1].stop()
                    self.started.pop()
            except Stopped as stop:
                # Impatience must not save the remaining ones; it comes only once.
                stopped = stop
        if stopped is not None:
            raise stopped


def dies_with_parent() -> Callable[[], None] | None:
    """What a child must do before it becomes its program, to be killed when this process dies.

    None where the system has no such thing.
    """
    if not sys.platform.startswith("linux"):
        return None
    # Looked up before the fork: between fork and exec little is safe to do.
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return in_child


@contextlib.contextmanager
def kept_terminal() -> Iterator[None]:
    """Put the terminal back as it was, whatever the program that had it did not get to."""
    try:
        import termios
    except ImportError:
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        # Leave the second screen, stop mouse and paste reports, show the cursor.
        sys.stdout.write(_PLAIN_SCREEN)
        sys.stdout.flush()


def clean_environment(environment: dict[str, str], folder: Path) -> dict[str, str]:
    """The environment of the children: the caller's own settings of specdeck must not leak in."""
    kept = {name: value for name, value in environment.items() if not name.startswith("SPECDECK_")}
    # Also the usual places of settings and of the database point into the demo's folder.
    return {
        **kept,
        "XDG_CONFIG_HOME": str(folder),
        "XDG_STATE_HOME": str(folder),
        "PYTHONUNBUFFERED": "1",
    }


class Stopped(BaseException):
    """A signal asked the demo to end; not an Exception, so that nothing swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def stopped_by(*numbers: signal.Signals) -> Iterator[None]:
    """Turn the first of these signals into ``Stopped``, and ignore them while it cleans up.

    A signal that is ignored already (SIGHUP under nohup) stays so.
    """
    handlers = {number: signal.getsignal(number) for number in numbers}
    before = {number: held for number, held in handlers.items() if held is not signal.SIG_IGN}

    def stop(number: int, _: FrameType | None) -> None:
        for every in before:
            signal.signal(every, signal.SIG_IGN)
        raise Stopped(number)

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
