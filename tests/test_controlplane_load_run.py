"""The loops of the load generator against a real embedded engine on a real socket."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from controlplane import load
from controlplane.load import Bounds, LoadPhase, LoadPlan, Target, UnreachableError, Work


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    """URL of an embedded engine that speculates with an accept length of exactly 2."""
    words = ["--port", "0", "--tiers", "off,s3k1d4", "--accept", "2", "--accept-mode", "exact"]
    with subprocess.Popen(
        [sys.executable, "-m", "engine_patch.embedded", *words], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
        process.terminate()


def _work(*phases: LoadPhase, stream: bool = False, repeat: bool = False, **bounds: float) -> Work:
    return Work(
        plan=LoadPlan(phases=phases),
        stream=stream,
        repeat=repeat,
        bounds=Bounds(**bounds),  # type: ignore[arg-type]
    )


def _closed(clients: int, count: int, output: int = 64) -> LoadPhase:
    return LoadPhase(concurrency=clients, requests=((128, output),) * count)


async def test_a_closed_loop_sends_every_request_once_with_at_most_its_clients_in_flight(
    engine: str,
) -> None:
    result = await load.run(Target.parse(engine), _work(_closed(4, 12), _closed(2, 4)))
    assert result.complete
    assert [p.requests for p in result.phases] == [12, 4]
    assert result.errors == {}
    assert [p.output_tokens for p in result.phases] == [12 * 64, 4 * 64]
    assert {r.prompt_tokens for r in result.requests} == {128}
    for phase, clients in ((0, 4), (1, 2)):
        mine = [r for r in result.requests if r.phase == phase]
        edges = sorted([(r.sent_s, 1) for r in mine] + [(r.done_s, -1) for r in mine])
        most = in_flight = 0
        for _, change in edges:
            in_flight += change
            most = max(most, in_flight)
        assert most == clients
    first, second = result.phases
    assert second.start_s >= first.end_s
    assert first.accept_length == pytest.approx(2.0, abs=0.1)
    assert first.ttft_s is None
    assert first.tpot_s is None


async def test_steady_speed_is_that_of_the_engines_table(engine: str) -> None:
    # s3k1d4 at batch 4 in the FA3 table: a step of 5.99 ms yields 2 tokens for each request.
    result = await load.run(Target.parse(engine), _work(_closed(4, 12, output=200)))
    steady = result.phases[0].steady
    assert steady is not None
    # Below it by the prefill of the requests that follow: two passes of 26 ms in 0.6 s.
    assert 0.8 < steady.tok_s / (4 * 2 / 0.00599) < 1.0


async def test_streaming_shows_the_first_token_and_the_time_per_token(engine: str) -> None:
    result = await load.run(Target.parse(engine), _work(_closed(1, 2, output=200), stream=True))
    (phase,) = result.phases
    assert phase.output_tokens == 400
    assert phase.ttft_s is not None
    assert 0.02 < phase.ttft_s.p50 < 0.2  # one prefill pass of about 26 ms, and HTTP
    assert phase.tpot_s is not None
    # Steps of 6.05 ms bring 2 tokens: the distance between chunks would show twice as much.
    assert phase.tpot_s.p50 == pytest.approx(0.00605 / 2, rel=0.15)


async def test_poisson_arrivals_do_not_wait_for_answers(engine: str) -> None:
    phase = LoadPhase(concurrency=64, requests=((128, 100),) * 40, rate=40.0)
    result = await load.run(Target.parse(engine), _work(phase))
    dues = [r.due_s for r in sorted(result.requests, key=lambda r: r.due_s)]
    assert 0.4 < (dues[-1] - dues[0]) / (40 / 40.0) < 1.9
    assert all(0 <= r.sent_s - r.due_s < 5 for r in result.requests)
    # Each answer takes about 0.3 s, so a closed loop of one client would need ten times as long.
    assert result.seconds < 9


async def test_the_same_seed_draws_the_same_arrivals_and_prompts(engine: str) -> None:
    phase = LoadPhase(concurrency=8, requests=((8, 2),) * 5, rate=200.0)
    runs = [await load.run(Target.parse(engine), _work(phase)) for _ in range(2)]
    gaps = [[r.due_s - run.requests[0].due_s for r in run.requests] for run in runs]
    assert gaps[0] == pytest.approx(gaps[1], abs=0.002)


async def test_a_bound_in_time_ends_a_run_and_keeps_what_was_answered(engine: str) -> None:
    began = time.monotonic()
    work = _work(_closed(2, 100, output=100), max_seconds=0.8)
    result = await load.run(Target.parse(engine), work)
    assert time.monotonic() - began < 10
    assert not result.complete
    assert result.stopped_by == "max_seconds"
    (phase,) = result.phases
    assert not phase.complete
    assert 0 < phase.requests < 100
    assert phase.failed == 0


async def test_repeating_goes_round_until_the_bound_in_requests(engine: str) -> None:
    work = _work(_closed(2, 4, output=8), _closed(1, 2, output=8), repeat=True, max_requests=15)
    result = await load.run(Target.parse(engine), work)
    assert result.stopped_by == "max_requests"
    assert [p.requests for p in result.phases] == [4, 2, 4, 2, 3]


async def test_a_stop_ends_a_run_at_once(engine: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.2, stop.set)
    began = time.monotonic()
    work = _work(_closed(2, 50, output=2000))
    result = await load.run(Target.parse(engine), work, stop=stop)
    assert time.monotonic() - began < 20
    assert result.stopped_by == "stop"
    assert result.phases == ()


async def test_a_request_the_server_refuses_is_counted_and_the_rest_goes_on(engine: str) -> None:
    phase = LoadPhase(concurrency=1, requests=((128, 8), (128, 999_999), (128, 8)))
    result = await load.run(Target.parse(engine), _work(phase))
    assert [bool(r.error) for r in result.requests] == [False, True, False]
    assert result.phases[0].failed == 1
    assert result.phases[0].output_tokens == 16
    (message,) = result.errors
    assert message.startswith("BadAnswerError: HTTP 4")


async def test_a_request_that_takes_too_long_fails_by_itself(engine: str) -> None:
    phase = LoadPhase(concurrency=1, requests=((128, 5000), (128, 8)))
    result = await load.run(Target.parse(engine), _work(phase, request_timeout_s=0.3))
    assert [r.error for r in result.requests] == ["no answer within 0.3 s", ""]


async def test_nobody_listening_is_said_before_anything_is_sent() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening
        port = taken.getsockname()[1]
        with pytest.raises(UnreachableError, match=f"nothing answers at http://127.0.0.1:{port}"):
            await load.run(Target.parse(f"http://127.0.0.1:{port}"), _work(_closed(1, 1)))


async def test_256_clients_cost_less_than_a_quarter_of_a_core(engine: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF)
    result = await load.run(Target.parse(engine), _work(_closed(256, 256, output=64)))
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert result.phases[0].failed == 0
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    per_request_ms = cpu_s / 256 * 1000
    # A quarter of a core at 66 requests per second is 3.8 ms for each.
    assert per_request_ms < 250 / 66
