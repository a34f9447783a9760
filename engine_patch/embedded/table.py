"""Measured step times: the shipped tables, and what an engine reads from them.

A table holds, per tier, the time of one decode step at batch sizes that were measured, and between
them cells that were not; each cell says which it is.  ``derive`` makes the tables.
"""

from __future__ import annotations

from importlib import resources

from pydantic import Field, model_validator

from engine_patch.contract import Identity
from engine_patch.contract_words import OffKind
from engine_patch.costs import StepCost
from engine_patch.tier import OFF, Frozen, TierName

NAMES = {"fa3": "h200-8b-fa3", "triton": "h200-8b-triton"}
"""Short names of the shipped tables."""


class TableError(ValueError):
    """A table, or a column of it, does not exist; the message names those that do."""


class Cell(Frozen):
    """One step time.

    Args:
        batch: running requests in the step.
        samples: decode steps the value rests on; 0 where nothing was measured.
        measured: False where the value is interpolated or estimated; the column says how.
    """

    batch: int = Field(ge=1)
    mean_ms: float = Field(gt=0)
    samples: int = Field(ge=0)
    measured: bool


class Column(Frozen):
    """Step times of one tier; for ``off`` of one ``off_kind``.

    Args:
        source: where the values come from.
        cells: by rising batch, the first at batch 1.
    """

    tier: TierName
    off_kind: OffKind | None = None
    source: str
    cells: tuple[Cell, ...] = Field(min_length=2)

    @model_validator(mode="after")
    def _rising(self) -> Column:
        batches = [cell.batch for cell in self.cells]
        if batches[0] != 1 or batches != sorted(set(batches)):
            raise ValueError(f"cells of {self.tier} must rise from batch 1")
        return self

    def step_times(self) -> tuple[float, ...]:
        """Milliseconds of a step by batch size (index 0 unused), linear between cells."""
        times = [self.cells[0].mean_ms]
        for low, high in zip(self.cells, self.cells[1:], strict=False):
            slope = (high.mean_ms - low.mean_ms) / (high.batch - low.batch)
            times += [low.mean_ms + slope * step for step in range(high.batch - low.batch)]
        return (*times, self.cells[-1].mean_ms)


class Prefill(Frozen):
    """Cost of one prefill pass: ``pass_ms + tokens * token_ms``.

    Args:
        pass_ms: fixed part.
        plain_token_ms: per prompt token on a server without a drafter.
        draft_token_ms: the same where the drafter prefills too.
        chunk_tokens: most prompt tokens in one pass.
    """

    pass_ms: float = Field(ge=0)
    plain_token_ms: float = Field(gt=0)
    draft_token_ms: float = Field(gt=0)
    chunk_tokens: int = Field(ge=1)


class Table(Frozen):
    """Step and prefill times of one setup.

    Args:
        identity: the setup they were measured on; with ``engine``, ``engine_version`` and
            ``flashinfer`` it makes the setup key.
        provenance: how they were obtained, for people.
    """

    name: str
    engine: str
    engine_version: str
    torch: str
    flashinfer: str
    identity: Identity
    provenance: str
    prefill: Prefill
    columns: tuple[Column, ...] = Field(min_length=1)

    @property
    def largest_batch(self) -> int:
        """The largest batch every column covers."""
        return min(column.cells[-1].batch for column in self.columns)

    def tiers(self) -> tuple[TierName, ...]:
        """The tiers this table knows."""
        return tuple(dict.fromkeys(column.tier for column in self.columns))

    def column(self, tier: TierName, off_kind: OffKind) -> Column:
        """The column of a tier; ``off_kind`` matters for ``off`` only.

        Raises:
            TableError: the table has no such column.
        """
        for column in self.columns:
            if column.tier == tier and (tier != OFF or column.off_kind is off_kind):
                return column
        raise TableError(
            f"table {self.name} has no step times for tier {tier}; it has {', '.join(self.tiers())}"
        )

    def costs(
        self, tier: TierName, off_kind: OffKind, accept_length: float, largest: int
    ) -> tuple[StepCost, ...]:
        """A tier's cells as they are reported; tokens follow from the mean accept length."""
        return tuple(
            StepCost(
                tier=tier,
                bucket=cell.batch,
                samples=cell.samples,
                mean_ms=cell.mean_ms,
                tokens_per_step=round(cell.batch * accept_length, 4),
                measured=cell.measured,
            )
            for cell in self.column(tier, off_kind).cells
            if cell.batch <= largest
        )


def load(name: str) -> Table:
    """A shipped table by short or full name.

    Raises:
        TableError: there is none of that name.
    """
    full = NAMES.get(name, name)
    if full not in NAMES.values():
        raise TableError(f"there is no table {name!r}; shipped are {', '.join(NAMES)}")
    text = resources.files("engine_patch.embedded").joinpath(f"tables/{full}.json").read_text()
    return Table.model_validate_json(text)
