"""Tokens, roles, secrets and the guard against foreign pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.gate import allowed_hosts
from controlplane.security import Caller, Tokens, exposed, secret
from controlplane.settings import Settings
from controlplane.settings_access import Role, TokenSettings
from controlplane.settings_load import ConfigError, load

GOOD = "a-long-enough-token-1"


def test_a_token_is_found_by_its_exact_value_alone() -> None:
    tokens = Tokens([("ops", Role.OPERATE, GOOD), ("eye", Role.READ, GOOD + "2")])
    assert tokens.find(GOOD) == Caller("ops", may_operate=True)
    assert tokens.find(GOOD + "2") == Caller("eye", may_operate=False)
    assert all(tokens.find(value) is None for value in ("", GOOD[:-1], GOOD + " ", "ä" * 20))


def test_tokens_come_from_files_variables_and_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(GOOD + "\n")
    monkeypatch.setenv("OPS_TOKEN", GOOD + "-ops")
    tokens = Tokens.read(
        [
            TokenSettings(name="file", token_file=file),
            TokenSettings(name="env", role=Role.OPERATE, token_env="OPS_TOKEN"),
        ]
    )
    assert tokens.find(GOOD) == Caller("file", may_operate=False)
    assert tokens.find(GOOD + "-ops") == Caller("env", may_operate=True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("short", "at least 16 printable"),
        ("with a line\nbreak inside it", "printable"),
        ("", "is empty"),
    ],
)
def test_an_unfit_token_is_refused_without_showing_it(
    tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        Tokens.read([TokenSettings(name="ops", token_file=file)])
    assert not text or text not in str(caught.value)


def test_a_secret_that_cannot_be_read_names_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine a: admin key: cannot read .*none: No such"):
        secret("engine a: admin key", tmp_path / "none", None)
    with pytest.raises(ConfigError, match="environment variable NOT_SET is empty or not set"):
        secret("x", None, "NOT_SET")
    assert secret("x", None, None) is None


def test_the_same_token_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(GOOD)
    entries = [TokenSettings(name=name, token_file=file) for name in ("a", "b")]
    with pytest.raises(ConfigError, match="token b: is the same as another"):
        Tokens.read(entries)


def test_a_file_that_others_can_read_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(GOOD)
    file.chmod(0o644)
    assert exposed(file)
    file.chmod(0o600)
    assert not exposed(file)
    assert not exposed(tmp_path / "none")
    assert not exposed(None)


def test_the_author_on_record_names_the_token_that_was_used() -> None:
    assert Caller(None, may_operate=True).author("alice") == "alice"
    assert Caller("ops", may_operate=True).author("ops") == "ops"
    assert Caller("ops", may_operate=True).author("alice") == "alice (token ops)"
    assert len(Caller("ops", may_operate=True).author("a" * 200)) == 200


def test_only_loopback_names_may_stand_in_the_host_header_on_loopback() -> None:
    names = allowed_hosts(Settings())
    assert names == {"127.0.0.1", "localhost", "::1"}
    proxied, _ = load(None, {"listen": {"hosts": ["deck.lab"]}})
    assert "deck.lab" in (allowed_hosts(proxied) or ())
    token = {"name": "ops", "token_env": "OPS"}
    wide, _ = load(None, {"listen": {"host": "0.0.0.0"}, "tokens": [token]})
    assert allowed_hosts(wide) is None
