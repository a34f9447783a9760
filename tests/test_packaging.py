"""The house itself: one home for the four packages, no rival for their names, nothing left out.

``console`` and ``store`` are also import names of public distributions.  Installed beside us, one
of them shadows our package in an editable install and overwrites it in a wheel install, silently.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterable
from importlib import metadata, util
from pathlib import Path

import pytest

from engine_patch import dispatch

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("console", "controlplane", "engine_patch", "store")
OURS = "specdeck"


def _homes() -> dict[str, Path]:
    homes = {}
    for name in PACKAGES:
        spec = util.find_spec(name)
        assert spec is not None, f"{name} cannot be imported"
        assert spec.origin is not None, f"{name} has no __init__.py"
        homes[name] = Path(spec.origin).resolve().parent.parent
    return homes


def _claimed(distributions: Iterable[metadata.Distribution]) -> dict[str, set[str]]:
    """Which distributions but ours bring a top-level name of ours, read from their file lists."""
    rivals: dict[str, set[str]] = {}
    for distribution in distributions:
        name = distribution.metadata["Name"]
        if name is None or name.lower() == OURS:
            continue
        for file in distribution.files or ():
            top = file.parts[0].removesuffix(".py")
            if top in PACKAGES and "__pycache__" not in file.parts:
                rivals.setdefault(top, set()).add(name)
    return rivals


def test_the_four_packages_live_in_one_folder() -> None:
    homes = _homes()
    assert len(set(homes.values())) == 1, (
        f"the packages come from different folders: {homes}; "
        "another distribution shadows one of them: use an environment of its own for specdeck"
    )


def test_no_other_distribution_claims_a_name_of_ours() -> None:
    rivals = _claimed(metadata.distributions())
    assert not rivals, f"uninstall these, or use an environment of its own: {rivals}"


def test_the_guard_sees_a_planted_rival(tmp_path: Path) -> None:
    info = tmp_path / "rival-1.0.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: rival\nVersion: 1.0\n")
    info.joinpath("RECORD").write_text("console/__init__.py,,\nstore.py,,\nother/store.py,,\n")
    planted = list(metadata.distributions(path=[str(tmp_path)]))
    assert _claimed(planted) == {"console": {"rival"}, "store": {"rival"}}


@pytest.mark.parametrize("group", ["specdeck.commands", "console_scripts"])
def test_every_command_of_ours_can_be_loaded_and_called(group: str) -> None:
    entries = metadata.distribution(OURS).entry_points.select(group=group)
    assert len(entries) > 0
    for entry in entries:
        assert callable(entry.load()), entry


def test_the_plugin_is_announced_to_sglang() -> None:
    (entry,) = metadata.distribution(OURS).entry_points.select(group="sglang.srt.plugins")
    assert entry.value == "engine_patch.plugin:register"
    assert callable(entry.load())


def test_every_command_has_a_line_in_the_help() -> None:
    names = {e.name for e in metadata.distribution(OURS).entry_points.select(group=dispatch.GROUP)}
    assert names == set(dispatch._SUMMARIES)


def test_beside_sglang_the_base_install_brings_pydantic_alone() -> None:
    requires = metadata.distribution(OURS).requires or []
    base = [line for line in requires if "extra ==" not in line]
    assert [line.split("<")[0].split(">")[0] for line in base] == ["pydantic"]


@pytest.mark.skipif(util.find_spec("hatchling") is None, reason="hatchling is not installed")
def test_the_wheel_holds_every_module_and_data_file_and_nothing_else(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=60,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {n for n in archive.namelist() if not n.startswith(f"{OURS}-")}
    tracked = subprocess.run(
        ["git", "ls-files", *PACKAGES], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    assert set(tracked) <= packed
    assert {name.partition("/")[0] for name in packed} == set(PACKAGES)
    assert not [name for name in packed if name.endswith((".pyc", ".db", ".sqlite"))]
