"""``specdeck engine``: does the plugin fit the SGLang here, rebuild, and the embedded engine.

Exit codes: 0 the plugin fits; 1 it refuses; 2 wrong arguments; 7 SGLang is not installed here.
"""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from engine_patch import adapter_launch, hooks, tier_plan
from engine_patch.plugin import version

FITS = 0
REFUSES = 1
USAGE = 2
NO_ENGINE = 7

_HELP = """\
usage: specdeck engine check [--root SGLANG_FOLDER | --wheel SGLANG_WHEEL]
       specdeck engine rebuild URL
       specdeck engine embedded [OPTIONS]

check     compare the SGLang installed here with what the plugin touches
          (exit code 0: fits, 1: the plugin would refuse, 7: no SGLang here);
          with --root a folder, with --wheel a wheel that is not installed
rebuild   let an engine prefill requests anew that lived through a cold off
          (its admin key: SPECDECK_ENGINE_ADMIN_KEY)
embedded  run the embedded engine, for machines without a GPU
"""


def run(argv: Sequence[str]) -> int:
    """The command group ``engine``."""
    words = list(argv)
    if not words or words[0] in ("-h", "--help"):
        sys.stdout.write(_HELP)
        return FITS if words else USAGE
    if words[0] == "embedded":
        from engine_patch.embedded.__main__ import main

        return int(main(words[1:]) or 0)
    if words[0] == "rebuild":
        if words[1:] in (["--help"], ["-h"]):
            sys.stdout.write(_HELP)
            return FITS
        from engine_patch import rebuild_cli

        return rebuild_cli.run(words[1:])
    if words[0] != "check":
        sys.stderr.write(f"specdeck engine: unknown command {words[0]!r}\n{_HELP}")
        return USAGE
    if words[1:] in ([], ["--help"], ["-h"]):
        if len(words) > 1:
            sys.stdout.write(_HELP)
            return FITS
        return check()
    if len(words) == 3 and words[1] == "--root":
        return check(Path(words[2]))
    if len(words) == 3 and words[1] == "--wheel":
        return check_wheel(Path(words[2]))
    sys.stderr.write(f"specdeck engine check: cannot read {' '.join(words[1:])!r}\n{_HELP}")
    return USAGE


def check(root: Path | None = None) -> int:
    """Print the verdict on an SGLang; returns the exit code.

    Args:
        root: the ``sglang`` folder, None for the one that is installed.
    """
    folder = hooks.engine_root() if root is None else root
    if folder is None or not folder.is_dir():
        sys.stderr.write(
            "specdeck engine check: no SGLang here; run it in the environment of the server, "
            "or install one with: pip install 'specdeck[engine]'\n"
        )
        return NO_ENGINE
    return _say(hooks.check(folder, version=None if root is None else hooks.version_of(folder)))


def check_wheel(wheel: Path) -> int:
    """Print the verdict on a wheel of SGLang, which is read and not installed."""
    try:
        with zipfile.ZipFile(wheel) as file:
            there = any(name.startswith("sglang/") for name in file.namelist())
    except (OSError, zipfile.BadZipFile) as error:
        sys.stderr.write(f"specdeck engine check: cannot read the wheel {wheel}: {error}\n")
        return USAGE
    if not there:
        sys.stderr.write(f"specdeck engine check: {wheel} holds no sglang\n")
        return NO_ENGINE
    folder = zipfile.Path(wheel, "sglang/")
    return _say(hooks.check(folder, version=hooks.version_of(folder)))


def _say(verdict: hooks.Verdict) -> int:
    if not verdict.fits:
        sys.stdout.write(f"{verdict.sentence(version())}\n")
        for mismatch in verdict.mismatches:
            sys.stdout.write(f"  {mismatch}\n")
        return REFUSES
    tested = "" if verdict.tested else f" (untested: the suite runs on {', '.join(hooks.TESTED)})"
    sys.stdout.write(
        f"specdeck {version()} fits SGLang {verdict.version}{tested}: "
        f"all {len(hooks.TABLE)} touched attributes are as expected\n"
    )
    sys.stdout.write(_advice(os.environ.get(adapter_launch.TIERS_VARIABLE, "")))
    return FITS


def _advice(tiers: str) -> str:
    """What a tree among the tiers means for all others; "" without one."""
    try:
        trees = [shape.name for shape in tier_plan.parse(tiers) if shape.topk > 1]
    except ValueError:
        return ""
    if not trees:
        return ""
    return (
        f"warning: {', '.join(trees)} in {adapter_launch.TIERS_VARIABLE} is a tree: the server is "
        "launched with topk above 1, which changes SGLang's default attention backend (give "
        "--attention-backend) and rules out trtllm_mha, FlashMLA and FlashInfer-MLA for every "
        "tier, off included\n"
    )
