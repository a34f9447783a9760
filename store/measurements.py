"""What was measured of an engine: points of benchmarks, tables of step costs.  Frozen and pure."""

from __future__ import annotations

from pydantic import Field

from engine_patch.costs import ContextBand, StepCost
from engine_patch.tier import Frozen, TierName


class BenchmarkPoint(Frozen):
    """One measured point of a benchmark."""

    id: int = 0
    engine_id: str
    setup_key: str
    tier: str
    concurrency: int
    repeat: int
    tok_s: float
    accept_length: float | None = None
    at_utc_ms: int
    detail: str = ""


class CostOrigin(Frozen):
    """One source of one cell of a cost table.

    Args:
        source: what measured it, for people.
        at_utc_ms: when.
        samples: decode steps it brought.
        weight: its share of the cell after ageing, 0 to 1.
    """

    tier: TierName
    bucket: int
    band: ContextBand
    source: str
    at_utc_ms: int
    samples: int
    weight: float = Field(ge=0, le=1)


class CostTable(Frozen):
    """A step-cost table for one setup key; ``origins`` says where each cell comes from."""

    id: int = 0
    setup_key: str
    source: str
    created_utc_ms: int
    costs: tuple[StepCost, ...]
    origins: tuple[CostOrigin, ...] = ()
