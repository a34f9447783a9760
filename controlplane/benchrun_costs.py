"""The step-cost table that a benchmark leaves behind.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.bench_cells import obstacles
from controlplane.bench_records import PLAIN, BenchFile, BenchPoint
from engine_patch.costs import StepCost, bucket, context_band
from engine_patch.tier import OFF
from store.records import CostTable


def table_after(file: BenchFile, live: Sequence[StepCost], at_utc_ms: int) -> CostTable | None:
    """The table to store: the engine's own step times, else step times derived from the runs.

    Args:
        live: what the engine tells of its steps; empty if it tells nothing.

    Returns:
        None if there is nothing to store.
    """
    if file.setup_key is None or not file.points:
        return None
    told = tuple(cost for cost in live if cost.measured and cost.samples > 0)
    costs = tuple(live) if told else derived(file.points)
    if not costs:
        return None
    source = "the engine's own step times" if told else "derived from tok/s and accept length"
    return CostTable(
        setup_key=file.setup_key,
        source=f"benchmark: {source}",
        created_utc_ms=at_utc_ms,
        costs=costs,
    )


def derived(points: Sequence[BenchPoint]) -> tuple[StepCost, ...]:
    """Step times from runs that may be compared: running x accept length / tok/s.

    Prefill is inside, so these are a little longer than the engine's own decode steps.
    """
    found: dict[tuple[str, int], list[BenchPoint]] = {}
    for run in points:
        if run.tier != PLAIN and not obstacles(run) and _tokens(run) is not None:
            found.setdefault((run.tier, bucket(round(_batch(run)))), []).append(run)
    costs = []
    for (tier, size), runs in sorted(found.items()):
        times = [1000 * _batch(run) * (_tokens(run) or 1.0) / run.tok_s for run in runs]
        mean = sum(times) / len(times)
        spread = sum((time - mean) ** 2 for time in times)
        steps = sum((run.seconds or 0.0) * 1000 / mean for run in runs)
        length = (runs[0].input_len or 0) + (runs[0].output_len or 0) / 2
        costs.append(
            StepCost(
                tier=tier,
                bucket=size,
                band=context_band(length),
                samples=max(round(steps), 1),
                mean_ms=mean,
                var_ms2=spread / (len(times) - 1) if len(times) > 1 else 0.0,
                tokens_per_step=sum(_batch(r) * (_tokens(r) or 1.0) for r in runs) / len(runs),
            )
        )
    return tuple(costs)


def _batch(run: BenchPoint) -> float:
    return run.running if run.running else float(run.concurrency)


def _tokens(run: BenchPoint) -> float | None:
    return 1.0 if run.tier == OFF else run.accept_length
