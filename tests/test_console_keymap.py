"""The settings file and its key map."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.cli import OK, USAGE, run
from console.config import ConsoleConfigError, read_config
from console.keymap import bindings, check, scopes, table
from console.screens.set_override import SetOverride
from tests.console_pictures import Picture, opened
from tests.frames import frame


def test_every_binding_of_the_frame_has_an_id() -> None:
    named = bindings()
    for name in ("override", "place.fleet", "list.down", "thresholds", "filter", "quit", "copy"):
        assert name in named
    assert "override" in table()
    assert set(scopes()) >= {"fleet", "live", "decisions", "tiers", "kv", "audit"}


def test_no_screen_has_one_key_for_two_things() -> None:
    check({})
    for screen, scope in scopes().items():
        keys = [key for binding in scope for key in binding.key.split(",")]
        assert len(set(keys)) == len(keys), (screen, sorted(keys))


def test_an_unknown_id_and_a_key_given_twice_are_refused() -> None:
    with pytest.raises(ConsoleConfigError, match="no binding 'overide'"):
        check({"overide": "o"})
    with pytest.raises(ConsoleConfigError, match="x is the key of"):
        check({"override": "x"})
    with pytest.raises(ConsoleConfigError, match="without a key"):
        check({"override": " "})
    check({"override": "x", "release": "m"})


async def test_a_remapped_key_acts_is_shown_and_the_old_one_is_free() -> None:
    async with opened(Picture("any", options={"keymap": {"override": "o"}})) as (app, pilot):
        assert "o Override" in frame(app)
        await pilot.press("m")
        await pilot.pause()
        assert not isinstance(app.screen, SetOverride)
        await pilot.press("o")
        await pilot.pause()
        assert isinstance(app.screen, SetOverride)


def test_the_file_is_read_and_what_is_wrong_in_it_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "console.toml"
    file.write_text('theme = "specdeck-light"\nutc = true\n[keymap]\noverride = "o"\n')
    known = read_config(file)
    assert (known.theme, known.utc, known.keymap) == ("specdeck-light", True, {"override": "o"})
    for text, words in (
        ("theme = ", "console.toml: "),
        ("colour = 1", "keys are: theme"),
        ('utc = "maybe"', "utc"),
        ('[keymap]\nnothing = "o"', "no binding 'nothing'"),
    ):
        file.write_text(text)
        assert run(["--config", str(file)]) == USAGE
        assert words in capsys.readouterr().err
    assert run(["--config", str(tmp_path / "none.toml")]) == USAGE
    assert "no such file" in capsys.readouterr().err


def test_keys_prints_every_id(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--keys"]) == OK
    assert "place.fleet" in capsys.readouterr().out
