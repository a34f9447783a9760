"""What an engine can be asked to do, what its ``off`` is worth, and sensible first settings.

Pure: everything follows from :class:`~store.observations.EngineFacts` and a step-cost table.
"""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.first_policy import default_policy
from controlplane.off_note import OffNote, OffWorth, off_kind, off_note
from controlplane.setup_key import setup_key
from engine_patch.contract_words import Mode
from engine_patch.costs import StepCost
from engine_patch.tier import OFF, Thresholds
from store.observations import EngineFacts, PluginStatus
from store.policies import Stance

__all__ = [
    "Ability",
    "OffNote",
    "OffWorth",
    "abilities",
    "cap_note",
    "default_policy",
    "first_stance",
    "measured",
    "observing_only",
    "off_kind",
    "off_note",
    "refusal",
    "setup_key",
]

SPECULATIVE_CAP = 48
"""``max_running_requests`` that SGLang sets by itself when speculation is on and the flag is unset
(SGLang 0.5.17 and 0.5.23, server arguments)."""


def cap_note(facts: EngineFacts) -> str | None:
    """Where the engine's cap on running requests came from, if a person should know it.

    None when the cap was asked for, or when the engine tells nothing.
    """
    identity = facts.identity
    if identity is None or identity.max_running_requests is None:
        return None
    cap, asked = identity.max_running_requests, identity.requested_max_running_requests
    if asked is None and cap == SPECULATIVE_CAP and identity.algorithm:
        return (
            f"max_running_requests {cap} was set by SGLang because speculation is on and the flag "
            "is unset; a plain server has no such cap, so the two are not comparable at saturation"
        )
    if asked is not None and asked != cap:
        origin = f" ({identity.cap_origin})" if identity.cap_origin else ""
        return f"max_running_requests is {cap}{origin}, not the {asked} asked for at launch"
    return None


@dataclass(frozen=True, slots=True)
class Ability:
    """One thing that can or cannot be done with an engine, and why."""

    name: str
    available: bool
    text: str


def observing_only(facts: EngineFacts) -> str | None:
    """Why this engine can only be watched, as a sentence; None if it can be commanded."""
    match facts.plugin:
        case PluginStatus.PRESENT:
            return None
        case PluginStatus.ABSENT:
            return "plugin absent: observing only"
        case PluginStatus.REFUSED:
            return f"plugin refused: {facts.plugin_message or 'no reason given'}: observing only"
        case PluginStatus.PROTOCOL:
            spoken = (
                "an unknown protocol" if facts.protocol is None else f"protocol {facts.protocol}"
            )
            detail = f" ({facts.plugin_message})" if facts.plugin_message else ""
            return f"plugin speaks {spoken}{detail}: observing only"


def abilities(facts: EngineFacts) -> tuple[Ability, ...]:
    """What can be steered on this engine and why not, the engine's own capabilities included."""
    barred = observing_only(facts)
    if barred is not None:
        return (Ability("steer", False, barred),)
    speculating = [tier.name for tier in facts.tiers if tier.name != OFF]
    note = off_note(facts)
    has_off = any(tier.name == OFF for tier in facts.tiers)
    found = [
        Ability("steer", True, "the plugin answers and takes commands"),
        Ability(
            "tiers",
            bool(speculating),
            f"built: {', '.join(speculating)}" if speculating else "no speculating tier was built",
        ),
        Ability("off", has_off, note.text),
    ]
    found += [
        Ability(
            item.name,
            item.available,
            item.reason or ("available" if item.available else "not available, no reason given"),
        )
        for item in facts.capabilities
    ]
    return tuple(found)


def refusal(
    facts: EngineFacts, mode: Mode, tier: str | None, thresholds: Thresholds | None
) -> str | None:
    """Why an operator's ``mode`` and ``tier`` cannot be asked of this engine; None if it can.

    Args:
        thresholds: what the engine itself would apply in ``auto``; None if it has none.
    """
    barred = observing_only(facts)
    if barred is not None:
        return f"{barred}; an override cannot act"
    built = [item.name for item in facts.tiers]
    if mode is Mode.AUTO and thresholds is None:
        return (
            "the engine has no thresholds to apply in mode auto; "
            "release the override to let the control plane's policy steer"
        )
    if not built:
        return None
    if mode is Mode.OFF and OFF not in built:
        return f"tier off was not built; built are: {', '.join(built)}"
    if mode is Mode.ON:
        speculating = [name for name in built if name != OFF]
        if not speculating:
            return "no speculating tier was built on this engine"
        if tier is not None and tier not in speculating:
            return f"tier {tier} was not built; built are: {', '.join(speculating)}"
    return None


def measured(facts: EngineFacts, costs: tuple[StepCost, ...]) -> bool:
    """Whether the table covers this engine: two measured cells or more for every tier that
    automation may pick.

    A simulated engine takes its step times from the table itself, so its interpolated cells count.
    """
    avoid = off_note(facts).worth is OffWorth.WORSE
    needed = [tier.name for tier in facts.tiers if not (avoid and tier.name == OFF)]
    cells = dict.fromkeys(needed, 0)
    for cost in costs:
        known = facts.simulated or (cost.measured and cost.samples > 0)
        if known and cost.tier in cells:
            cells[cost.tier] += 1
    return bool(cells) and min(cells.values()) >= 2


def first_stance(facts: EngineFacts, costs: tuple[StepCost, ...]) -> Stance:
    """The stance at first contact: ``active`` with a table for this setup, else ``shadow``.

    Args:
        costs: the step-cost table of exactly this setup key; empty if there is none.
    """
    if facts.writable and measured(facts, costs):
        return Stance.ACTIVE
    return Stance.SHADOW
