"""Run every check: lint, format, types, import contracts, tests, and the real-engine suite.

    python -m tests               everything; installs the real SGLang (CPU) on first use
    python -m tests --no-engine   without the real engine; prints NOT RUN

Exit code 0 only if everything that ran passed.  Where the real engine cannot be installed the run
fails: a suite that silently skips its most important part proves nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from tests.engine import install

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
_ORDINARY = "not engine and not benchmark"
# Most tests wait for leases, windows and processes; files side by side halve the time.
_SIDE_BY_SIDE = ("-n", "3", "--dist", "loadfile")
# A start of SGLang is two imports of 8 s, one after the other; two starts share two cores better.
_TWO_SERVERS = ("-n", "2", "--dist", "loadfile")


def _steps() -> list[tuple[str, list[str]]]:
    python = sys.executable
    return [
        ("lint", [str(BIN / "ruff"), "check", "."]),
        ("format", [str(BIN / "ruff"), "format", "--check", "."]),
        ("types", [python, "-m", "mypy"]),
        ("import contracts", [str(BIN / "lint-imports")]),
        ("tests", [python, "-m", "pytest", "-q", *_SIDE_BY_SIDE, "-m", _ORDINARY]),
    ]


def _run(name: str, command: list[str], env: dict[str, str] | None = None) -> bool:
    print(f"== {name}: {' '.join(Path(part).name for part in command[:6])}", flush=True)
    start = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=env, check=False)
    verdict = "ok" if done.returncode == 0 else f"FAILED (exit {done.returncode})"
    print(f"== {name}: {verdict} in {time.monotonic() - start:.0f} s", flush=True)
    return done.returncode == 0


def _engine(installed: Future[Path]) -> bool:
    """Wait for the real engine, then run its suite."""
    try:
        python = installed.result()
    except install.InstallError as error:
        print(f"== real engine: FAILED to install: {error}", flush=True)
        return False
    env = dict(os.environ, SPECDECK_ENGINE_PYTHON=str(python))
    suite = [sys.executable, "-m", "pytest", "-q", *_TWO_SERVERS, "-m", "engine", "tests/engine"]
    return _run("real engine", suite, env)


def main() -> int:
    """Run the steps; the real engine last, because it is the slowest."""
    parser = argparse.ArgumentParser(prog="python -m tests", description=__doc__)
    parser.add_argument("--no-engine", action="store_true", help="leave out the real-engine suite")
    chosen = parser.parse_args()
    with ThreadPoolExecutor(1) as beside:
        # Mostly downloads, for which the other steps need not wait.
        installed = None if chosen.no_engine else beside.submit(install.ensure)
        passed = [_run(name, command) for name, command in _steps()]
        if installed is None:
            print("== real engine: NOT RUN (--no-engine)", flush=True)
        else:
            passed.append(_engine(installed))
    failed = passed.count(False)
    print(f"steps: {passed.count(True)} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
