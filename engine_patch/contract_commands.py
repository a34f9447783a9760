"""What ``PUT /speculation`` and ``POST /speculation/rebuild`` carry, and their answers."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from engine_patch.contract import PROTOCOL, Claim, Lease
from engine_patch.contract_words import Mode, OffFlavour, OnLeaseEnd, RefusalCode
from engine_patch.tier import OFF, Frozen, Thresholds, TierName, TierShape, Wire


class SpeculationCommand(Frozen):
    """Body of ``PUT /speculation``.

    The tier may be given by name or by its three numbers.  ``off`` is asked for with mode ``off``;
    mode ``on`` with tier ``off`` is refused, mode ``on`` without a tier means the last speculating
    one.  Order is (epoch, generation): the same pair with the same body is answered again without
    effect, with another body refused.

    Args:
        lease_s: seconds until ``on_lease_end`` happens unless the command is repeated with a higher
            generation; None for no lease.
        takeover: take the claim from another holder; raises the epoch by one.
    """

    protocol: int = PROTOCOL
    mode: Mode
    tier: TierName | None = None
    num_steps: int | None = None
    topk: int | None = None
    num_draft_tokens: int | None = None
    thresholds: Thresholds | None = None
    off_flavour: OffFlavour | None = None
    lease_s: float | None = Field(default=None, gt=0, le=7 * 86400)
    on_lease_end: OnLeaseEnd = OnLeaseEnd.AUTO
    holder: str = Field(min_length=1, max_length=200)
    epoch: int = Field(ge=0)
    generation: int = Field(ge=0)
    takeover: bool = False

    @model_validator(mode="after")
    def _one_tier(self) -> Self:
        numbers = (self.num_steps, self.topk, self.num_draft_tokens)
        given = [n for n in numbers if n is not None]
        if given and len(given) != 3:
            raise ValueError("give num_steps, topk and num_draft_tokens together, or a tier name")
        if given and self.tier is not None and self.shape_name() != self.tier:
            raise ValueError(f"tier {self.tier} and the numbers {numbers} differ")
        tier = self.shape_name()
        if self.mode is Mode.ON and tier == OFF:
            raise ValueError("mode 'on' with tier 'off' contradicts itself: use mode 'off'")
        if self.mode is Mode.OFF and tier not in (None, OFF):
            raise ValueError(f"mode 'off' with tier {tier} contradicts itself: use mode 'on'")
        if self.mode is Mode.AUTO and tier is not None:
            raise ValueError("mode 'auto' takes thresholds, not a tier")
        return self

    def shape_name(self) -> str | None:
        """The tier asked for, by name or by numbers; None if neither was given."""
        if self.num_steps is None or self.topk is None or self.num_draft_tokens is None:
            return self.tier
        return TierShape(
            num_steps=self.num_steps, topk=self.topk, num_draft_tokens=self.num_draft_tokens
        ).name


class ReplicaAnswer(Wire):
    """What one DP replica did with a command: every replica answers, or the command timed out.

    Args:
        needed_slots, free_slots: KV slots a move up needs beyond those held, and those that are
            free or evictable; only where it was refused for lack of them.
    """

    dp_rank: int
    applied: bool
    tier: TierName | None = None
    message: str = ""
    needed_slots: int | None = None
    free_slots: int | None = None


class CommandAnswer(Wire):
    """Answer of ``PUT /speculation`` with status 200.

    ``applied`` means that the replicas took the command into their state machine; that every rank
    runs the tier is seen in ``GET /speculation``.
    """

    protocol: int
    boot_id: str
    epoch: int
    generation: int
    duplicate: bool = False
    mode: Mode
    tier: TierName | None
    replicas: tuple[ReplicaAnswer, ...]
    claim: Claim | None = None
    lease: Lease | None = None


class ReplicaRebuilt(Wire):
    """How many requests of one DP replica were rebuilt, or why none was."""

    dp_rank: int
    rebuilt: int = 0
    message: str = ""


class RebuildAnswer(Wire):
    """Answer of ``POST /speculation/rebuild``: requests with a hole in the drafter's KV are
    retracted and prefilled anew."""

    protocol: int
    boot_id: str
    replicas: tuple[ReplicaRebuilt, ...]


class Refusal(Wire):
    """Body of a refused request (403, 409, 422 or 503): what was wrong and what is allowed."""

    protocol: int = PROTOCOL
    code: RefusalCode
    message: str
    allowed: tuple[str, ...] = ()
    claim: Claim | None = None
    epoch: int | None = None
    generation: int | None = None
    needed_slots: int | None = None
    free_slots: int | None = None
