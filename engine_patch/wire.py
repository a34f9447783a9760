"""A command on its way to the ranks, as the numbers SGLang's broadcast can carry.

``/set_internal_state`` takes ``dict[str, int | float]`` (SGLang 0.5.23 ``managers/io_struct.py``,
``SetInternalStateReq``), so tiers travel as indices into the list of built tiers, which is the same
on every rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine_patch.contract_words import Mode, OffFlavour, SwitchReason
from engine_patch.tier import Boundary, Frozen, Thresholds, TierName

PREFIX = "specdeck."
_MODES = (Mode.AUTO, Mode.ON, Mode.OFF)
_FLAVOURS = (OffFlavour.KEEP, OffFlavour.WARM, OffFlavour.COLD)
_REASONS = (SwitchReason.COMMAND, SwitchReason.LEASE_END)

Number = int | float
REBUILD: dict[str, Number] = {f"{PREFIX}rebuild": 1}
"""Not a command of the state machine: make requests whole that lived through a cold off."""


class RankCommand(Frozen):
    """What every rank applies at the same loop iteration.

    Args:
        tier: for mode ``on``; None means the last speculating tier.
        thresholds: None keeps those in force.
        reason: written into the journal when the tier changes.
    """

    mode: Mode
    tier: TierName | None = None
    thresholds: Thresholds | None = None
    off_flavour: OffFlavour | None = None
    epoch: int = 0
    generation: int = 0
    reason: SwitchReason = SwitchReason.COMMAND


class WireError(ValueError):
    """The numbers do not describe a command: sender and rank have different builds."""


def ours(numbers: Mapping[str, Number]) -> bool:
    """Whether a broadcast belongs to specdeck."""
    return any(key.startswith(PREFIX) for key in numbers)


def encode(command: RankCommand, tiers: Sequence[TierName]) -> dict[str, Number]:
    """Write a command as numbers; ``tiers`` is the list of built tiers."""
    numbers: dict[str, Number] = {
        "mode": _MODES.index(command.mode),
        "tier": -1 if command.tier is None else tiers.index(command.tier),
        "flavour": -1 if command.off_flavour is None else _FLAVOURS.index(command.off_flavour),
        "epoch": command.epoch,
        "generation": command.generation,
        "reason": _REASONS.index(command.reason),
        "tiers": 0,
    }
    if command.thresholds is not None:
        order = command.thresholds
        numbers |= {"tiers": len(order.tiers), "dwell": order.min_dwell_steps}
        for place, tier in enumerate(order.tiers):
            numbers[f"order.{place}"] = tiers.index(tier)
            if tier in order.min_accept_length:
                numbers[f"floor.{place}"] = order.min_accept_length[tier]
        for place, boundary in enumerate(order.boundaries):
            numbers[f"up.{place}"] = boundary.up_at
            numbers[f"down.{place}"] = boundary.down_at
    return {PREFIX + key: value for key, value in numbers.items()}


def decode(numbers: Mapping[str, Number], tiers: Sequence[TierName]) -> RankCommand:
    """Read a command from numbers.

    Raises:
        WireError: a number is missing or out of range.
    """
    said = {key.removeprefix(PREFIX): value for key, value in numbers.items()}

    def whole(key: str) -> int:
        return int(said[key])

    try:
        tier, flavour = whole("tier"), whole("flavour")
        return RankCommand(
            mode=_MODES[_place(said["mode"])],
            tier=None if tier < 0 else tiers[tier],
            thresholds=_thresholds(said, tiers) if whole("tiers") else None,
            off_flavour=None if flavour < 0 else _FLAVOURS[flavour],
            epoch=whole("epoch"),
            generation=whole("generation"),
            reason=_REASONS[_place(said["reason"])],
        )
    except (KeyError, IndexError, ValueError, OverflowError) as error:
        raise WireError(f"not a specdeck command: {error!r}") from error


def _place(number: Number) -> int:
    """A place in a list; counting from its end means nothing here."""
    place = int(number)
    if place < 0:
        raise IndexError(place)
    return place


def _thresholds(said: Mapping[str, Number], tiers: Sequence[TierName]) -> Thresholds:
    count = int(said["tiers"])
    order = tuple(tiers[_place(said[f"order.{place}"])] for place in range(count))
    return Thresholds(
        tiers=order,
        boundaries=tuple(
            Boundary(up_at=int(said[f"up.{place}"]), down_at=int(said[f"down.{place}"]))
            for place in range(count - 1)
        ),
        min_dwell_steps=int(said["dwell"]),
        min_accept_length={
            tier: float(said[f"floor.{place}"])
            for place, tier in enumerate(order)
            if f"floor.{place}" in said
        },
    )
