"""A copy of the installed SGLang in which one file differs, made of links to all others."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.engine.cpu_engine import engine_python


def installed() -> Path:
    """The folder of the installed ``sglang`` package."""
    script = (
        "import importlib.util as u; print(u.find_spec('sglang').submodule_search_locations[0])"
    )
    found = subprocess.run(
        [engine_python(), "-c", script], capture_output=True, text=True, check=True
    )
    return Path(found.stdout.strip())


def overlay(target: Path, changed: str, edit: Callable[[str], str]) -> Path:
    """Make the copy; returns the folder to put on the module search path.

    Args:
        changed: the file that differs, relative to the package.
        edit: its new text from its old one.
    """
    source, folder = installed(), target / "sglang"
    folder.mkdir(parents=True)
    for part in Path(changed).parts:
        for item in source.iterdir():
            if item.name not in (part, "__pycache__"):
                (folder / item.name).symlink_to(item)
        source, folder = source / part, folder / part
        if source.is_dir():
            folder.mkdir()
    old = source.read_text()
    new = edit(old)
    if new == old:
        raise ValueError(f"the edit changes nothing in {source}")
    folder.write_text(new)
    return target
