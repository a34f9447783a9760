"""The step-cost table of a setup: benchmark and live telemetry merged by age and weight.  Pure.

A source's weight in a cell is the number of decode steps it saw, halved for every week of its age
and capped, so that neither an old nor a long-running source drowns a new one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean, variance

from controlplane.bench_cells import obstacles
from controlplane.bench_records import PLAIN, BenchPoint
from engine_patch.costs import ContextBand, StepCost, bucket, context_band
from engine_patch.tier import OFF
from store.measurements import CostOrigin, CostTable

HALF_LIFE_MS = 7 * 24 * 3600 * 1000
MOST_SAMPLES = 5000
LEAST_SHOWN = 0.01
"""Share of a cell below which a source is no longer listed by name."""
OLDER = "older sources"
_KEY_PARTS = (
    "engine and version",
    "model",
    "GPU",
    "attention backend",
    "parallelism",
    "details (versions, drafter, dtype, tiers, off kind, cap on running requests, KV pool)",
)
_Cell = tuple[str, int, ContextBand]


class KeyDiffersError(ValueError):
    """Costs of one setup were offered for another; the text names what differs."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """Costs from one source.

    Args:
        setup_key: what they were measured on.
        source: what measured them, for people.
        at_utc_ms: when; its weight is reckoned from here.
        origins: where its own cells come from, if it was merged before.
    """

    setup_key: str
    source: str
    at_utc_ms: int
    costs: tuple[StepCost, ...]
    origins: tuple[CostOrigin, ...] = ()


def of_runs(points: Iterable[BenchPoint], *, dp_size: int = 1) -> tuple[StepCost, ...]:
    """Step times from a benchmark's runs: batch x tokens per step / tokens per second.

    A run's time holds the prefill passes between its decode steps too, so these cells are a little
    slower than live telemetry.  Runs that may not be compared, runs without an accept length and
    ``plain`` (no tier) bring nothing.

    Args:
        dp_size: replicas the requests were spread over; cells are per replica.
    """
    found: dict[_Cell, list[tuple[float, float, float]]] = {}
    for run in points:
        tau = 1.0 if run.tier == OFF else run.accept_length
        if run.tier == PLAIN or tau is None or obstacles(run):
            continue
        batch = (run.running or run.concurrency) / dp_size
        step_ms = 1000 * batch * dp_size * tau / run.tok_s
        length = (run.input_len or 0) + (run.output_len or 0) / 2
        steps = 1.0 if run.seconds is None else max(1.0, 1000 * run.seconds / step_ms)
        cell = (run.tier, bucket(math.ceil(batch)), context_band(length))
        found.setdefault(cell, []).append((step_ms, steps, batch * tau))
    return tuple(
        StepCost(
            tier=tier,
            bucket=size,
            band=band,
            samples=round(sum(steps for _, steps, _ in runs)),
            mean_ms=fmean(step_ms for step_ms, _, _ in runs),
            var_ms2=variance([step_ms for step_ms, _, _ in runs]) if len(runs) > 1 else 0.0,
            tokens_per_step=fmean(tokens for _, _, tokens in runs),
        )
        for (tier, size, band), runs in sorted(found.items())
    )


def of_stored(table: CostTable) -> Contribution:
    """A stored table as a source of a newer one.

    Its samples were discounted for age when it was made, so it ages from then on; what it shows as
    origins stays that of its own sources.
    """
    made = datetime.fromtimestamp(table.created_utc_ms / 1000, UTC)
    return Contribution(
        table.setup_key,
        f"table of {made:%Y-%m-%d %H:%M} UTC",
        table.created_utc_ms,
        table.costs,
        table.origins,
    )


def merged(setup_key: str, sources: Sequence[Contribution], now_utc_ms: int) -> CostTable:
    """One table from several sources.

    Cells that nothing measured (interpolated ones) are kept only where no source measured.

    Raises:
        KeyDiffersError: a source was measured on another setup.
        ValueError: there is nothing to merge.
    """
    for source in sources:
        if source.setup_key != setup_key:
            raise KeyDiffersError(key_difference(setup_key, source.setup_key, source.source))
    by_cell: dict[_Cell, list[tuple[Contribution, StepCost]]] = {}
    for source in sources:
        for cost in source.costs:
            by_cell.setdefault((cost.tier, cost.bucket, cost.band), []).append((source, cost))
    if not by_cell:
        raise ValueError("no step costs to merge")
    costs: list[StepCost] = []
    origins: list[CostOrigin] = []
    for cell, parts in sorted(by_cell.items()):
        measured = [part for part in parts if part[1].measured and part[1].samples > 0]
        cost, where = _cell(cell, measured or parts, now_utc_ms)
        costs.append(cost)
        origins += where
    return CostTable(
        setup_key=setup_key,
        source=", ".join(dict.fromkeys(source.source for source in sources)),
        created_utc_ms=now_utc_ms,
        costs=tuple(costs),
        origins=tuple(origins),
    )


def _cell(
    cell: _Cell, parts: Sequence[tuple[Contribution, StepCost]], now_utc_ms: int
) -> tuple[StepCost, list[CostOrigin]]:
    weights = [_weight(source, cost, now_utc_ms) for source, cost in parts]
    total = sum(weights)
    shares = [weight / total for weight in weights]
    mean = sum(share * cost.mean_ms for share, (_, cost) in zip(shares, parts, strict=True))
    spread = sum(
        share * (cost.var_ms2 + (cost.mean_ms - mean) ** 2)
        for share, (_, cost) in zip(shares, parts, strict=True)
    )
    tokens = [
        (share, cost.tokens_per_step)
        for share, (_, cost) in zip(shares, parts, strict=True)
        if cost.tokens_per_step is not None
    ]
    told = sum(share for share, _ in tokens)
    is_measured = any(cost.measured and cost.samples > 0 for _, cost in parts)
    tier, size, band = cell
    merged_cost = StepCost(
        tier=tier,
        bucket=size,
        band=band,
        samples=max(1, round(total)) if is_measured else 0,
        mean_ms=mean,
        var_ms2=spread,
        tokens_per_step=sum(share * count for share, count in tokens) / told if told else None,
        measured=is_measured,
    )
    origins = _origins(cell, [(share, *part) for share, part in zip(shares, parts, strict=True)])
    return merged_cost, origins


def _origins(
    cell: _Cell, parts: Sequence[tuple[float, Contribution, StepCost]]
) -> list[CostOrigin]:
    """Sources of a cell by weight; those of an earlier merge take their share of its weight."""
    tier, size, band = cell
    found: dict[str, CostOrigin] = {}
    for share, source, cost in parts:
        inner = [
            origin for origin in source.origins if (origin.tier, origin.bucket, origin.band) == cell
        ] or [
            CostOrigin(
                tier=tier,
                bucket=size,
                band=band,
                source=source.source,
                at_utc_ms=source.at_utc_ms,
                samples=cost.samples,
                weight=1.0,
            )
        ]
        for origin in inner:
            known = found.get(origin.source)
            newest = origin if known is None or origin.at_utc_ms > known.at_utc_ms else known
            weight = share * origin.weight + (known.weight if known else 0.0)
            found[origin.source] = newest.model_copy(update={"weight": min(weight, 1.0)})
    ranked = sorted(found.values(), key=lambda origin: -origin.weight)
    shown = [origin for origin in ranked if origin.weight >= LEAST_SHOWN and origin.source != OLDER]
    rest = [origin for origin in ranked if origin not in shown]
    if rest:
        newest = max(rest, key=lambda origin: origin.at_utc_ms)
        weight = min(sum(origin.weight for origin in rest), 1.0)
        shown.append(newest.model_copy(update={"source": OLDER, "weight": weight}))
    return shown


def _weight(source: Contribution, cost: StepCost, now_utc_ms: int) -> float:
    age_ms = max(0, now_utc_ms - source.at_utc_ms)
    # An interpolated cell has no samples, and still must weigh something among its like.
    samples = min(max(cost.samples, 1), MOST_SAMPLES)
    return float(max(samples * 0.5 ** (age_ms / HALF_LIFE_MS), 1e-9))


def key_difference(wanted: str, offered: str, source: str) -> str:
    """Why costs of one setup key may not be used for another, naming what differs."""
    mine, theirs = wanted.split("_"), offered.split("_")
    # A model's name may itself hold underscores: then only the keys as a whole are shown.
    if len(mine) == len(theirs) == len(_KEY_PARTS):
        parts = [
            f"{name}: {there}, here {here}"
            for name, here, there in zip(_KEY_PARTS, mine, theirs, strict=True)
            if here != there
        ]
    else:
        parts = [f"{offered}, here {wanted}"]
    return (
        f"{source} was measured on another setup ({'; '.join(parts)}): measured costs are valid "
        "for one setup only, run specdeck bench on this one"
    )


def text(table: CostTable, now_utc_ms: int) -> str:
    """A table for people: every cell with its age and sources."""
    made = datetime.fromtimestamp(table.created_utc_ms / 1000, UTC)
    lines = [
        f"setup key {table.setup_key}",
        f"made      {made:%Y-%m-%d %H:%M} UTC from {table.source}",
        "",
        "tier      batch  context   step ms    +/-  tokens/step  samples  sources",
    ]
    for cost in table.costs:
        here = [
            origin
            for origin in table.origins
            if (origin.tier, origin.bucket, origin.band) == (cost.tier, cost.bucket, cost.band)
        ]
        sources = ", ".join(
            f"{origin.source} {100 * origin.weight:.0f} % "
            f"{max(0, now_utc_ms - origin.at_utc_ms) / 86_400_000:.1f} d old"
            for origin in here
        )
        tokens = "-" if cost.tokens_per_step is None else f"{cost.tokens_per_step:.1f}"
        lines.append(
            f"{cost.tier:<9} {cost.bucket:>5}  {cost.band:<8} {cost.mean_ms:>8.2f} "
            f"{math.sqrt(cost.var_ms2):>6.2f}  {tokens:>11}  {cost.samples:>7}  "
            f"{sources or ('-' if cost.measured else 'interpolated')}"
        )
    return "\n".join(lines) + "\n"
