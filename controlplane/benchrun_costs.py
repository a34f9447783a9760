"""The step-cost table that a benchmark leaves behind.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.bench_records import BenchFile
from controlplane.bench_table import Contribution, merged, of_runs, of_stored
from engine_patch.costs import StepCost
from store.measurements import CostTable

LIVE = "live step times"
DERIVED = "benchmark runs"


def table_after(
    file: BenchFile,
    live: Sequence[StepCost],
    earlier: CostTable | None,
    at_utc_ms: int,
    dp_size: int = 1,
) -> CostTable | None:
    """The table to store: the engine's own step times; where it tells none, times derived from the
    runs (they hold prefill too, so they are a little longer); merged with what was stored before.

    Args:
        live: what the engine tells of its steps; empty if it tells nothing.
        earlier: the newest stored table of this setup.

    Returns:
        None if there is nothing to store.
    """
    key = file.setup_key
    if key is None or not file.points:
        return None
    told = tuple(cost for cost in live if cost.measured and cost.samples > 0)
    cells = {(cost.tier, cost.bucket, cost.band) for cost in told}
    rest = tuple(
        cost
        for cost in of_runs(file.points, dp_size=dp_size)
        if (cost.tier, cost.bucket, cost.band) not in cells
    )
    sources = [
        Contribution(key, source, at_utc_ms, costs)
        for source, costs in ((LIVE, told), (DERIVED, rest))
        if costs
    ]
    if not sources:
        return None
    if earlier is not None and earlier.setup_key == key:
        sources.append(of_stored(earlier))
    return merged(key, sources, at_utc_ms)
