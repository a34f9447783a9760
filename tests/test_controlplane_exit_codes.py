"""Exit codes: the table in ``docs/cli.md`` names every command, and each does as it says."""

from __future__ import annotations

import re
import socket
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from importlib import metadata
from pathlib import Path

import pytest

from store.db import Store
from store.records import AuditEntry
from tests.controlplane_rig import EmbeddedEngine, deck, embedded_engine

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
COMMANDS = {one.name: one for one in metadata.entry_points(group="specdeck.commands")}
TOKEN = "operating-token-0001"

ASKING: dict[str, list[str]] = {
    "status": [],
    "override": ["show", "e1"],
    "policy": ["show", "e1"],
    "pause": ["e1"],
    "resume": ["e1"],
    "pin": ["e1", "off", "--for", "1m"],
    "fleet": ["sources"],
    "audit": ["list"],
    "record": ["list"],
    "bench": ["list", "e1"],
}
"""Words of commands that ask a control plane, but ``--url``."""
FILES: dict[str, list[str]] = {
    "replay": ["FILE", "--verify"],
    "what-if": ["FILE", "--policy", "POLICY"],
    "compare": ["FILE", "FILE"],
    "report": ["FILE"],
    "audit": ["verify", "--database", "FILE"],
    "record": ["list", "--database", "FILE"],
    "store": ["check", "FILE"],
}
"""Words of commands that read a file, which is not there."""
ELSEWHERE = {
    ("audit", 6): "test_store_audit_chain.py",
    ("bench", 5): "test_controlplane_benchrun_servers.py",
    ("demo", 5): "test_engine_patch_demo.py",
    ("doctor", 4): "test_controlplane_doctor.py",
    ("doctor", 6): "test_controlplane_doctor.py",
    ("engine", 1): "test_engine_patch_check.py",
    ("fleet", 6): "test_controlplane_sources.py",
    ("replay", 6): "test_controlplane_sessions_cli.py",
    ("status", 6): "test_controlplane_cli.py",
    ("serve", 5): "test_controlplane_cli.py",
}
"""Codes whose making is long, and the test that makes them."""


NOT_MADE = {("bench", 6), ("demo", 6)}
"""How a whole measured run went: no test waits for a bad one."""


def table() -> dict[str, set[int]]:
    """The codes by command, as the page has them."""
    part = PAGE.split("By command,")[1].split("\n## ")[0]
    found: dict[str, set[int]] = {}
    for names, text in re.findall(r"^\| (`.*?`) \| (.*) \|$", part, re.MULTILINE):
        codes = {int(code) for code in re.findall(r"(?:^|[,;:] )(\d)\b", text)}
        found |= dict.fromkeys(re.findall(r"`([\w-]+)`", names), codes)
    return found


