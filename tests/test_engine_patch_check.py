"""``specdeck engine``: exit codes and words."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from engine_patch import check, hooks
from engine_patch.touches import Kind, Touch


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
    monkeypatch.setattr(hooks, "TESTED", ("0.5.23",))
    (stranger / "_version.py").write_text("__version__ = version = '0.5.22'\n")
    assert check.run(["check", "--root", str(stranger)]) == check.FITS
    assert "untested" in capsys.readouterr().out


def test_a_tree_among_the_tiers_is_warned_about(
    stranger: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "TABLE", ())
    (stranger / "_version.py").write_text("__version__ = version = '0.5.23'\n")
    for tiers, warned in (("off,s2k4d16", True), ("off,s3k1d4", False), ("fast", False)):
        monkeypatch.setenv("SPECDECK_TIERS", tiers)
        assert check.run(["check", "--root", str(stranger)]) == check.FITS
        assert ("give --attention-backend" in capsys.readouterr().out) is warned


@pytest.mark.parametrize("text", ["", "__version__ = '0.5.24'\n", "__version__ = '0.5.18'\n"])
def test_a_version_that_is_not_known_is_refused_by_its_number(
    text: str,
    stranger: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hooks, "TABLE", ())
    (stranger / "_version.py").write_text(text)
    assert check.run(["check", "--root", str(stranger)]) == check.REFUSES
    assert "is none of 0.5.17, 0.5.19" in capsys.readouterr().out


def test_a_wheel_is_checked_without_installing_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "sglang.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("sglang/_version.py", "__version__ = version = '0.5.21.post1'\n")
        file.writestr("sglang/srt/thing.py", "def go(batch): ...\n")
        file.writestr("sglang/srt/more/__init__.py", "app = 1\n")
    there = [
        Touch("sglang.srt.thing", "go", Kind.FUNCTION, "use", ("batch",)),
        Touch("sglang.srt.more", "app", Kind.MODULE_NAME, "use"),
    ]
    monkeypatch.setattr(hooks, "TABLE", there)
    assert check.run(["check", "--wheel", str(wheel)]) == check.FITS
    assert "fits SGLang 0.5.21.post1" in capsys.readouterr().out
    gone = Touch("sglang.srt.gone", "go", Kind.FUNCTION, "use")
    monkeypatch.setattr(hooks, "TABLE", [*there, gone])
    assert check.run(["check", "--wheel", str(wheel)]) == check.REFUSES
    assert "no module sglang.srt.gone" in capsys.readouterr().out


def test_what_is_no_wheel_of_sglang_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.whl").write_text("no wheel")
    assert check.run(["check", "--wheel", str(tmp_path / "text.whl")]) == check.USAGE
    assert check.run(["check", "--wheel", str(tmp_path / "gone.whl")]) == check.USAGE
    with zipfile.ZipFile(tmp_path / "other.whl", "w") as file:
        file.writestr("other/__init__.py", "")
    assert check.run(["check", "--wheel", str(tmp_path / "other.whl")]) == check.NO_ENGINE
    assert "holds no sglang" in capsys.readouterr().err


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
