"""Asking an engine to rebuild requests: what is printed, and the exit codes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from engine_patch import check, rebuild_cli
from engine_patch.contract_commands import RebuildAnswer, Refusal, ReplicaRebuilt
from engine_patch.contract_words import RefusalCode


class Engine(BaseHTTPRequestHandler):
    """Answers what it is told to, and remembers what it was asked."""

    answer: tuple[int, str] = (200, "")
    asked: tuple[str, str | None] = ("", None)

    def do_POST(self) -> None:
        """Any path."""
        type(self).asked = (self.path, self.headers.get("authorization"))
        status, body = self.answer
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Engine)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def _done(*replicas: ReplicaRebuilt) -> tuple[int, str]:
    return 200, RebuildAnswer(protocol=1, boot_id="b", replicas=replicas).model_dump_json()


def test_each_replica_says_how_many_are_prefilled_anew(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(rebuild_cli.KEY_VARIABLE, "secret")
    Engine.answer = _done(ReplicaRebuilt(dp_rank=0, rebuilt=3), ReplicaRebuilt(dp_rank=1))
    assert check.run(["rebuild", f"{url}/"]) == rebuild_cli.DONE
    assert Engine.asked == ("/speculation/rebuild", "Bearer secret")
    assert capsys.readouterr().out == (
        "replica 0: 3 requests are prefilled anew\nreplica 1: 0 requests are prefilled anew\n"
    )


def test_a_refusal_is_told_in_the_engines_words(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = Refusal(code=RefusalCode.UNSUPPORTED, message="off runs cold")
    Engine.answer = (422, refusal.model_dump_json())
    assert check.run(["rebuild", url]) == rebuild_cli.REFUSED
    assert "off runs cold" in capsys.readouterr().err
    Engine.answer = _done(ReplicaRebuilt(dp_rank=0, message="paused"))
    assert check.run(["rebuild", url]) == rebuild_cli.REFUSED


@pytest.mark.parametrize("status", [401, 403])
def test_a_missing_key_names_the_variable(
    url: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = Refusal(code=RefusalCode.FORBIDDEN, message="send the key")
    Engine.answer = (status, refusal.model_dump_json() if status == 403 else "{}")
    assert check.run(["rebuild", url]) == rebuild_cli.REFUSED
    assert rebuild_cli.KEY_VARIABLE in capsys.readouterr().err


def test_something_else_at_the_address_is_no_engine(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Engine.answer = (200, "<html>")
    assert check.run(["rebuild", url]) == rebuild_cli.UNREACHABLE
    assert check.run(["rebuild", "http://127.0.0.1:9"]) == rebuild_cli.UNREACHABLE
    assert "no engine with the plugin answers" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["localhost"], ["http://a", "http://b"]])
def test_without_an_address_nothing_is_done(words: list[str]) -> None:
    assert check.run(["rebuild", *words]) == rebuild_cli.USAGE