def run(name: str, words: Sequence[str]) -> int:
    command: Callable[[list[str]], int] = COMMANDS[name].load()
    return command(list(words))


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SPECDECK_URL", "SPECDECK_TOKEN", "SPECDECK_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", "off,s3k1d4") as started:
        yield started


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A control plane that wants a token."""
    folder = tmp_path_factory.mktemp("guarded")
    environment = {
        "SPECDECK_TOKENS": f'[{{"name": "ops", "role": "operate", "token": "{TOKEN}"}}]',
        "SPECDECK_ENGINES": '[{"id": "e1", "url": "http://127.0.0.1:9"}]',
        "PATH": "/usr/bin:/bin",
    }
    with deck(["--database", str(folder / "d.sqlite3")], environment) as running:
        yield running.url


def test_every_command_has_its_codes() -> None:
    assert set(table()) == set(COMMANDS)
    assert all(codes for codes in table().values())
    general = PAGE.split("## Exit codes")[1].split("By command,")[0]
    named = {int(code) for code in re.findall(r"^\| (\d+) \|", general, re.MULTILINE)}
    assert {code for codes in table().values() for code in codes} | {2, 7, 130} == named


def test_every_code_is_made_somewhere() -> None:
    here = {(name, code) for name in ASKING for code in (3, 4)} | {(name, 5) for name in FILES}
    here |= {("override", 6), ("policy", 6), ("pin", 6), ("web", 4), ("web", 5)}
    here |= {("store", 6)} | NOT_MADE
    here |= {(name, 3) for name in ("console", "open", "web", "doctor", "engine")}
    here |= {(name, 4) for name in ("console", "open", "engine")}
    wanted = {(name, code) for name, codes in table().items() for code in codes if code}
    assert wanted - here - set(ELSEWHERE) == set()
    assert set(ELSEWHERE) - wanted == set()
    assert [name for name in ELSEWHERE.values() if not (ROOT / "tests" / name).exists()] == []


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_wrong_command_line_is_2(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(name, ["--nonsense"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert "usage" in err.lower()


@pytest.mark.parametrize("name", sorted(ASKING))
def test_nobody_there_is_3(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(name, [*ASKING[name], "--url", "http://127.0.0.1:1"]) == 3
    assert "no control plane answers" in capfd.readouterr().err


@pytest.mark.parametrize("name", sorted(ASKING))
def test_a_missing_token_is_4(name: str, guarded: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(name, [*ASKING[name], "--url", guarded]) == 4
    assert "token" in capfd.readouterr().err


def test_other_commands_that_ask_say_3_and_4_too(
    guarded: str, engine: EmbeddedEngine, capfd: pytest.CaptureFixture[str]
) -> None:
    nobody = "http://127.0.0.1:1"
    moment = "/#engine=e1&seq=1&screen=live"
    for name, words in (
        ("console", [nobody]),
        ("open", [nobody + moment]),
        ("web", [nobody]),
        ("doctor", [nobody]),
        ("engine", ["rebuild", nobody]),
    ):
        assert run(name, words) == 3, name
    for name, words in (
        ("console", [guarded]),
        ("open", [guarded + moment]),
        ("web", [engine.url]),
        ("engine", ["rebuild", engine.url]),
    ):
        assert run(name, words) == 4, name
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert run("web", [guarded, "--port", port]) == 5
    capfd.readouterr()


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_that_is_not_there_is_5(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.json"
    policy.write_text('{"kind": "fixed", "tier": "off"}')
    places = {"FILE": str(tmp_path / "nothing.specdeck"), "POLICY": str(policy)}
    assert run(name, [places.get(word, word) for word in FILES[name]]) == 5
    assert "nothing.specdeck" in capfd.readouterr().err


def test_a_record_that_was_tampered_with_is_6(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "d.sqlite3"
    with Store.open(path) as store:
        entries = [AuditEntry(at_utc_ms=1, actor="a", action="b", target="c")] * 3
        store.write(entries).result(timeout=10)
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("DROP TRIGGER audit_is_never_changed")
        raw.execute("UPDATE audit SET actor = 'mallory' WHERE id = 2")
        raw.commit()
    assert run("store", ["check", str(path)]) == 6
    assert run("audit", ["verify", "--database", str(path)]) == 6
    capfd.readouterr()


def test_what_is_not_confirmed_in_time_is_6(
    engine: EmbeddedEngine, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--engine", engine.url, "--database", str(tmp_path / "d.sqlite3")]
    name = engine.url.removeprefix("http://").replace(":", "-")
    with deck(arguments, {"PATH": "/usr/bin:/bin"}) as running:
        at = ["--url", running.url]
        while run("policy", ["show", name, *at]) != 0:
            capfd.readouterr()
        engine.fault(lie=True)
        try:
            off = ["--mode", "off", "--for", "1m", "--reason", "x", "--wait", "1s"]
            assert run("override", ["set", name, *off, *at]) == 6
            assert "did not confirm it" in capfd.readouterr().err
            assert run("pin", [name, "off", "--for", "1m", "--wait", "1s", *at]) == 6
            fixed = ["--kind", "fixed", "tier=off", "--stance", "active", "--wait", "1s"]
            assert run("override", ["release", name, *at]) == 0
            assert run("policy", ["set", name, *fixed, *at]) == 6
            assert "policy version 2 is in force" in capfd.readouterr().err
        finally:
            engine.fault(clear=True)
