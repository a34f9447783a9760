"""``specdeck engine``: exit codes and words."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_patch import check, hooks


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """A folder that is an SGLang of which nothing is known."""
    (tmp_path / "sglang").mkdir()
    return tmp_path / "sglang"


def test_an_unknown_sglang_is_refused_with_the_whole_list(
    stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check.run(["check", "--root", str(stranger)]) == check.REFUSES
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("plugin refused: specdeck")
    modules = {touch.module for touch in hooks.TABLE if touch.older is None}
    assert modules <= {line.removeprefix("  no module ") for line in out[1:]}


def test_an_sglang_that_fits_is_said_to_fit(
    stranger: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "TABLE", ())
    assert check.run(["check", "--root", str(stranger)]) == check.FITS
    assert "untested" in capsys.readouterr().out


def test_without_sglang_it_says_how_to_get_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check.run(["check", "--root", str(tmp_path / "gone")]) == check.NO_ENGINE
    assert "pip install" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["nonsense"], ["check", "extra"], ["check", "--root"]])
def test_wrong_arguments_are_explained(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert check.run(words) == check.USAGE
    captured = capsys.readouterr()
    assert "usage: specdeck engine" in captured.out + captured.err


@pytest.mark.parametrize("words", [["--help"], ["check", "--help"]])
def test_help_is_no_error(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert check.run(words) == check.FITS
    assert "embedded" in capsys.readouterr().out


def test_the_embedded_engine_gets_its_own_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        check.run(["embedded", "--help"])
    assert stopped.value.code == 0
    assert "--tiers" in capsys.readouterr().out
