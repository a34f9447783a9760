"""What a benchmark measured: one record per run, and the file that holds them.  Pure.

A **run** is one (tier, concurrency) measured once; runs of the same tier and concurrency are its
repeats.  ``plain`` is a server started without speculation: the yardstick, not a tier.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from engine_patch.contract_words import OffKind
from engine_patch.tier import OFF, Frozen, TierShape

SCHEMA: Literal["specdeck.bench/1"] = "specdeck.bench/1"
PLAIN = "plain"
POISSON: Literal["poisson"] = "poisson"
MOST_REQUESTS = 1_000_000
MOST = 10**12
"""Bounds far above anything measured: what lies beyond is a mistake, and no sum overflows."""
LAST_UTC_MS = 253_402_300_799_999
"""The last millisecond of the year 9999."""


class BenchFileError(ValueError):
    """A results file cannot be used; the text begins with file, line and column."""


def _tier(name: str) -> str:
    return PLAIN if name == PLAIN else TierShape.parse(name).name


BenchTier = Annotated[str, AfterValidator(_tier)]
"""A tier's written form, or ``plain``."""


class BenchPoint(Frozen):
    """One run.  None means "not told", never 0.

    Args:
        concurrency: closed-loop clients; with Poisson arrivals the mean running batch, rounded.
        tok_s: output tokens per second, in the steady window where the source has one.
        repeat: from 1, in order of time; unique within (tier, label, setup, concurrency).  Runs of
            the same number on two tiers are compared with each other, which takes slow drift out
            if they were interleaved: A B B A gives A1 B1 B2 A2.
        block: number of the interleaving block; None where runs were not interleaved.
        accept_length: tokens per verify step and request, bonus token included.
        cap: effective ``max_running_requests``.
        off_kind: how ``off`` ran; only for that tier.
        label: keeps runs of one tier apart that differ in something else ("acc2.0", "cold").
        arrivals: closed loop, or Poisson with ``rate_s`` requests per second.
        backend, engine_version, gpu, input_len, output_len: the setup; runs are compared only
            where none of these differs.
        seconds: length of the measured window.
        requests, failed: answered well, failed.
        running: mean running batch over the window, as the engine told.
        queued: mean waiting requests over the window; above 0 the concurrency was not reached.
        graph_misses: decode steps without a captured graph in the window.
        retractions: requests retracted in the window.
        client_bound: the load generator was the bottleneck: its figures are not the server's.
        ttft_s, tpot_s: medians in seconds; tpot is tokens over time, never chunk gaps.
        at_utc_ms: when the window began.
        not_comparable: what the measurer found to stand in the way, in sentences.
        source: where the run comes from, for people ("plain.jsonl:3").
    """

    tier: BenchTier
    concurrency: int = Field(ge=1, le=MOST_REQUESTS)
    tok_s: float = Field(gt=0, ge=1e-6, le=MOST, allow_inf_nan=False)
    repeat: int = Field(default=1, ge=1, le=MOST_REQUESTS)
    block: int | None = Field(default=None, ge=0, le=MOST)
    accept_length: float | None = Field(default=None, ge=1, allow_inf_nan=False)
    cap: int | None = Field(default=None, ge=1, le=MOST)
    off_kind: OffKind | None = None
    label: str = ""
    arrivals: Literal["closed", "poisson"] = "closed"
    rate_s: float | None = Field(default=None, gt=0, le=MOST, allow_inf_nan=False)
    backend: str | None = None
    engine_version: str | None = None
    gpu: str | None = None
    input_len: int | None = Field(default=None, ge=1, le=MOST)
    output_len: int | None = Field(default=None, ge=1, le=MOST)
    seconds: float | None = Field(default=None, gt=0, le=MOST, allow_inf_nan=False)
    requests: int | None = Field(default=None, ge=0, le=MOST)
    failed: int = Field(default=0, ge=0, le=MOST)
    running: float | None = Field(default=None, ge=0, le=MOST, allow_inf_nan=False)
    queued: float | None = Field(default=None, ge=0, le=MOST, allow_inf_nan=False)
    graph_misses: int | None = Field(default=None, ge=0, le=MOST)
    retractions: int | None = Field(default=None, ge=0, le=MOST)
    client_bound: bool = False
    ttft_s: float | None = Field(default=None, ge=0, le=MOST, allow_inf_nan=False)
    tpot_s: float | None = Field(default=None, gt=0, le=MOST, allow_inf_nan=False)
    at_utc_ms: int | None = Field(default=None, ge=0, le=LAST_UTC_MS)
    not_comparable: tuple[str, ...] = ()
    source: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.off_kind is not None and self.tier != OFF:
            raise ValueError(f"off_kind belongs to tier off, not to {self.tier}")
        if self.accept_length is not None:
            steps = 0 if self.shape is None else self.shape.num_steps
            if self.accept_length > steps + 1 + 1e-6:
                raise ValueError(
                    f"{self.tier} emits at most {steps + 1} tokens per verify step, "
                    f"not {self.accept_length:g}"
                )
        return self

    @property
    def shape(self) -> TierShape | None:
        """The tier's three numbers; None for ``plain``."""
        return None if self.tier == PLAIN else TierShape.parse(self.tier)

    @property
    def speculates(self) -> bool:
        """Whether drafts were verified in this run."""
        return self.tier not in (PLAIN, OFF)


class BenchFile(Frozen):
    """A benchmark's results: what ``specdeck bench`` writes and ``analyze`` reads.

    Args:
        engine_id, setup_key: what was measured; None for imported results.
        created_utc_ms: when the benchmark ended.
        simulated: the engine's times come from a table, not from a GPU.
        complete: False if it was cancelled or ran out of time.
        client: what the load generator says of its own limit and lag, as sentences.
        notes: what a reader must know (left-out rows, interrupted work), as sentences.
    """

    schema_name: Literal["specdeck.bench/1"] = Field(
        default=SCHEMA, validation_alias="schema", serialization_alias="schema"
    )
    engine_id: str | None = None
    setup_key: str | None = None
    created_utc_ms: int | None = Field(default=None, ge=0, le=LAST_UTC_MS)
    simulated: bool = False
    complete: bool = True
    client: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    points: tuple[BenchPoint, ...] = ()
