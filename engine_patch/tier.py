"""Tiers: one prepared speculation shape each, and the thresholds that order them.

A tier is written ``off`` (no draft steps), ``s3k1d4`` (a chain: 3 steps, topk 1, 4 draft tokens)
or ``s2k4d16`` (a tree: 2 steps, topk 4, 16 draft tokens).  The number of draft tokens includes the
bonus position, as in SGLang's ``--speculative-num-draft-tokens``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

OFF = "off"
_NAME = re.compile(r"s([1-9]\d*)k([1-9]\d*)d([1-9]\d*)")


class Frozen(BaseModel):
    """Base of everything that is written down or sent: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Wire(BaseModel):
    """Base of what another process sends: immutable; a newer peer's extra keys are ignored.

    Contract changes are additive, so an older reader must not fail on a newer field.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class TierShape(Frozen):
    """The three numbers of a tier.

    Args:
        num_steps: draft steps, 0 for ``off``.
        topk: branches kept per draft step, 1 for a chain.
        num_draft_tokens: nodes verified per request and step, bonus position included.
    """

    num_steps: int = Field(ge=0)
    topk: int = Field(ge=1)
    num_draft_tokens: int = Field(ge=1)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.num_steps == 0:
            if (self.topk, self.num_draft_tokens) != (1, 1):
                raise ValueError("off is num_steps 0 with topk 1 and 1 draft token")
            return self
        if self.topk == 1 and self.num_draft_tokens != self.num_steps + 1:
            raise ValueError(
                f"a chain of {self.num_steps} steps verifies {self.num_steps + 1} draft tokens, "
                f"not {self.num_draft_tokens}"
            )
        # A tree has topk nodes on its first level and topk^2 on each later one, plus the root.
        most = 1 + self.topk + (self.num_steps - 1) * self.topk**2
        if not 2 <= self.num_draft_tokens <= most:
            raise ValueError(
                f"{self.num_steps} steps with topk {self.topk} give 2 to {most} draft tokens, "
                f"not {self.num_draft_tokens}"
            )
        return self

    @property
    def name(self) -> str:
        """The tier's written form, ``off`` or ``sNkKdD``."""
        if self.num_steps == 0:
            return OFF
        return f"s{self.num_steps}k{self.topk}d{self.num_draft_tokens}"

    @classmethod
    def parse(cls, name: str) -> Self:
        """Read a written tier.

        Raises:
            ValueError: the text is no tier name, or its shape cannot exist.
        """
        if name == OFF:
            return cls(num_steps=0, topk=1, num_draft_tokens=1)
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"{name!r} is no tier: write 'off' or 'sNkKdD', for example 's3k1d4'")
        steps, topk, tokens = (int(group) for group in match.groups())
        return cls(num_steps=steps, topk=topk, num_draft_tokens=tokens)

    def alloc_len(self, page_size: int = 1) -> int:
        """KV slots one request may need in one step of this tier (SGLang 0.5.23
        ``mem_cache/allocation_sizing.py``)."""
        if page_size == 1 or self.topk == 1:
            return max(self.num_steps * self.topk, self.num_draft_tokens)
        pages = -(-(page_size - 1 + self.num_steps) // page_size)
        return max(pages * page_size * self.topk, self.num_draft_tokens)

    def reserve(self, page_size: int = 1) -> int:
        """KV slots held back per running request: twice ``alloc_len`` (overlap double buffer)."""
        return 2 * self.alloc_len(page_size)


@lru_cache(maxsize=256)
def _tier_name(name: str) -> str:
    # Names repeat in every record; parsing them anew was three quarters of reading stored ticks.
    return TierShape.parse(name).name


TierName = Annotated[str, AfterValidator(_tier_name)]


class Boundary(Frozen):
    """Where two neighbouring tiers meet, in running requests per DP replica.

    Args:
        up_at: a running batch that reaches it moves to the busier tier.
        down_at: a running batch that falls to it comes back to the quieter tier.
    """

    up_at: int = Field(ge=1)
    down_at: int = Field(ge=0)

    @model_validator(mode="after")
    def _gap(self) -> Self:
        if self.down_at >= self.up_at:
            raise ValueError(
                f"down_at {self.down_at} must lie below up_at {self.up_at}: "
                "without a gap the engine would flap"
            )
        return self


class Thresholds(Frozen):
    """What the engine applies by itself in mode ``auto``.

    Args:
        tiers: from quiet to busy, each once.
        boundaries: one between each pair of neighbours, rising.
        min_dwell_steps: decode steps a tier is kept before the next automatic change.
        min_accept_length: tokens per verify step and request below which a speculating tier is
            left for the next busier one; tiers without an entry have no floor.
    """

    tiers: tuple[TierName, ...] = Field(min_length=1)
    boundaries: tuple[Boundary, ...] = ()
    min_dwell_steps: int = Field(default=64, ge=1)
    min_accept_length: dict[TierName, float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if len(set(self.tiers)) != len(self.tiers):
            raise ValueError("each tier may appear once in thresholds")
        if len(self.boundaries) != len(self.tiers) - 1:
            raise ValueError(
                f"{len(self.tiers)} tiers need {len(self.tiers) - 1} boundaries, "
                f"not {len(self.boundaries)}"
            )
        for low, high in zip(self.boundaries, self.boundaries[1:], strict=False):
            if high.up_at <= low.up_at or high.down_at <= low.down_at:
                raise ValueError("boundaries must rise from quiet to busy")
        strangers = set(self.min_accept_length) - set(self.tiers)
        if strangers:
            raise ValueError(f"min_accept_length names tiers not in the order: {sorted(strangers)}")
        for tier, floor in self.min_accept_length.items():
            if tier == OFF or not 1.0 <= floor <= TierShape.parse(tier).num_steps + 1:
                raise ValueError(
                    f"min_accept_length of {tier} must lie between 1 and its steps + 1 "
                    "(off drafts nothing and has none)"
                )
        return self
