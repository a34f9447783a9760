"""Runs put in order: setups, series, cells, and what may be compared with what.  Pure.

A **series** is one tier on one setup; a **cell** is its runs at one concurrency.  Runs that stand
for something else than the server's speed at that concurrency are taken out with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from controlplane.bench_records import PLAIN, POISSON, BenchPoint
from engine_patch.contract_words import OffKind
from engine_patch.tier import OFF

AT_A_RATE = "requests came at a rate: tokens per second are the demand, not the speed"
QUEUED = 0.5
"""Mean waiting requests above which the running batch was not the asked concurrency."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What must be equal for two runs to be compared; None where a run does not tell."""

    backend: str | None
    engine_version: str | None
    gpu: str | None
    input_len: int | None
    output_len: int | None
    arrivals: str

    @classmethod
    def of(cls, run: BenchPoint) -> Setup:
        """The setup of a run."""
        return cls(
            run.backend, run.engine_version, run.gpu, run.input_len, run.output_len, run.arrivals
        )

    def fits(self, other: Setup) -> bool:
        """Whether nothing that both tell differs."""
        mine = (self.backend, self.engine_version, self.gpu, self.input_len, self.output_len)
        theirs = (other.backend, other.engine_version, other.gpu, other.input_len, other.output_len)
        return self.arrivals == other.arrivals and all(
            a is None or b is None or a == b for a, b in zip(mine, theirs, strict=True)
        )

    @property
    def name(self) -> str:
        """For people; "" where nothing is told."""
        parts = [part for part in (self.backend, self.gpu, self.engine_version) if part]
        if self.input_len is not None and self.output_len is not None:
            parts.append(f"{self.input_len}+{self.output_len} tokens")
        if self.arrivals == POISSON:
            parts.append("Poisson arrivals")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Cell:
    """The usable runs of a series at one concurrency."""

    concurrency: int
    runs: tuple[BenchPoint, ...]

    @property
    def tok_s(self) -> float:
        """Mean over the repeats."""
        return fmean(run.tok_s for run in self.runs)

    @property
    def accept_length(self) -> float | None:
        """Mean over the repeats that tell; 1 for ``off``; None for ``plain`` or if none tells."""
        told = [run.accept_length for run in self.runs if run.accept_length is not None]
        if self.runs[0].tier == OFF:
            return 1.0
        return fmean(told) if told else None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A cell, or some runs of it, that may not be compared."""

    concurrency: int
    repeats: tuple[int, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Series:
    """One tier on one setup.

    Args:
        cells: usable runs by concurrency.
        left_out: what was taken out.
        caps: effective ``max_running_requests`` of its runs; several if they differ.
    """

    tier: str
    label: str
    setup: Setup
    off_kind: OffKind | None = None
    cells: dict[int, Cell] = field(default_factory=dict)
    left_out: tuple[LeftOut, ...] = ()
    caps: tuple[int, ...] = ()

    @property
    def cap(self) -> int | None:
        """The smallest cap any of its runs had; None if none was told."""
        return min(self.caps, default=None)

    @property
    def tier_text(self) -> str:
        """The tier in words: an ``off`` says how it runs."""
        if self.tier != OFF or self.off_kind is None:
            return self.tier
        return "off (plain path)" if self.off_kind is OffKind.PLAIN_PATH else "one-token verify"

    @property
    def name(self) -> str:
        """For people, and unique in a file."""
        where = f"({self.setup.name})" if self.setup.name else ""
        return " ".join(part for part in (self.tier_text, self.label, where) if part)


def series_of(points: Iterable[BenchPoint]) -> tuple[Series, ...]:
    """All series of a file, in the order of their first runs."""
    grouped: dict[tuple[str, str, Setup, OffKind | None], list[BenchPoint]] = {}
    for run in points:
        key = (run.tier, run.label, Setup.of(run), run.off_kind)
        grouped.setdefault(key, []).append(run)
    return tuple(
        _series(tier, label, setup, off_kind, runs)
        for (tier, label, setup, off_kind), runs in grouped.items()
    )


def _series(
    tier: str, label: str, setup: Setup, off_kind: OffKind | None, runs: Sequence[BenchPoint]
) -> Series:
    by_concurrency: dict[int, list[BenchPoint]] = {}
    for run in runs:
        by_concurrency.setdefault(run.concurrency, []).append(run)
    cells: dict[int, Cell] = {}
    left_out: list[LeftOut] = []
    for concurrency, here in sorted(by_concurrency.items()):
        good = [run for run in here if not obstacles(run)]
        bad = [run for run in here if obstacles(run)]
        if good:
            cells[concurrency] = Cell(concurrency, tuple(good))
        if bad:
            reasons = dict.fromkeys(reason for run in bad for reason in obstacles(run))
            left_out.append(LeftOut(concurrency, tuple(run.repeat for run in bad), tuple(reasons)))
    caps = tuple(sorted({run.cap for run in runs if run.cap is not None}))
    return Series(tier, label, setup, off_kind, cells, tuple(left_out), caps)


def obstacles(run: BenchPoint) -> tuple[str, ...]:
    """Why a run does not stand for the server's speed at its concurrency; empty if it does."""
    found = list(run.not_comparable)
    if run.arrivals == POISSON:
        found.append(AT_A_RATE)
    if run.client_bound:
        found.append("the load generator was the bottleneck: its figure, not the server's")
    if run.queued is not None and run.queued > QUEUED:
        found.append(
            f"{run.queued:.1f} requests waited on average: the running batch was not "
            f"{run.concurrency}"
        )
    if run.graph_misses:
        found.append(f"{run.graph_misses} decode steps ran without a CUDA graph")
    if run.retractions:
        found.append(f"{run.retractions} requests were retracted: KV slots ran out")
    if run.failed:
        found.append(f"{run.failed} requests failed")
    return tuple(found)


