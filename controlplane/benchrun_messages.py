"""Bodies of the benchmark routes under ``/v1``: pure records for server, client and console."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from controlplane.bench_records import BenchPoint
from controlplane.load_plan import MOST_CLIENTS
from engine_patch.tier import Frozen, TierName, Wire

BUDGET_MOST_S = 86_400.0


class BenchRequest(Frozen):
    """Body of ``POST /v1/engines/{id}/benchmarks``.

    Args:
        concurrency: clients of the closed loop, each a point of the sweep.
        rates_s: mean arrivals per second of open Poisson loops; then ``concurrency`` is not used.
        tiers: which of the built tiers, in this order; None for all.
        repeats: passes over all tiers at each load; what time is left after them goes where the
            answer is least certain.
        budget_s: seconds it may take in all.
        window_s: length of each steady window; None lets the budget choose.
        input_len, output_len: tokens per request, where the prompts do not say.
        prompts: ``builtin``, ``ids``, ``ids:VOCABULARY``, ``sharegpt:FILE``,
            ``lengths:FILE``, ``lengths:VOCABULARY:FILE``; files are read on the control plane's
            machine.
        stream_interval: tokens of an answer that the engine sends together (SGLang's sampling
            parameter of that name); more than 1 relieves its HTTP process.
        allow_traffic: measure although, or while, others use the engine.
        author, reason: who asks, and why; both are recorded.
    """

    concurrency: tuple[int, ...] = (1, 4, 16, 64)
    rates_s: tuple[float, ...] = ()
    tiers: tuple[TierName, ...] | None = None
    repeats: int = Field(default=2, ge=1, le=20)
    budget_s: float = Field(default=600.0, gt=0, le=BUDGET_MOST_S)
    window_s: float | None = Field(default=None, ge=0.2, le=600)
    input_len: int = Field(default=128, ge=1, le=1_000_000)
    output_len: int = Field(default=256, ge=2, le=1_000_000)
    prompts: str = Field(default="builtin", max_length=500)
    stream_interval: int = Field(default=1, ge=1, le=1000)
    allow_traffic: bool = False
    seed: int = Field(default=1, ge=0, le=2**31)
    author: str = Field(min_length=1, max_length=150)
    reason: str = Field(default="", max_length=300)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the results must know of the request."""
        if self.stream_interval == 1:
            return ()
        return (
            f"answers came in parts of {self.stream_interval} tokens or more: clients that are "
            "sent each token by itself may get less",
        )

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if not self.concurrency and not self.rates_s:
            raise ValueError("give at least one concurrency, or rates of arrival")
        for clients in self.concurrency:
            if not 1 <= clients <= MOST_CLIENTS:
                raise ValueError(f"concurrency {clients} must lie between 1 and {MOST_CLIENTS}")
        for rate in self.rates_s:
            if not 0 < rate <= 10_000:
                raise ValueError(f"rate {rate:g} must lie above 0 and up to 10000 requests/s")
        for name, values in (("concurrency", self.concurrency), ("rates_s", self.rates_s)):
            if len(set(values)) != len(values):
                raise ValueError(f"{name} names a value twice")
        if self.tiers is not None and len(set(self.tiers)) != len(self.tiers):
            raise ValueError("tiers names a tier twice")
        if self.tiers is not None and not self.tiers:
            raise ValueError("tiers is empty: leave it out for all built tiers")
        return self


class BenchState(StrEnum):
    """What became of a benchmark."""

    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    STOPPED = "stopped"
    """It could not go on; the message says why."""
    UNFINISHED = "unfinished"
    """The control plane ended before it did; its points are kept."""


class BenchStatus(Wire):
    """One benchmark: how far it is and what it has measured.

    Args:
        id: names it for its engine; begins with its start in UTC.
        setup_key: what its numbers are valid for.
        phase: what it does now, in words.
        done_runs, total_runs: windows measured and planned, further passes included.
        left_s: seconds of its budget that are left; None once it ended.
        message: why it ended early; "" otherwise.
        prompts: what was sent, in words.
        client: what the load generator says of itself.
    """

    id: str
    engine_id: str
    state: BenchState
    author: str
    reason: str = ""
    request: BenchRequest | None = None
    setup_key: str
    simulated: bool = False
    started_utc_ms: int
    ended_utc_ms: int | None = None
    phase: str = ""
    done_runs: int = 0
    total_runs: int = 0
    elapsed_s: float = 0.0
    left_s: float | None = None
    message: str = ""
    prompts: str = ""
    client: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    points: tuple[BenchPoint, ...] = ()


class CancelRequest(Frozen):
    """Body of ``DELETE /v1/engines/{id}/benchmarks/{benchmark}``."""

    author: str = Field(min_length=1, max_length=200)
    reason: str = Field(default="", max_length=500)
