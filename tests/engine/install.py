"""Make the environment of the real SGLang on a CPU: ``python tests/engine/install.py``.

Standard library only.  The environment lies in ``.engine/venv`` of the repository and takes about a
minute and 1.6 GB.  ``SPECDECK_ENGINE_PYTHON`` names the python of an existing one instead.

SGLang and xgrammar are installed without their dependencies, which would bring CUDA packages; what
they need on a CPU is pinned in ``requirements.txt``.  A CPU build of torch is enough: where pip's
own index has CUDA builds only, ``SPECDECK_TORCH_INDEX`` may name an index of CPU builds.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
HOME = REPOSITORY / ".engine" / "venv"
PYTHON_VARIABLE = "SPECDECK_ENGINE_PYTHON"
INDEX_VARIABLE = "SPECDECK_TORCH_INDEX"
_LISTS = ("requirements.txt", "requirements-nodeps.txt")
_PROBE = """
import importlib.metadata as m, sys
plugins = [e.dist.name for e in m.entry_points(group="sglang.srt.plugins")]
if "specdeck" not in plugins:
    sys.exit("specdeck is not installed here, so SGLang would not load its plugin")
print("SGLang", m.version("sglang"), "torch", m.version("torch"), "specdeck", m.version("specdeck"))
"""


class InstallError(Exception):
    """The environment could not be made; the message ends with pip's own words."""


def ensure() -> Path:
    """The python of a complete environment; it is made if there is none.

    Raises:
        InstallError: it could not be made, or the named one is not complete.
    """
    named = os.environ.get(PYTHON_VARIABLE)
    if named:
        python = Path(named)
        if not python.exists():
            raise InstallError(f"{PYTHON_VARIABLE} names {python}, which does not exist")
        _run([str(python), "-c", _PROBE], "the named environment is not complete")
        return python
    python = HOME / "bin" / "python"
    stamp = HOME / "specdeck.stamp"
    wanted = _fingerprint()
    if not python.exists() or not stamp.exists() or stamp.read_text() != wanted:
        _install(python)
        stamp.write_text(wanted)
    return python


def _fingerprint() -> str:
    """Changes with what is installed, so that an old environment is made anew."""
    text = b"".join((HERE / name).read_bytes() for name in _LISTS)
    text += (REPOSITORY / "pyproject.toml").read_bytes() + sys.version.encode()
    return hashlib.sha256(text).hexdigest()


def _install(python: Path) -> None:
    print(f"installing SGLang for the CPU into {HOME}", flush=True)
    venv.create(HOME, with_pip=True, clear=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    index = os.environ.get(INDEX_VARIABLE)
    extra = ["--extra-index-url", index] if index else []
    _run([*pip, *extra, "-r", str(HERE / _LISTS[0])], "the pinned packages cannot be installed")
    _run(
        [*pip, "--no-deps", "-r", str(HERE / _LISTS[1])],
        "SGLang cannot be installed",
    )
    _run(
        [*pip, "--no-deps", "--editable", str(REPOSITORY)],
        "this repository cannot be installed beside SGLang",
    )
    _run([str(python), "-c", _PROBE], "the new environment is not complete")


def _run(command: list[str], failure: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise InstallError(f"{failure}:\n{(done.stdout + done.stderr)[-3000:]}")
    if done.stdout.strip():
        print(done.stdout.strip(), flush=True)


if __name__ == "__main__":
    try:
        print(ensure())
    except InstallError as error:
        sys.exit(f"install: {error}")
