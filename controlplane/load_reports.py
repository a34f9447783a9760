"""What a flow of load is told and what it reports, one JSON object a line.  Pure.

A **flow** is load that goes on until it is changed or stopped (``load_flow``), so that what is
measured can be chosen afterwards: a window between two reports.
"""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from controlplane.load_plan import MOST_CLIENTS
from engine_patch.tier import Frozen

REPORT_EVERY_S = 0.1


class FlowSettings(Frozen):
    """The first line a flow reads.

    Args:
        url: the server; ``api_key`` is its key for requests, never shown.
        prompts: ``builtin``, ``ids``, ``ids:VOCABULARY``, ``sharegpt:FILE``, ``lengths:FILE`` or
            ``lengths:VOCABULARY:FILE``.
        input_len, output_len: tokens per request where the prompts do not say.
        stream_interval: tokens of an answer that the server sends together.
        seed: the same seed sends the same prompts and arrivals.
        request_timeout_s: seconds after which a request counts as failed.
        max_seconds: the flow ends after so long whatever it is told.
    """

    url: str
    api_key: str | None = Field(default=None, repr=False)
    prompts: str = "builtin"
    input_len: int = Field(default=128, ge=1, le=1_000_000)
    output_len: int = Field(default=256, ge=1, le=1_000_000)
    stream_interval: int = Field(default=1, ge=1, le=1000)
    seed: int = 1
    request_timeout_s: float = Field(default=300.0, gt=0, le=3600)
    max_seconds: float = Field(default=3600.0, gt=0, le=86_400)


class FlowOrder(Frozen):
    """Any later line: so many clients in a closed loop, or so many arrivals per second.

    Args:
        clients: closed-loop clients; 0 ends all load.
        rate_s: mean arrivals per second of an open Poisson loop; then ``clients`` is the most
            requests in flight.
    """

    clients: int = Field(ge=0, le=MOST_CLIENTS)
    rate_s: float | None = Field(default=None, gt=0, le=10_000)

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.rate_s is not None and self.clients < 1:
            raise ValueError("an open loop needs a bound on the requests in flight")
        return self


class FlowRequest(Frozen):
    """One request that ended; times are milliseconds of the machine's monotonic clock.

    Args:
        first_ms: when its first token was seen; None if it failed before.
        output_tokens: tokens the server says it generated.
        accept_length, verify_steps: the server's own figures, None where it does not tell.
        cut: its first request of a client: shortened so that clients do not run in step.
        error: "" or why it failed.
    """

    sent_ms: float
    first_ms: float | None = None
    done_ms: float
    output_tokens: int = 0
    accept_length: float | None = None
    verify_steps: int | None = None
    cut: bool = False
    error: str = ""

    @property
    def ttft_s(self) -> float | None:
        """Seconds to the first token."""
        return None if self.first_ms is None else (self.first_ms - self.sent_ms) / 1000

    @property
    def tpot_s(self) -> float | None:
        """Seconds per output token after the first: tokens over time, never chunk gaps."""
        if self.first_ms is None or self.output_tokens < 2:
            return None
        return (self.done_ms - self.first_ms) / 1000 / (self.output_tokens - 1)


class FlowReport(Frozen):
    """One line of a flow, every tenth of a second.

    Args:
        at_ms: the machine's monotonic clock.
        tokens: output tokens seen since the start, those of requests under way included.
        in_flight: requests under way; ``decoding`` of them have had a first token.
        warm: clients that have had a first token since they began.
        settled: clients that have also ended their first, shortened request: from then on their
            contexts are as long as they will be.
        finished: requests that ended since the last report.
        cpu_s: the flow's own processor time since its start.
        lags_ms: how late its event loop woke, and arrivals were sent, since the last report.
    """

    at_ms: float
    tokens: int
    in_flight: int
    decoding: int
    warm: int
    settled: int = 0
    finished: tuple[FlowRequest, ...] = ()
    cpu_s: float = 0.0
    lags_ms: tuple[float, ...] = ()


class FlowHello(Frozen):
    """The flow's first line: what it sends, or why it cannot.

    Args:
        prompts: what is sent, in words for people.
        mean_output: output tokens per request on average.
        problem: "" or why nothing can be sent.
    """

    prompts: str = ""
    mean_output: float = Field(default=1.0, gt=0)
    problem: str = ""
