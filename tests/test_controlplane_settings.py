"""Settings: precedence, bounds, places of mistakes, and that the page lists every one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from controlplane import settings_reference, toml_file
from controlplane.settings import Settings, engine_id, is_loopback, state_dir
from controlplane.settings_load import ConfigError, load
from store.policies import HysteresisPolicy

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(autouse=True)
def clean_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The developer's own files and variables must not decide a result."""
    for name in list(os.environ):
        if name.startswith("SPECDECK_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "given.toml"
    path.write_text(text)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path)
    return str(caught.value)


def test_everything_has_a_default() -> None:
    settings, warnings = load()
    assert (settings.listen.host, settings.listen.port) == ("127.0.0.1", 7311)
    assert settings.engines == ()
    assert warnings == []


def test_the_command_line_outranks_the_environment_which_outranks_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, 'holder = "file"\n[listen]\nhost = "::1"\nport = 1\n')
    monkeypatch.setenv("SPECDECK_LISTEN__PORT", "2")
    monkeypatch.setenv("SPECDECK_HOLDER", "environment")
    settings, _ = load(path)
    assert (settings.listen.host, settings.listen.port, settings.holder) == (
        "::1",
        2,
        "environment",
    )
    settings, _ = load(path, {"listen": {"port": 3}})
    assert (settings.listen.host, settings.listen.port) == ("::1", 3)


def test_a_file_in_the_working_folder_is_found_before_the_user_s(tmp_path: Path) -> None:
    user = tmp_path / "config" / "specdeck"
    user.mkdir(parents=True)
    (user / "specdeck.toml").write_text('holder = "user"\n')
    assert load()[0].holder == "user"
    (tmp_path / "specdeck.toml").write_text('holder = "here"\n')
    assert load()[0].holder == "here"


def test_an_engine_without_an_id_is_named_after_its_address() -> None:
    settings, _ = load(None, {"engines": [{"url": "http://h200-0.lab:30000/"}]})
    assert settings.engines[0].id == "h200-0.lab-30000"
    assert settings.engines[0].url == "http://h200-0.lab:30000"
    assert engine_id("https://[::1]") == "1-443"


def test_a_policy_can_be_given_per_engine(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
[[engines]]
id = "a"
url = "http://127.0.0.1:30000"
stance = "active"
[engines.policy]
kind = "hysteresis"
tiers = ["s3k1d4", "off"]
boundaries = [{up_at = 24, down_at = 16}]
up_hold_s = 1.5
""",
    )
    policy = load(path)[0].engines[0].policy
    assert isinstance(policy, HysteresisPolicy)
    assert policy.up_hold_s == 1.5


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a = [1,\nb = 3", "given.toml:2:1: not TOML", "Invalid value"),
        ("[listen]\nport = 99999", "given.toml:2:1: listen.port", "65535"),
        ("[listen]\n  prot = 1", "given.toml:2:3: listen.prot", "valid here: host, hosts, port"),
        ("databse = 'x'", "given.toml:1:1: databse", "database"),
        ("[[engines]]\nid = 'a'", "given.toml:1:1: engines[0].url", "is required"),
        (
            "[[engines]]\nurl='http://a'\n[[engines]]\nurl='ftp://b'",
            "given.toml:4:1: engines[1].url",
            "write http://HOST:PORT",
        ),
        (
            "[[engines]]\nurl='http://u:secret@a'",
            "given.toml:2:1: engines[0].url",
            "keep credentials out of the URL",
        ),
        (
            "[[engines]]\nurl='http://a'\n[engines.policy]\nkind='hysteresis'\ntiers=['off']\n"
            "up_hold=1",
            "given.toml:6:1: engines[0].policy.up_hold",
            "up_hold_s",
        ),
        ("[[tokens]]\nname='a'", "given.toml:1:1: tokens[0]", "exactly one of token_file"),
        ("[listen]\nhost='0.0.0.0'", "given.toml", "add a [[tokens]] table"),
        (
            "[[engines]]\nid='a'\nurl='http://a'\n[[engines]]\nid='a'\nurl='http://b'",
            "given.toml",
            "engine id a appears twice",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place_and_what_is_allowed(
    tmp_path: Path, text: str, place: str, words: str
) -> None:
    message = refusal(write(tmp_path, text))
    assert place in message
    assert words in message
    assert "secret" not in message


def test_every_mistake_gets_its_own_line(tmp_path: Path) -> None:
    message = refusal(write(tmp_path, "x = 1\n[listen]\nport = -1\n"))
    assert len(message.splitlines()) == 2


def test_a_mistake_in_the_environment_is_named_with_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "[listen]\nport = 5\n")
    monkeypatch.setenv("SPECDECK_LISTEN__PORT", "many")
    assert refusal(path).startswith("environment variable SPECDECK_LISTEN__PORT: listen.port")
    monkeypatch.setenv("SPECDECK_LISTEN__PORT", "5")
    monkeypatch.setenv("SPECDECK_ENGINES", "{")
    assert "JSON" in refusal(path)


def test_a_mistake_on_the_command_line_says_so() -> None:
    with pytest.raises(ConfigError, match=r"^command line: engines\[0\]\.url"):
        load(None, {"engines": [{"url": "30000"}]})


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    assert "nowhere.toml: cannot be read: No such file" in refusal(tmp_path / "nowhere.toml")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    assert "is not UTF-8" in refusal(binary)


def test_an_unknown_variable_is_warned_about_and_the_clients_ones_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPECDECK_DATABSE", "x")
    monkeypatch.setenv("SPECDECK_TOKEN", "of a client")
    warnings = load()[1]
    assert len(warnings) == 1
    assert "SPECDECK_DATABSE" in warnings[0]
    assert "SPECDECK_DATABASE" in warnings[0]


def test_a_token_in_clear_is_warned_about_and_never_shown(tmp_path: Path) -> None:
    path = write(tmp_path, "[[tokens]]\nname='ci'\ntoken='0123456789abcdefXYZ'\n")
    settings, warnings = load(path)
    assert "token ci stands in clear" in warnings[0]
    assert "0123456789abcdefXYZ" not in repr(settings) + warnings[0] + settings.model_dump_json()


def test_loopback_is_recognised_in_all_its_forms() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "[::1]"))
    assert is_loopback("localhost")
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "engine.lab"))


def test_the_database_lies_in_the_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere")
    assert Settings().database_location == "/somewhere/specdeck/specdeck.sqlite3"
    assert state_dir({"HOME": "/h"}).name == "specdeck"


def test_the_holder_stays_the_same_over_restarts_and_differs_by_port() -> None:
    one, again = Settings(), Settings()
    other, _ = load(None, {"listen": {"port": 7312}})
    assert one.holder_name == again.holder_name
    assert one.holder_name != other.holder_name


def test_the_settings_page_holds_the_reference_as_it_is_made() -> None:
    text = (DOCS / "settings.md").read_text(encoding="utf-8")
    assert settings_reference.reference() in text


def test_each_setting_has_a_sentence() -> None:
    for line in settings_reference.reference().splitlines():
        if line.startswith("| `"):
            assert line.rstrip(" |").endswith((".", ")")), line


def test_positions_survive_comments_quoted_keys_and_tables_in_arrays() -> None:
    text = '# a\n"listen".port = 1 # b\n[[engines]] # first\n[[ engines ]]\n  "url" = "x"\n'
    assert toml_file.locate(text, ("listen", "port")) == (2, 1)
    assert toml_file.locate(text, ("engines", 0, "url")) == (3, 1)
    assert toml_file.locate(text, ("engines", 1, "url")) == (5, 3)
    assert toml_file.locate(text, ("tokens",)) is None
