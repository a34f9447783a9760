"""Lay a plugin of the tests' own out as an installed distribution, without installing it."""

from __future__ import annotations

from pathlib import Path


def install(folder: Path, name: str, code: str) -> Path:
    """Write module and metadata; returns the folder for the search path.

    Args:
        name: as it is named in ``SGLANG_PLUGINS``.
        code: a module with a function ``register``.
    """
    info = folder / f"{name}-0.dist-info"
    info.mkdir(parents=True)
    (folder / f"{name}_plugin.py").write_text(code)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
    (info / "entry_points.txt").write_text(
        f"[sglang.srt.plugins]\n{name} = {name}_plugin:register\n"
    )
    return folder
