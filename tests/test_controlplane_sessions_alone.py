"""A recording where nothing else is: no network, no home, no database; and a disk without room."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.replay_verify import verify
from controlplane.sessions_cli import run_record
from controlplane.terminal import CANNOT_START
from store.session_reader import SessionFile
from store.session_writer import SessionWriter
from tests.controlplane_rig import embedded_engine

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "docs" / "examples" / "cpu-engine.specdeck"

ALONE = '''
"""Runs in a network namespace of its own, where only loopback exists."""
import fcntl, json, socket, struct, subprocess, sys, urllib.request

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as lo:
    fcntl.ioctl(lo, 0x8914, struct.pack("16sh14x", b"lo", 0x49))  # SIOCSIFFLAGS, up
try:
    socket.create_connection(("192.0.2.1", 80), timeout=5)
except OSError as error:
    found = {"outside": error.strerror}

code = "import sys; from controlplane.sessions_cli import {0}; sys.exit({0}(sys.argv[1:]))"

def run(name, *words):
    command = [sys.executable, "-P", "-c", code.format(name), *words]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr

file = sys.argv[1]
found["verify"] = run("run_replay", file, "--verify")
found["what_if"] = run("run_what_if", file, "--set", "boundaries.0.up_at=6")
found["report"] = run("run_report", file)
served = subprocess.Popen(
    [sys.executable, "-P", "-c", code.format("run_replay"), file, "--serve"],
    stdout=subprocess.PIPE,
    text=True,
)
url = json.loads(served.stdout.readline())["url"]
open_url = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
with open_url(f"{url}/v1/sessions/1/ticks?limit=10000") as answer:
    found["ticks"] = len(json.load(answer))
served.terminate()
found["ended"] = served.wait()
print(json.dumps(found))
'''


@pytest.fixture
def no_network() -> list[str]:
    """The words before a command that runs it where there is only loopback."""
    words = ["unshare", "--user", "--map-root-user", "--net", "--"]
    allowed = shutil.which("unshare") is not None and (
        subprocess.run([*words, "true"], check=False, capture_output=True).returncode == 0
    )
    if not allowed:
        pytest.skip("this machine allows no network namespaces")
    return words


def test_an_export_replays_without_network_home_or_database(
    no_network: list[str], tmp_path: Path
) -> None:
    folder, home = tmp_path / "alone", tmp_path / "home"
    folder.mkdir()
    home.mkdir(mode=0o500)
    file = folder / "night.specdeck"
    shutil.copy(EXAMPLE, file)
    file.chmod(0o400)
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    environment = kept | {"HOME": str(home), "PYTHONPATH": str(ROOT), "TERM": "dumb"}
    done = subprocess.run(
        [*no_network, sys.executable, "-P", "-c", ALONE, str(file)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "unreachable" in found["outside"].lower()
    assert found["verify"][0] == 0, found["verify"]
    assert "identical: 221 of 221" in found["verify"][1]
    assert found["what_if"][0] == 0, found["what_if"]
    assert "switches" in found["what_if"][1]
    assert found["report"][0] == 0, found["report"]
    assert found["ticks"] == 221
    assert found["ended"] == 0
    assert file.read_bytes() == EXAMPLE.read_bytes()
    assert list(home.iterdir()) == []
    left = sorted(one.name for one in folder.iterdir())
    assert left == ["night.html", "night.specdeck"]


def test_a_full_disk_ends_a_headless_recording_with_its_reason_and_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, commits = SessionWriter.commit, []

    def commit(writer: SessionWriter) -> None:
        real(writer)
        commits.append(1)
        if len(commits) == 3:
            pages = writer._db.execute("PRAGMA page_count").fetchone()[0]
            # SQLite's own limit gives the very error of a disk without room.
            writer._db.execute(f"PRAGMA max_page_count = {pages}")

    monkeypatch.setattr(SessionWriter, "commit", commit)
    monkeypatch.setattr("controlplane.sessions_headless.COMMIT_S", 0.1)
    path = tmp_path / "full.specdeck"
    words = ["start", "full", "--out", str(path), "--poll-s", "0.05", "--for", "120s"]
    with embedded_engine() as engine:
        code = run_record([*words, "--server", engine.url])
    assert code == CANNOT_START
    assert "cannot grow: the disk is full. What was recorded is safe." in capsys.readouterr().err
    with SessionFile.open(path) as session:
        found = verify(session)
        assert not session.complete
    assert found.ticks > 0
    assert found.differing == 0
