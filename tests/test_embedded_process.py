"""The embedded engine as a process: commands, leases, lag, command line, clean end."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.embedded_process import running


def test_a_command_is_obeyed_and_its_lease_ends_on_time() -> None:
    with running() as engine:
        answer = engine.put(1, mode="off", lease_s=0.4)
        assert answer.status_code == 200
        asked = time.monotonic()
        assert engine.speculation()["replicas"][0]["ranks"][0]["tier"] == "off"
        assert engine.speculation()["claim"]["holder"] == "test"
        while engine.speculation()["replicas"][0]["ranks"][0]["tier"] == "off":
            assert time.monotonic() - asked < 60
            time.sleep(0.01)
        assert time.monotonic() - asked >= 0.35
        reasons = [entry["reason"] for entry in engine.speculation()["journal"]]
        assert reasons == ["command", "lease_end"]
        stamps = [entry["at_utc_ms"] for entry in engine.speculation()["journal"]]
        assert 300 < stamps[1] - stamps[0] < 30_000
        assert engine.speculation(since=1)["journal"][0]["seq"] == 2


def test_a_foreign_holder_and_an_unknown_tier_are_refused() -> None:
    with running() as engine:
        assert engine.put(1, mode="on", tier="s1k1d2").status_code == 200
        foreign = engine.put(2, mode="off", holder="other")
        assert foreign.status_code == 409
        assert foreign.json()["claim"]["holder"] == "test"
        unknown = engine.put(2, mode="on", tier="s5k1d6")
        assert unknown.status_code == 422
        assert unknown.json()["allowed"] == ["off", "s1k1d2", "s3k1d4"]


def test_with_an_admin_key_a_command_needs_it(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret-7\n")
    with running("--admin-key-file", str(key)) as engine:
        body = {"mode": "off", "holder": "test", "epoch": 0, "generation": 1}
        assert engine.http.put("/speculation", json=body).status_code == 403
        header = {"authorization": "Bearer secret-7"}
        assert engine.http.put("/speculation", json=body, headers=header).status_code == 200


def test_replicas_and_ranks_are_reported_apart_and_requests_go_round() -> None:
    with running("--dp", "2", "--tp", "2") as engine:
        engine.generate_many(4)
        state = engine.speculation()
        assert [len(replica["ranks"]) for replica in state["replicas"]] == [2, 2]
        assert [replica["finished"] for replica in state["replicas"]] == [2, 2]
        assert (state["identity"]["tp_size"], state["identity"]["dp_size"]) == (2, 2)
        answer = engine.put(1, mode="off").json()
        assert [replica["dp_rank"] for replica in answer["replicas"]] == [0, 1]


def test_an_engine_that_was_stopped_for_a_while_marks_its_run_invalid() -> None:
    with running() as engine:
        engine.generate(output=16)
        assert engine.speculation()["simulation"]["valid"]
        worker = threading.Thread(target=engine.generate_many, args=(8, 300))
        worker.start()
        engine.until(8)
        engine.process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        engine.process.send_signal(signal.SIGCONT)
        worker.join()
        simulation = engine.speculation()["simulation"]
        assert not simulation["valid"]
        assert simulation["lag"] > 0.02
        assert engine.metrics()["specdeck_simulation_valid"] == 0


def test_it_stops_cleanly_while_requests_are_under_way() -> None:
    with running() as engine:
        answers: list[httpx.Response] = []
        worker = threading.Thread(target=lambda: answers.append(engine.generate(output=20_000)))
        worker.start()
        engine.until(1)
        engine.process.terminate()
        worker.join(timeout=60)
        assert engine.process.wait(timeout=60) == 0
        assert answers[0].status_code == 503
        assert "shutting down" in answers[0].json()["error"]["message"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "engine_patch.embedded", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_a_taken_port_is_named_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run("--port", str(port))
    assert ended.returncode == 5
    assert f"cannot listen on 127.0.0.1:{port}" in ended.stderr
    assert "choose another port" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--tiers", "off,s9k1d10"), 2, "no step times for tier s9k1d10"),
        (("--tiers", "off,s1k1d2", "--launch-tier", "s3k1d4"), 2, "not among --tiers"),
        (("--tiers", "off,off"), 2, "twice"),
        (("--accept", "7"), 2, "between 1 and 4"),
        (("--max-running-requests", "999"), 2, "ends at 256"),
        (("--admin-key-file", "/nonexistent/key"), 5, "cannot read the admin key file"),
    ],
)
def test_a_wrong_command_line_is_refused_with_what_is_wrong(
    arguments: tuple[str, ...], code: int, said: str
) -> None:
    ended = run(*arguments)
    assert ended.returncode == code
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
