"""The entry point: imports nothing of SGLang, decides once, and never stops SGLang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine_patch import adapter_launch, hooks, plugin
from engine_patch.hooks import Verdict

SERVER = """
from starlette.applications import Starlette
app = Starlette()
"""


def _python(
    script: str, *, path: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a script in a fresh interpreter, with ``path`` in front of the module search path."""
    environment = os.environ | env | ({} if path is None else {"PYTHONPATH": str(path)})
    environment.pop(plugin.BOOT_VARIABLE, None)
    return subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """A module search path with an SGLang that has an HTTP server and nothing else we know."""
    folder = tmp_path / "sglang" / "srt" / "entrypoints"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent, folder.parent.parent):
        (package / "__init__.py").touch()
    (folder / "http_server.py").write_text(SERVER)
    return tmp_path


def test_importing_it_loads_neither_sglang_nor_pydantic() -> None:
    done = _python(
        "import sys, engine_patch.plugin;"
        "print([m for m in sys.modules if m.split('.')[0] in ('sglang', 'torch', 'pydantic')])"
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_without_sglang_it_refuses_in_one_line() -> None:
    done = _python("from engine_patch import plugin; print(plugin.register())")
    assert done.stdout.strip() == "False"
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("plugin refused: ")


def test_an_unknown_sglang_serves_on_and_get_says_refused(stranger: Path) -> None:
    done = _python(
        """
import asyncio, json, httpx
from engine_patch import plugin
assert plugin.register() is False
import sglang.srt.entrypoints.http_server as server

async def main():
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=server.app), base_url="http://engine"
    ) as client:
        answer = await client.get("/speculation")
        print(answer.status_code, json.dumps(answer.json()))
        print((await client.put("/speculation")).status_code)

asyncio.run(main())
""",
        path=stranger,
    )
    assert done.returncode == 0, done.stderr
    status, body = done.stdout.splitlines()[0].split(" ", 1)
    answer = json.loads(body)
    assert (status, answer["plugin"]) == ("503", "refused")
    assert done.stdout.splitlines()[1] == "405"
    assert done.stderr.strip().splitlines() == [answer["message"]]
    assert "\n" not in answer["message"]


def test_a_server_that_looks_different_is_left_alone(stranger: Path) -> None:
    (stranger / "sglang/srt/entrypoints/http_server.py").write_text("application = None\n")
    done = _python(
        "from engine_patch import plugin; plugin.register();"
        "import sglang.srt.entrypoints.http_server as server; print(server.application)",
        path=stranger,
    )
    assert done.stdout.strip() == "None"
    assert len(done.stderr.strip().splitlines()) == 1


def test_children_of_a_refused_engine_stay_silent(stranger: Path) -> None:
    done = _python(
        """
import multiprocessing
from engine_patch import plugin

if __name__ == "__main__":
    plugin.register()
    child = multiprocessing.get_context("spawn").Process(target=plugin.register)
    child.start()
    child.join()
    print(child.exitcode)
""",
        path=stranger,
    )
    assert done.stdout.strip() == "0"
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("text", ["", "fast", "s3k1d9", "off,,s0"])
def test_a_list_of_tiers_that_cannot_be_read_is_refused_with_the_variable(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "engine_root", lambda: Path("/"))
    monkeypatch.setattr(hooks, "check", lambda _: Verdict("0.5.23"))
    monkeypatch.setenv(adapter_launch.TIERS_VARIABLE, text)
    sentence = plugin.refusal()
    assert sentence.startswith("plugin refused")
    assert "\n" not in sentence
    assert f"SPECDECK_TIERS={text!r}" in sentence
    assert "for example 'off,s1k1d2,s3k1d4'" in sentence


def test_a_known_version_that_the_suite_does_not_run_on_is_taken_if_its_attributes_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hooks, "engine_root", lambda: Path("/"))
    monkeypatch.setattr(hooks, "check", lambda _: Verdict("0.5.20"))
    monkeypatch.delenv(adapter_launch.TIERS_VARIABLE, raising=False)
    assert plugin.refusal() == ""


@pytest.mark.parametrize("inherited", [None, "no json", '{"boot_id": 1}'])
def test_a_child_without_its_parents_word_stays_out(
    inherited: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if inherited is None:
        monkeypatch.delenv(plugin.BOOT_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(plugin.BOOT_VARIABLE, inherited)
    assert plugin._join() is False
    assert "stays out" in caplog.text