def cap_text(series: Series) -> str:
    """A series' cap in words."""
    return "no stated cap" if series.cap is None else f"cap {series.cap}"


def beyond_caps(series: Series, base: Series, concurrency: int) -> str | None:
    """Why the caps forbid a comparison at a concurrency; None if they allow it.

    Above a cap the server runs the cap's batch and lets the rest wait.
    """
    known = [cap for cap in (*series.caps, *base.caps) if cap < concurrency]
    if not known:
        return None
    if series.caps == base.caps and len(series.caps) == 1:
        return f"above the cap of {known[0]} running requests: the batch was not {concurrency}"
    return (
        f"unequal caps on running requests: {cap_text(series)} for {series.tier_text}, "
        f"{cap_text(base)} for {base.tier_text}; above {min(known)} they run different batches"
    )


def unequal_caps(series: Series, base: Series) -> str | None:
    """How the caps differ, in words; None if they do not, or none is known."""
    if series.caps == base.caps or not (series.caps or base.caps):
        return None
    return f"{series.tier_text} ran with {cap_text(series)}, {base.tier_text} with {cap_text(base)}"


def base_of(series: Series, every: Sequence[Series]) -> Series | None:
    """What a series is compared with: ``plain`` if measured, else ``off``; None if neither is.

    Of several it is the one with most shared concurrencies; of several ``off`` the plain path wins.
    """
    for tier in (PLAIN, OFF):
        if series.tier == tier:
            return None
        found = [
            other
            for other in every
            if other.tier == tier and other.setup.fits(series.setup) and _shared(series, other)
        ]
        if found:
            return max(
                found,
                key=lambda other: (
                    other.off_kind is not OffKind.ONE_TOKEN_VERIFY,
                    other.setup == series.setup,
                    other.label in ("", series.label),
                    _shared(series, other),
                ),
            )
    return None


def _shared(series: Series, other: Series) -> int:
    mine = {*series.cells, *(gone.concurrency for gone in series.left_out)}
    theirs = {*other.cells, *(gone.concurrency for gone in other.left_out)}
    return len(mine & theirs)
