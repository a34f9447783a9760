"""What an analysis says: records that are printed, stored, drawn and sent.  Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from controlplane.bench_crossover import Crossover, Sign
from controlplane.bench_records import BenchTier
from engine_patch.contract_words import OffKind
from engine_patch.tier import Frozen

SCHEMA: Literal["specdeck.bench-analysis/1"] = "specdeck.bench-analysis/1"


class Bounds(Frozen):
    """A 95 % interval."""

    low: float
    high: float


class Base(Frozen):
    """What a series is compared with.

    Args:
        tier: ``plain``, or ``off`` where no plain server was measured.
        off_kind: how that ``off`` runs.
        text: the same in words.
    """

    tier: BenchTier
    off_kind: OffKind | None = None
    text: str


class Point(Frozen):
    """A series against its base at one concurrency.

    Args:
        tok_s, base_tok_s: means over the repeats, output tokens per second.
        speedup: ratio of the means.
        interval: of the speed-up; None unless both sides were repeated.
        resolution: "resolved", or "not resolved" and why.
        sign: faster, slower or a tie; by the interval, or by ``tolerance`` where there is none.
        tolerance: ratios closer to 1 than this are ties; for points without an interval.
        accept_length: measured, tokens per verify step and request.
        break_even: the accept length at which the speed-up would be 1.
        floor: the least speed-up that arithmetic allows; None without an accept length.
        below_floor: None where there is no floor.
        advice: what to look at if it lies below.
    """

    series: str
    tier: BenchTier
    concurrency: int
    tok_s: float
    repeats: int
    base_tok_s: float
    base_repeats: int
    speedup: float
    interval: Bounds | None = None
    resolution: str
    sign: Sign
    tolerance: float | None = None
    accept_length: float | None = None
    break_even: float | None = None
    break_even_interval: Bounds | None = None
    floor: float | None = None
    below_floor: bool | None = None
    advice: str = ""


class NotComparable(Frozen):
    """A point, or some repeats of it, that may not be compared."""

    series: str
    tier: BenchTier
    concurrency: int
    repeats: tuple[int, ...] = ()
    reasons: tuple[str, ...]


class BelowFloor(Frozen):
    """A point that is slower than arithmetic allows."""

    series: str
    tier: BenchTier
    concurrency: int
    speedup: float
    floor: float
    advice: str


class SeriesFindings(Frozen):
    """One tier on one setup against its base.

    Args:
        name: unique in the analysis.
        cap, base_cap: effective ``max_running_requests``; None if not told.
        draft_share, draft_share_source: ``d`` of the floor, and where it comes from.
        limit: why nothing is said at saturation (unequal caps); "" if there is no such limit.
    """

    name: str
    tier: BenchTier
    label: str = ""
    off_kind: OffKind | None = None
    backend: str | None = None
    engine_version: str | None = None
    gpu: str | None = None
    input_len: int | None = None
    output_len: int | None = None
    cap: int | None = None
    base: Base | None = None
    base_cap: int | None = None
    limit: str = ""
    draft_share: float | None = None
    draft_share_source: str = ""
    crossover: Crossover
    points: tuple[Point, ...] = ()
    below_floor: tuple[BelowFloor, ...] = ()
    not_comparable: tuple[NotComparable, ...] = ()
    verdict: str


class AtRate(Frozen):
    """One tier at one rate.

    Args:
        runs: how many windows the means are of; those that something spoiled are left out.
        running: mean running batch.
        tok_s: output tokens per second: the demand, unless the server fell behind.
        ttft_s, tpot_s: means of the windows' medians, in seconds.
    """

    rate_s: float
    tier: BenchTier
    label: str = ""
    runs: int = Field(ge=1)
    running: float | None = None
    tok_s: float
    ttft_s: float | None = None
    tpot_s: float | None = None


class Analysis(Frozen):
    """A whole file.

    Args:
        source: file name or benchmark id.
        crossover: of the one speculating series, or of the best of several on one setup; without
            bounds where the file holds several setups.
        series: every series that is not itself a base.
        points, below_floor, not_comparable: of all series together.
        arrivals: the runs under Poisson arrivals, by rate; they are in no series.
    """

    schema_name: Literal["specdeck.bench-analysis/1"] = Field(
        default=SCHEMA, validation_alias="schema", serialization_alias="schema"
    )
    source: str = ""
    setup_key: str | None = None
    simulated: bool = False
    complete: bool = True
    verdict: str
    crossover: Crossover
    points: tuple[Point, ...] = ()
    below_floor: tuple[BelowFloor, ...] = ()
    not_comparable: tuple[NotComparable, ...] = ()
    series: tuple[SeriesFindings, ...] = ()
    arrivals: tuple[AtRate, ...] = ()
    notes: tuple[str, ...] = ()
