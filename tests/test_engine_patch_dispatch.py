"""The ``specdeck`` command line: real processes, real entry points, a real missing extra."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from importlib import metadata, util
from pathlib import Path

import pytest

from engine_patch import dispatch

ROOT = Path(dispatch.__file__).resolve().parent.parent


def _specdeck(
    *words: str, env: dict[str, str] | None = None, site: bool = True
) -> subprocess.CompletedProcess[str]:
    flags = [] if site else ["-S"]
    return subprocess.run(
        [sys.executable, *flags, "-m", "engine_patch.dispatch", *words],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        cwd=ROOT,
        env={**os.environ, **(env or {})},
    )


def _distribution(folder: Path, name: str, entry_points: str, requires: str = "") -> None:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requires}\n"
    )
    info.joinpath("entry_points.txt").write_text(f"[specdeck.commands]\n{entry_points}\n")


@pytest.fixture
def stranger(tmp_path: Path) -> dict[str, str]:
    """A distribution of somebody else that brings commands; returns the environment to see it."""
    _distribution(
        tmp_path,
        "stranger",
        "echo = stranger_commands:echo\nsilent = stranger_commands:silent\n"
        "broken = stranger_broken:run\nsleepy = stranger_commands:sleepy\n"
        "serve = stranger_commands:echo",
        'Provides-Extra: extra\nRequires-Dist: not-there>=1; extra == "extra"',
    )
    tmp_path.joinpath("stranger_commands.py").write_text(
        "import sys, time\n"
        "def echo(argv):\n    print('echo', argv)\n    return 4\n"
        "def silent(argv):\n    return None\n"
        "def sleepy(argv):\n    print('ready', flush=True)\n    time.sleep(30)\n"
    )
    tmp_path.joinpath("stranger_broken.py").write_text("import not_there\n")
    return {"PYTHONPATH": str(tmp_path)}


@pytest.fixture
def base_only(tmp_path: Path) -> dict[str, str]:
    """An environment that holds specdeck and its base dependency, and no extra."""
    for name in ("pydantic", "pydantic_core", "annotated_types", "typing_inspection"):
        spec = util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        tmp_path.joinpath(name).symlink_to(Path(spec.origin).parent)
    for name in ("typing_extensions",):
        spec = util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        tmp_path.joinpath(f"{name}.py").symlink_to(spec.origin)
    for name in ("specdeck", "pydantic", "pydantic_core"):
        files = metadata.distribution(name).files or []
        info = next(f for f in files if f.name == "METADATA").locate()
        folder = Path(str(info)).parent
        tmp_path.joinpath(folder.name).symlink_to(folder)
    return {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}


def test_help_lists_every_command_with_a_summary() -> None:
    answer = _specdeck("--help")
    assert answer.returncode == dispatch.OK
    for name in ("console", "demo", "engine", "override", "serve", "status"):
        line = next(x for x in answer.stdout.splitlines() if x.startswith(f"  {name} "))
        assert "from " not in line
        assert len(line.split()) > 2


def test_version_is_the_installed_one() -> None:
    assert _specdeck("--version").stdout == f"specdeck {metadata.version('specdeck')}\n"


def test_an_unknown_command_lists_the_known_ones_and_exits_with_2() -> None:
    answer = _specdeck("frobnicate")
    assert answer.returncode == dispatch.USAGE
    assert "'frobnicate'" in answer.stderr
    assert ", ".join(sorted(dispatch.known_commands())) in answer.stderr


def test_an_unknown_option_is_called_an_option() -> None:
    answer = _specdeck("--frobnicate")
    assert answer.returncode == dispatch.USAGE
    assert "unknown option '--frobnicate'" in answer.stderr


def test_a_command_of_another_distribution_gets_its_words_and_gives_its_exit_code(
    stranger: dict[str, str],
) -> None:
    answer = _specdeck("echo", "--deep", "x y", env=stranger)
    assert answer.stdout == "echo ['--deep', 'x y']\n"
    assert answer.returncode == 4
    assert "from stranger" in _specdeck("--help", env=stranger).stdout


def test_a_command_that_returns_none_has_succeeded(stranger: dict[str, str]) -> None:
    assert _specdeck("silent", env=stranger).returncode == dispatch.OK


def test_another_distribution_cannot_replace_a_command_of_ours(
    stranger: dict[str, str],
) -> None:
    assert "run the control plane" in _specdeck("--help", env=stranger).stdout


def test_a_dependency_of_an_extra_that_is_missing_prints_the_pip_line(
    stranger: dict[str, str],
) -> None:
    answer = _specdeck("broken", env=stranger)
    assert answer.returncode == dispatch.MISSING_EXTRA
    assert "'not_there' is not installed" in answer.stderr
    assert "pip install 'specdeck[extra]'" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("console",), "specdeck[console]"),
        (("status",), "specdeck[controlplane]"),
        (("serve",), "specdeck[controlplane]"),
        (("demo", "--headless", "--seconds", "30"), "specdeck[controlplane]"),
        (("demo",), "specdeck[controlplane,console]"),
    ],
)
def test_without_extras_each_command_names_the_one_it_needs(
    base_only: dict[str, str], words: tuple[str, ...], extra: str
) -> None:
    answer = _specdeck(*words, env=base_only, site=False)
    assert "Traceback" not in answer.stderr
    assert f"pip install '{extra}'" in answer.stderr
    assert answer.returncode == dispatch.MISSING_EXTRA


def test_without_extras_help_and_version_still_answer(base_only: dict[str, str]) -> None:
    assert _specdeck("--help", env=base_only, site=False).returncode == dispatch.OK
    answer = _specdeck("--version", env=base_only, site=False)
    assert answer.stdout.startswith("specdeck ")


def test_ctrl_c_ends_a_command_without_a_traceback(stranger: dict[str, str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "engine_patch.dispatch", "sleepy"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **stranger},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=10)
    assert process.returncode == dispatch.INTERRUPTED
    assert errors == ""


def test_specdeck_alone_says_how_to_start_when_nothing_answers() -> None:
    # Port 9 (discard) is privileged and unused: nothing of ours can listen there.
    answer = _specdeck(env={"SPECDECK_URL": "http://127.0.0.1:9"})
    assert answer.returncode == dispatch.UNREACHABLE
    for hint in ("specdeck serve", "specdeck demo", "http://127.0.0.1:9"):
        assert hint in answer.stderr


def test_specdeck_alone_opens_the_console_of_a_control_plane_that_answers(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "controlplane", "serve", "--port", "0", "--database", "x.sqlite3"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
    ) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        answer = _specdeck(env={"SPECDECK_URL": url})
        process.terminate()
    # It went to the console, which has its own reasons not to open here.
    assert answer.stderr.startswith("specdeck console: ")
    assert url in answer.stderr


class _Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path.endswith("/healthz") else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (http.server's name)
        pass


def test_a_control_plane_is_found_by_its_health_route_and_a_silent_port_is_not() -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), _Healthy) as server:
        port = server.server_port
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        assert dispatch.answers(f"http://127.0.0.1:{port}")
        assert dispatch.answers(f"http://127.0.0.1:{port}/behind/a/prefix/")
        server.shutdown()
        thread.join()
        # Still listening, no longer answering: the probe gives up in time.
        begun = time.monotonic()
        assert not dispatch.answers(f"http://127.0.0.1:{port}", timeout_s=0.2)
        assert time.monotonic() - begun < 20
    for nonsense in ("", "127.0.0.1:1", "ftp://127.0.0.1", "http://127.0.0.1:notaport"):
        assert not dispatch.answers(nonsense)


def test_the_command_line_starts_without_importing_anything_heavy() -> None:
    listing = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "engine_patch.dispatch", "--version"],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
        cwd=ROOT,
    ).stderr
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in listing.splitlines()}
    assert "importlib" in loaded
    for heavy in ("pydantic", "asyncio", "httpx", "typer", "rich", "textual", "fastapi", "ssl"):
        assert heavy not in loaded, heavy
