"""The console in a real terminal: a pseudo-terminal, a process, keys typed into it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from tests.console_terminal import Terminal
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


def test_it_opens_shows_the_engine_and_q_leaves_the_terminal_as_it_was(url: str) -> None:
    with Terminal(url) as terminal:
        terminal.until(b"ON s3k1d4")
        terminal.until(b"SIMULATED")
        terminal.press(b"?")
        terminal.until(b"This page")
        assert terminal.leave() == 0
        assert b"\x1b[?1049h" in terminal.written
        assert b"\x1b[?1049l" in terminal.written
        assert b"\x1b[?25h" in terminal.written
        assert COLOUR.search(terminal.written)
        assert b"Traceback" not in terminal.written


def test_no_color_is_honoured(url: str) -> None:
    with Terminal(url, NO_COLOR="1") as terminal:
        terminal.until(b"ON s3k1d4")
        terminal.until(b"LIVE")
        terminal.press(b"m")
        terminal.until(b"Set override")
        assert terminal.leave() == 0
        found = COLOUR.search(terminal.written)
        assert found is None, found


def test_ascii_writes_ascii_alone(url: str) -> None:
    with Terminal(url, "--ascii", "--utc") as terminal:
        terminal.until(b"ON s3k1d4")
        terminal.until(b"LIVE")
        terminal.press(b"m")
        terminal.until(b"Set override")
        assert terminal.leave() == 0
        assert terminal.written.isascii(), set(terminal.written.decode("utf-8", "replace")) - set(
            map(chr, range(128))
        )


def test_ctrl_c_leaves_as_q_does(url: str) -> None:
    with Terminal(url) as terminal:
        terminal.until(b"ON s3k1d4")
        terminal.press(b"\x03")
        assert terminal.end() == 0
        assert b"\x1b[?1049l" in terminal.written


def test_a_console_whose_terminal_vanished_ends_instead_of_spinning(url: str) -> None:
    with Terminal(url) as terminal:
        terminal.until(b"ON s3k1d4")
        os.close(terminal.master)
        terminal.master = os.open(os.devnull, os.O_RDWR)
        terminal.process.wait(30)
