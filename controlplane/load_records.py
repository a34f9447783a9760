"""What a load run measured: one record per request, phase and run.  Pure; times in seconds.

All times of requests and phases are offsets from the start of the run on one monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import Field

from engine_patch.tier import Frozen

SCHEMA = "specdeck.load/1"


class RequestRecord(Frozen):
    """One request.

    Args:
        phase: index of the phase, counting on when phases repeat.
        due_s: when it should have been sent: the arrival in the open loop, else when its client
            was free.
        sent_s, first_s, done_s: sent, first token seen (streaming only), answered whole.
        output_tokens: tokens the engine says it generated; 0 on a failure.
        accept_length: the engine's own figure for this request, bonus token included; None if it
            verified nothing or does not tell.
        verify_steps: verify steps of this request, None if the engine does not tell.
        error: "" or why it failed.
    """

    phase: int
    client: int
    prompt_tokens: int
    due_s: float
    sent_s: float
    first_s: float | None = None
    done_s: float
    output_tokens: int = 0
    accept_length: float | None = None
    verify_steps: int | None = None
    error: str = ""

    @property
    def e2e_s(self) -> float:
        """From sending to the whole answer."""
        return self.done_s - self.sent_s

    @property
    def ttft_s(self) -> float | None:
        """Time to the first token; None without streaming."""
        return None if self.first_s is None else self.first_s - self.sent_s

    @property
    def tpot_s(self) -> float | None:
        """Seconds per output token after the first: tokens over time.

        Never the distance between chunks: a verify step emits several tokens in one chunk.  None
        without streaming, where prefill and queueing cannot be told from decoding.
        """
        if self.first_s is None or self.output_tokens < 2:
            return None
        return (self.done_s - self.first_s) / (self.output_tokens - 1)


class Quantiles(Frozen):
    """Middle and tail of a sample, in seconds."""

    p50: float
    p99: float
    most: float
    samples: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Quantiles | None:
        """Nearest-rank quantiles; None of nothing."""
        if not values:
            return None
        ranked = sorted(values)

        def rank(share: float) -> float:
            return ranked[max(0, math.ceil(share * len(ranked)) - 1)]

        return cls(p50=rank(0.5), p99=rank(0.99), most=ranked[-1], samples=len(ranked))


class Steady(Frozen):
    """The part of a phase in which all clients were busy.

    From the moment every client had its first answer until there was no request left to send.
    ``tokens`` counts each request by the share of its time that lies inside.
    """

    start_s: float
    end_s: float
    tokens: float

    @property
    def tok_s(self) -> float:
        """Output tokens per second in the window."""
        return self.tokens / (self.end_s - self.start_s)


class PhaseRecord(Frozen):
    """One phase.

    Args:
        start_s, end_s: first request sent, last one answered.
        complete: False if a bound or a stop ended it early.
        tok_s: output tokens over the whole phase, ramp and tail included.
        steady: None where the clients were never all busy.
        accept_length: mean over requests weighted by their verify steps.
    """

    index: int
    concurrency: int
    start_s: float
    end_s: float
    requests: int
    failed: int
    output_tokens: int
    complete: bool
    steady: Steady | None = None
    e2e_s: Quantiles | None = None
    ttft_s: Quantiles | None = None
    tpot_s: Quantiles | None = None
    accept_length: float | None = None

    @property
    def seconds(self) -> float:
        """Length of the phase."""
        return self.end_s - self.start_s

    @property
    def tok_s(self) -> float | None:
        """Output tokens per second over the whole phase; None for an empty one."""
        return self.output_tokens / self.seconds if self.seconds > 0 else None


class Own(Frozen):
    """What the load generator itself cost, and how late it was.

    Args:
        cpu_share: its processor time over wall time; 1.0 is a whole core.
        lag_s: how late its event loop woke, measured all the time; for the open loop also how late
            requests were sent.
        bottleneck: True when its figures describe the generator, not the server.
    """

    cpu_share: float
    lag_s: Quantiles | None = None
    bottleneck: bool = False


class LoadResult(Frozen):
    """A whole run."""

    schema_name: str = Field(default=SCHEMA, serialization_alias="schema")
    target: str
    stream: bool
    started_utc_ms: int
    seconds: float
    complete: bool
    stopped_by: str = ""
    phases: tuple[PhaseRecord, ...]
    own: Own
    errors: dict[str, int] = Field(default_factory=dict)
    requests: tuple[RequestRecord, ...] = ()


BOTTLENECK_CPU = 0.85
"""Share of one core above which an event loop cannot be trusted to be on time."""
BOTTLENECK_LAG_S = 0.05


def summarise(
    index: int, concurrency: int, records: Sequence[RequestRecord], *, complete: bool
) -> PhaseRecord:
    """A phase's record from its requests (at least one)."""
    good = [r for r in records if not r.error]
    verified = [
        (r.accept_length, r.verify_steps) for r in good if r.accept_length and r.verify_steps
    ]
    steps = sum(count or 0 for _, count in verified)
    return PhaseRecord(
        index=index,
        concurrency=concurrency,
        start_s=min(r.sent_s for r in records),
        end_s=max(r.done_s for r in records),
        requests=len(records),
        failed=len(records) - len(good),
        output_tokens=sum(r.output_tokens for r in good),
        complete=complete,
        steady=steady_window(concurrency, good),
        e2e_s=Quantiles.of([r.e2e_s for r in good]),
        ttft_s=Quantiles.of([r.ttft_s for r in good if r.ttft_s is not None]),
        tpot_s=Quantiles.of([r.tpot_s for r in good if r.tpot_s is not None]),
        accept_length=(
            sum(length * count for length, count in verified) / steps if steps else None
        ),
    )


def steady_window(concurrency: int, records: Sequence[RequestRecord]) -> Steady | None:
    """The window in which all ``concurrency`` clients were busy.

    None if there was none, or none that lasted half a typical request.
    """
    first_done: dict[int, float] = {}
    for record in records:
        known = first_done.get(record.client)
        if known is None or record.done_s < known:
            first_done[record.client] = record.done_s
    if len(first_done) < concurrency:
        return None
    start = max(first_done.values())
    end = max(record.sent_s for record in records)
    typical = Quantiles.of([record.e2e_s for record in records])
    if typical is None or end - start < typical.p50 / 2:
        # Clients in step leave a sliver between two rounds, in which next to nothing happened.
        return None
    tokens = 0.0
    for record in records:
        # A streamed request yields nothing before its first token; of any other only the whole
        # time is known.
        begun = record.sent_s if record.first_s is None else record.first_s
        inside = min(record.done_s, end) - max(begun, start)
        if inside > 0:
            tokens += record.output_tokens * inside / (record.done_s - begun)
    return Steady(start_s=start, end_s=end, tokens=tokens)


def own(cpu_s: float, wall_s: float, lags: Sequence[float]) -> Own:
    """The generator's own account from its processor time and the lags it saw."""
    share = cpu_s / wall_s if wall_s > 0 else 0.0
    lag = Quantiles.of(lags)
    late = lag is not None and lag.p99 > BOTTLENECK_LAG_S
    return Own(cpu_share=share, lag_s=lag, bottleneck=share > BOTTLENECK_CPU or late)
