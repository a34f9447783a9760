"""The fault port."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.embedded_process import Embedded, running


@pytest.fixture(scope="module")
def started() -> Iterator[Embedded]:
    with running("--tp", "2") as engine:
        yield engine


@pytest.fixture
def engine(started: Embedded) -> Iterator[Embedded]:
    """A fresh boot without faults."""
    started.fault(clear=True, restart=True)
    yield started
    started.fault(clear=True)


def tiers(engine: Embedded) -> list[str]:
    return [rank["tier"] for rank in engine.speculation()["replicas"][0]["ranks"]]


def test_no_fault_port_is_opened_unless_asked_for() -> None:
    command = [sys.executable, "-m", "engine_patch.embedded", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        process.terminate()
    assert ready["fault_port"] is None


def test_an_unknown_fault_is_refused_with_those_there_are(engine: Embedded) -> None:
    answer = httpx.post(f"{engine.fault_url}/faults", json={"explode": True})
    assert answer.status_code == 422
    assert "lie" in answer.json()["allowed"]
    assert httpx.get(f"{engine.fault_url}/faults").json()["lie"] is False


def test_hang_lets_every_request_wait(engine: Embedded) -> None:
    engine.fault(hang=0.5)
    start = time.monotonic()
    with pytest.raises(httpx.ReadTimeout):
        engine.http.get("/speculation", timeout=0.2)
    assert engine.http.get("/health").status_code == 200
    assert time.monotonic() - start >= 0.45


def test_server_info_alone_can_hang(engine: Embedded) -> None:
    assert engine.fault(hang_info=600)["hang_info_left_s"] > 500
    with pytest.raises(httpx.ReadTimeout):
        engine.http.get("/server_info", timeout=0.2)
    assert engine.http.get("/speculation").status_code == 200
    assert engine.fault(hang_info=0)["hang_info_left_s"] == 0
    assert engine.http.get("/server_info").status_code == 200


def test_a_dripping_answer_comes_byte_by_byte_and_whole(engine: Embedded) -> None:
    engine.fault(drip=1)
    with engine.http.stream("GET", "/health_generate") as answer:
        assert sum(len(piece) for piece in answer.iter_raw()) == int(
            answer.headers.get("content-length", 0)
        )
    with engine.http.stream("GET", "/v1/models") as answer:
        pieces = list(answer.iter_raw())
    assert len(pieces) > 1
    assert json.loads(b"".join(pieces))["data"]
    assert engine.fault(drip=0)["drip_ms"] == 0


def test_lie_answers_applied_and_changes_nothing(engine: Embedded) -> None:
    engine.fault(lie=True)
    answer = engine.put(1, mode="off")
    assert answer.status_code == 200
    assert answer.json()["replicas"][0]["applied"]
    state = engine.speculation()
    assert state["desired_tier"] == "off"
    assert tiers(engine) == ["s3k1d4", "s3k1d4"]


def test_a_refusing_rank_keeps_its_tier_until_it_is_healed(engine: Embedded) -> None:
    engine.fault(rank_refuses=1)
    assert engine.put(1, mode="off").status_code == 200
    assert tiers(engine) == ["off", "s3k1d4"]
    engine.fault(rank_refuses=None)
    assert tiers(engine) == ["off", "off"]


def test_restart_gives_a_new_boot_fails_what_is_in_flight_and_counts_from_zero(
    engine: Embedded,
) -> None:
    engine.generate()
    engine.put(4, mode="off")
    before = engine.speculation()
    answers: list[httpx.Response] = []
    worker = threading.Thread(target=lambda: answers.append(engine.generate(output=5000)))
    worker.start()
    engine.until(1)
    engine.fault(restart=True)
    worker.join(timeout=60)
    after = engine.speculation()
    assert answers[0].status_code == 503
    assert before["boot_id"] != after["boot_id"]
    assert (after["epoch"], after["generation"], after["mode"]) == (0, 0, "on")
    assert after["replicas"][0]["decode_tokens"] == after["replicas"][0]["finished"] == 0
    assert after["journal"] == []
    assert engine.put(1, mode="off").status_code == 200, "order starts again"


def test_slow_delays_every_answer(engine: Embedded) -> None:
    engine.fault(slow=200)
    start = time.monotonic()
    engine.http.get("/health")
    assert time.monotonic() - start >= 0.19


def test_error_fails_so_many_answers(engine: Embedded) -> None:
    engine.fault(error=2)
    codes = [engine.http.get("/speculation").status_code for _ in range(3)]
    assert codes == [500, 500, 200]


def test_without_the_plugin_speculation_does_not_exist_and_the_rest_serves(
    engine: Embedded,
) -> None:
    engine.fault(drop_speculation=True)
    assert engine.http.get("/speculation").status_code == 404
    assert engine.put(1, mode="off").status_code == 404
    assert engine.generate(4).status_code == 200


def test_a_refused_plugin_says_its_sentence(engine: Embedded) -> None:
    engine.fault(refused="does not fit")
    answer = engine.http.get("/speculation")
    assert answer.status_code == 503
    assert answer.json() == {"plugin": "refused", "message": "does not fit"}


def test_another_protocol_is_claimed(engine: Embedded) -> None:
    engine.fault(protocol=99)
    state = engine.speculation()
    assert (state["protocol"], state["protocol_min"]) == (99, 99)


def test_frozen_numbers_repeat_and_age(engine: Embedded) -> None:
    engine.fault(freeze_sample=True)
    first = engine.speculation()["replicas"][0]
    engine.generate()
    time.sleep(0.05)
    second = engine.speculation()["replicas"][0]
    assert first["sample"] == second["sample"]
    assert first["decode_tokens"] == second["decode_tokens"]
    assert second["age_ms"] > first["age_ms"] + 50
    engine.fault(freeze_sample=False)
    third = engine.speculation()["replicas"][0]
    assert third["sample"] > second["sample"]
    assert third["finished"] == 1


def test_kv_pressure_fills_the_pool_and_goes_away(engine: Embedded) -> None:
    engine.fault(kv_pressure=800_000)
    kv = engine.speculation()["replicas"][0]["kv"]
    assert kv["committed"] == 800_000
    engine.fault(clear=True)
    assert engine.speculation()["replicas"][0]["kv"]["committed"] == 0


def test_kv_pressure_retracts_running_requests(engine: Embedded) -> None:
    worker = threading.Thread(target=engine.generate_many, args=(8, 400))
    worker.start()
    engine.until(8)
    engine.fault(kv_pressure=861_668 - 1500)
    engine.until(1, "retractions")
    engine.fault(clear=True)
    worker.join(timeout=60)
    assert engine.speculation()["replicas"][0]["finished"] == 8


def test_acceptance_can_be_changed_while_it_runs(engine: Embedded) -> None:
    engine.fault(accept=1.0)
    engine.generate(60)
    assert engine.speculation()["replicas"][0]["accept"]["length"] == 1.0


def test_numbers_of_an_idle_engine_are_new_each_time(engine: Embedded) -> None:
    samples = [engine.speculation()["replicas"][0]["sample"] for _ in range(3)]
    assert samples == sorted(set(samples))
