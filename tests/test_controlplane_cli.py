"""The commands in processes of their own: output, exit codes, and what a person is told."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controlplane.__main__ import main
from controlplane.cli import run_override, run_serve, run_status
from store.db import Store
from tests.controlplane_rig import EmbeddedEngine, deck, embedded_engine

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4") as running:
        yield running


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The developer's own files and variables must not decide a result."""
    for name in list(os.environ):
        if name.startswith("SPECDECK_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


Refused = Callable[..., str]


@pytest.fixture
def refused(capfd: pytest.CaptureFixture[str]) -> Refused:
    """Runs a ``serve`` that cannot start; answers with what a person is told."""

    def run(*arguments: str) -> str:
        capfd.readouterr()
        assert run_serve(["--port", "0", *arguments]) == 5
        out, err = capfd.readouterr()
        assert out == ""
        assert err.startswith("specdeck: ")
        assert "Traceback" not in err
        return err

    return run


def test_the_commands_tell_the_whole_story(
    engine: EmbeddedEngine,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--engine", engine.url, "--database", str(tmp_path / "a.sqlite3")]
    with deck(arguments, os.environ) as running:
        at = ["--url", running.url]
        name = engine.url.removeprefix("http://").replace(":", "-")
        while run_status([*at, "--json"]) != 0:
            capfd.readouterr()
        status = json.loads(capfd.readouterr().out)
        assert status["engines"][0]["engine"]["engine_id"] == name
        assert status["degraded"] == {}
        set_off = ["set", name, "--mode", "off", "--for", "10m", "--reason", "load test"]
        assert run_override([*set_off, "--author", "alice", "--wait", "5s", *at]) == 0
        assert "off by alice, 10m left, guards keep: load test" in capfd.readouterr().out
        assert run_override(["extend", name, "--by", "5m", "--json", *at]) == 0
        assert json.loads(capfd.readouterr().out)["override"]["granted_s"] == 900
        assert run_status(at) == 0
        text = capfd.readouterr().out
        assert "confirmed off" in text
        assert "override  off by alice" in text
        assert "accept length - tok" in text
        assert "simulated times" in text
        assert run_override(["release", name, *at]) == 0
        assert capfd.readouterr().out == "no override is in force\n"
        assert run_override(["release", name, *at]) == 4
        assert "no override is in force" in capfd.readouterr().err
        assert run_override([*set_off[:2], *set_off[2:], "--tier", "off", *at]) == 2
        assert "takes no tier" in capfd.readouterr().err
        wrong = ["set", name, "--mode", "on", "--tier", "s2k4d16", "--for", "1m", "--reason", "x"]
        assert run_override([*wrong, *at]) == 4
        assert "built are" in capfd.readouterr().err
        assert run_override(["release", "nobody", *at]) == 4
        engine.fault(hang=60)
        while (code := run_status(at)) == 0:
            capfd.readouterr()
        engine.fault(clear=True)
        assert code == 6
        assert "! not reached: " in capfd.readouterr().out
        code, errors, took = running.end(signal.SIGINT)
    assert code == 0
    assert "Traceback" not in errors
    assert took < 10


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["status", "--url", "http://127.0.0.1:1"], 3, "no control plane answers"),
        (["status", "--url", "nonsense"], 2, "write http://HOST:PORT"),
        (["status", "--token-file", "/nowhere"], 2, "cannot read the token file"),
        (["override", "extend", "e", "--by", "5"], 2, "write it like 90s"),
        (["override", "set", "e", "--mode", "on", "--for", "1m"], 2, "--reason"),
        (["override", "set", "e", "--mode", "up", "--for", "1m", "--reason", "x"], 2, "'up'"),
        (["status", "--nonsense"], 2, "--nonsense"),
        (["nonsense"], 2, "usage"),
        ([], 2, "usage"),
    ],
)
def test_each_mistake_has_its_code_and_sentence(
    capfd: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    assert main(arguments) == code
    out, err = capfd.readouterr()
    assert words in err
    assert out == ""


def test_bad_settings_stop_the_start(refused: Refused, tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("[listen]\nhosts = 5\n")
    assert f"{bad}:2:1: listen.hosts: " in refused("--config", str(bad))
    bad.write_text("holder = 5 5\n")
    assert f"{bad}:1:" in refused("--config", str(bad))
    assert "command line: engines[0].url" in refused("--engine", "30000")


def test_listening_beyond_this_machine_needs_a_token(refused: Refused) -> None:
    assert "add a [[tokens]] table" in refused("--host", "0.0.0.0")


def test_a_taken_port_stops_the_start_and_leaves_the_database_alone(
    refused: Refused, tmp_path: Path
) -> None:
    database = tmp_path / "none.sqlite3"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        told = refused("--port", str(port), "--database", str(database))
    assert f"port {port} on 127.0.0.1 is taken" in told
    assert not database.exists()


def test_an_unusable_database_stops_the_start_and_is_left_as_it_is(
    refused: Refused, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.sqlite3"
    broken.write_bytes(b"this is no database, but somebody's file" * 50)
    before = broken.read_bytes()
    assert "broken.sqlite3" in refused("--database", str(broken))
    assert broken.read_bytes() == before
    newer = tmp_path / "newer.sqlite3"
    with closing(sqlite3.connect(newer)) as file, file:
        file.execute("create table meta (key text primary key, value text)")
        file.execute("pragma user_version = 999")
    assert "newer.sqlite3" in refused("--database", str(newer))


def test_a_second_control_plane_on_the_same_database_is_refused(
    refused: Refused, tmp_path: Path
) -> None:
    database = str(tmp_path / "one.sqlite3")
    with Store.open(database):
        assert "is open for writing by" in refused("--database", database)


def test_a_missing_admin_key_stops_the_start_before_anything_is_made(
    refused: Refused, tmp_path: Path
) -> None:
    config = tmp_path / "deck.toml"
    config.write_text(
        "[[engines]]\nid='a'\nurl='http://127.0.0.1:1'\nadmin_key_file='/nowhere/key'\n"
    )
    told = refused("--config", str(config))
    assert "engine a: admin key: cannot read /nowhere/key" in told
    assert not (tmp_path / "specdeck").exists()


def test_no_engine_is_a_warning_and_a_token_in_clear_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "deck.toml"
    config.write_text("[[tokens]]\nname='ops'\nrole='operate'\ntoken='a-secret-token-0001'\n")
    with deck(["--config", str(config)], os.environ) as running:
        assert run_status(["--url", running.url]) == 4
        monkeypatch.setenv("SPECDECK_TOKEN", "a-secret-token-0001")
        assert run_status(["--url", running.url]) == 0
        _, errors, _ = running.end(signal.SIGTERM)
    assert "no engine is configured" in errors
    assert "token ops stands in clear" in errors
    assert "a-secret-token-0001" not in errors


def test_help_is_given(capfd: pytest.CaptureFixture[str]) -> None:
    for run in (run_serve, run_status, run_override):
        assert run(["--help"]) == 0
    assert "--database" in capfd.readouterr().out


def test_the_page_lists_every_exit_code() -> None:
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    for code in (0, 2, 3, 4, 5, 6, 7):
        assert f"\n| {code} | " in text
