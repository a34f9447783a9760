"""Children of the demo: real processes that refuse to go, leave others behind, or lose the demo."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from engine_patch.demo_processes import (
    ChildError,
    Children,
    Stopped,
    clean_environment,
    stopped_by,
)


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    code = tmp_path / "code"
    code.mkdir()
    environment = {**clean_environment(dict(os.environ), tmp_path), "PYTHONPATH": str(code)}
    with Children(tmp_path, environment) as children:
        yield children


def _module(tmp_path: Path, name: str, code: str) -> str:
    (tmp_path / "code" / f"{name}.py").write_text(textwrap.dedent(code))
    return name


def _gone(pid: int, within_s: float = 3.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def test_the_first_line_says_that_a_child_is_ready(children: Children, tmp_path: Path) -> None:
    name = _module(tmp_path, "ready", "import time; print('here', flush=True); time.sleep(60)")
    assert children.start("part", name).wait_line(5.0) == "here"


def test_a_child_that_ends_early_is_reported_with_its_last_words(
    children: Children, tmp_path: Path
) -> None:
    name = _module(tmp_path, "broken", "import sys; sys.exit('the port is taken')")
    child = children.start("part", name)
    with pytest.raises(ChildError, match=r"part ended with code 1\n  part: the port is taken"):
        child.wait_line(5.0)
    with pytest.raises(ChildError, match="ended with code 1"):
        children.check("part")
    children.check("another")


def test_a_silent_child_is_not_waited_for_for_ever(children: Children, tmp_path: Path) -> None:
    name = _module(tmp_path, "silent", "import time; time.sleep(60)")
    with pytest.raises(ChildError, match=r"was not ready within 0\.3 s"):
        children.start("part", name).wait_line(0.3)


def test_a_child_that_ignores_the_request_to_end_is_killed_with_what_it_started(
    children: Children, tmp_path: Path
) -> None:
    name = _module(
        tmp_path,
        "stubborn",
        """
        import signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        inner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        print(inner.pid, flush=True)
        time.sleep(60)
        """,
    )
    child = children.start("part", name)
    grandchild = int(child.wait_line(5.0))
    child.stop(wait_s=0.2)
    assert not child.running
    assert _gone(grandchild)


def test_what_a_finished_child_left_behind_is_ended_too(children: Children, tmp_path: Path) -> None:
    name = _module(
        tmp_path,
        "parent",
        """
        import subprocess, sys
        inner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        print(inner.pid, flush=True)
        """,
    )
    child = children.start("part", name)
    grandchild = int(child.wait(5.0))
    child.stop()
    assert _gone(grandchild)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can do this")
def test_children_die_with_a_killed_demo(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    _module(tmp_path, "sleeper", "import time; print('up', flush=True); time.sleep(60)")
    outer = textwrap.dedent(
        f"""
        import os, time
        from pathlib import Path
        from engine_patch.demo_processes import Children
        environment = {{**os.environ, "PYTHONPATH": {str(code)!r}}}
        children = Children(Path({str(tmp_path)!r}), environment)
        child = children.start("part", "sleeper")
        child.wait_line(5.0)
        print(child.process.pid, flush=True)
        time.sleep(60)
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", outer], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert psutil.pid_exists(child)
        process.kill()
    assert _gone(child)


def test_a_signal_becomes_one_exception_and_later_ones_do_not_disturb_the_clean_up() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def work() -> None:
        with stopped_by(signal.SIGTERM):
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(1)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped) as caught:
        work()
    assert caught.value.number == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_during_the_clean_up_saves_no_child(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    stubborn = """
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("up", flush=True)
        time.sleep(60)
    """
    _module(tmp_path, "stubborn", stubborn)
    environment = {**os.environ, "PYTHONPATH": str(code)}
    started = []

    def work() -> None:
        with stopped_by(signal.SIGALRM), Children(tmp_path, environment) as children:
            for name in ("one", "two"):
                children.start(name, "stubborn").wait_line(5.0)
            started.extend(children.started)
            signal.setitimer(signal.ITIMER_REAL, 0.5)

    with pytest.raises(Stopped):
        work()
    assert [child.running for child in started] == [False, False]


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopped_by(signal.SIGHUP):
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_settings_of_the_person_do_not_reach_the_parts(tmp_path: Path) -> None:
    seen = clean_environment(
        {"PATH": "/bin", "SPECDECK_LISTEN__PORT": "1", "SPECDECK_TOKEN": "secret"}, tmp_path
    )
    assert seen["PATH"] == "/bin"
    assert not [name for name in seen if name.startswith("SPECDECK_")]
    assert seen["XDG_CONFIG_HOME"] == str(tmp_path)
