"""The command: what it says, and with which exit code, when it cannot open."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.cli import CANNOT_START, OK, REFUSED, UNREACHABLE, USAGE, run
from tests.controlplane_rig import ENGINE, control_plane, settings_of

TOKEN = "a-token-of-the-tests-that-is-long-enough-0123"


@pytest.fixture
def nobody() -> Iterator[str]:
    """The URL of a port that is taken and never answers a connection."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The developer's own settings decide nothing here."""
    for name in ("SPECDECK_URL", "SPECDECK_TOKEN", "SPECDECK_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_without_a_control_plane_it_names_the_commands_that_start_one(
    nobody: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([nobody]) == UNREACHABLE
    out, err = capsys.readouterr()
    assert out == ""
    assert f"no control plane answers at {nobody}" in err
    assert "specdeck serve" in err
    assert "specdeck demo" in err


def test_the_url_may_come_from_the_environment_or_an_option(
    nobody: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPECDECK_URL", nobody)
    assert run([]) == UNREACHABLE
    assert nobody in capsys.readouterr().err
    monkeypatch.setenv("SPECDECK_URL", "http://127.0.0.1:1")
    assert run(["--url", nobody]) == UNREACHABLE
    assert nobody in capsys.readouterr().err


@pytest.mark.parametrize("url", ["127.0.0.1:7311", "ftp://example", "http://"])
def test_what_is_no_url_is_refused_with_how_to_write_one(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([url]) == USAGE
    assert "write http://HOST:PORT" in capsys.readouterr().err


def test_an_unknown_option_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--colour"]) == USAGE
    assert "--colour" in capsys.readouterr().err


def test_help_explains_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == OK
    text = capsys.readouterr().out
    for option in ("--engine", "--readonly", "--ascii", "--utc", "--author", "--token-file"):
        assert option in text


def test_a_token_file_that_cannot_be_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "token"
    assert run(["--token-file", str(missing)]) == USAGE
    err = capsys.readouterr().err
    assert f"cannot read the token file {missing}" in err
    assert "No such file" in err


async def test_a_wrong_token_is_refused_and_never_printed(
    tmp_path: Path, nobody: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "right").write_text(TOKEN)
    (tmp_path / "right").chmod(0o600)
    (tmp_path / "wrong").write_text("some-other-token-that-nobody-was-given-00")
    token = {"name": "op1", "role": "operate", "token_file": str(tmp_path / "right")}
    settings = settings_of(tmp_path, nobody, tokens=[token])
    async with control_plane(settings) as running:
        words = [running.url, "--token-file", str(tmp_path / "wrong")]
        assert await asyncio.to_thread(run, words) == REFUSED
    err = capsys.readouterr().err
    assert "token" in err
    assert "--token-file" in err
    assert "some-other-token" not in err


async def test_an_unknown_engine_is_refused_with_those_that_exist(
    tmp_path: Path, nobody: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with control_plane(settings_of(tmp_path, nobody)) as running:
        assert await asyncio.to_thread(run, [running.url, "--engine", "h100"]) == USAGE
    err = capsys.readouterr().err
    assert "knows no engine 'h100'" in err
    assert ENGINE in err


async def test_without_a_terminal_it_points_to_the_command_for_scripts(
    tmp_path: Path, nobody: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with control_plane(settings_of(tmp_path, nobody)) as running:
        assert await asyncio.to_thread(run, [running.url]) == CANNOT_START
    assert "specdeck status --json" in capsys.readouterr().err


def test_a_console_that_only_watches_loads_nothing_of_benchmarks_replays_and_the_browser() -> None:
    code = (
        "import sys, console.cli, console.app, console.screens.live; "
        "print(*[name for name in sys.modules if name.startswith(("
        "'controlplane.bench', 'controlplane.whatif', 'controlplane.sessions', "
        "'controlplane.replay', 'console.screens.bench', 'console.screens.replay', "
        "'console.screens.sessions', 'console.web', 'textual_serve', 'aiohttp'))])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # The client's own module of these calls has no records in it.
    assert told.stdout.split() in ([], ["controlplane.sessions_client"])
