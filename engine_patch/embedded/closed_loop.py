"""Closed-loop clients on virtual time: fixed work, done as fast as the engine allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine_patch.embedded.core import Engine
from engine_patch.embedded.requests import Request

SPACING_MS = 0.1
"""Between requests that clients send at the same moment: they come one after another, so that the
first of a wave is prefilled alone (29 prefill passes in the measured chain run, where waves that
arrive whole would have made 16)."""

Work = Sequence[tuple[int, int]]
"""Requests as (prompt tokens, output tokens)."""


@dataclass(frozen=True)
class LoopResult:
    """What a closed loop did.

    Args:
        seconds: virtual time from the first send to the last answer.
        tokens: output tokens of all requests.
        mean_latency_s: mean time from send to answer.
    """

    requests: int
    tokens: int
    seconds: float
    mean_latency_s: float

    @property
    def tok_s(self) -> float:
        """Output tokens per second."""
        return self.tokens / self.seconds


def run_closed_loop(
    engine: Engine,
    work: Work,
    clients: int,
    *,
    turnaround_ms: float = 0.0,
    spacing_ms: float = SPACING_MS,
) -> LoopResult:
    """Let ``clients`` clients do ``work``, each taking the next request when its last is answered.

    Args:
        turnaround_ms: from an answer to the arrival of the client's next request.

    Raises:
        ValueError: there is no client or no work.
    """
    if clients < 1 or not work:
        raise ValueError("a closed loop needs at least one client and one request")
    start = engine.now_ms
    left = iter(work)
    sent: list[Request] = []
    answered = 0

    def send(at_ms: float) -> None:
        item = next(left, None)
        if item is not None:
            prompt, output = item
            sent.append(engine.submit(Request(prompt, output, arrival_ms=at_ms)))

    for client in range(clients):
        send(start + client * spacing_ms)
    while answered < len(sent):
        due = engine.next_event_ms
        if due is None:
            raise RuntimeError("requests wait, but the engine has nothing to do")
        done = engine.advance(due)
        answered += len(done)
        for place in range(len(done)):
            send(engine.now_ms + turnaround_ms + place * spacing_ms)
    end = max(request.finish_ms or 0.0 for request in sent)
    latencies = [(request.finish_ms or 0.0) - request.arrival_ms for request in sent]
    return LoopResult(
        requests=len(sent),
        tokens=sum(request.emitted for request in sent),
        seconds=(end - start) / 1000,
        mean_latency_s=sum(latencies) / len(latencies) / 1000,
    )
