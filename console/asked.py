"""What was asked of the control plane and is not settled yet: desired against confirmed.  Pure."""

from __future__ import annotations

from dataclasses import dataclass

from console.formatting import seconds
from controlplane.messages import FleetRow
from engine_patch.contract_words import Mode
from engine_patch.tier import OFF, TierName
from store.observations import Sample
from store.policies import Stance
from store.records import Tick

SHOWN_AFTER_MS = 1000
"""Most changes are confirmed sooner; a row that comes and goes would only flicker."""
GIVEN_UP_MS = 120_000
"""What is not settled by then is left to the alarms of the control plane."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request that was accepted.

    Args:
        words: what was asked for, ``override: off for 10m``.
        mode, tier: what an override asks for; None for anything else.
        released: whether the override was ended.
        stance: what automation shall do; None for anything else.
        version: the policy version that shall be in force; None for anything else.
    """

    engine_id: str
    words: str
    at_ms: int
    mode: Mode | None = None
    tier: TierName | None = None
    released: bool = False
    stance: Stance | None = None
    version: int | None = None


def settled(ask: Ask, seen: Tick | FleetRow) -> bool:
    """Whether ``seen`` shows what was asked for, by the engine's own report."""
    if isinstance(seen, FleetRow):
        if ask.stance is not None:
            return seen.stance is ask.stance
        if ask.released:
            return not seen.override_by and seen.asked is None
        return ask.mode is not None and bool(seen.override_by) and _runs(ask, seen.confirmed)
    if ask.stance is not None and seen.stance is not ask.stance:
        return False
    if ask.version is not None and seen.policy_version < ask.version:
        return False
    if ask.released:
        return seen.override is None and seen.pending is None
    if ask.mode is None:
        return True
    if seen.override is None or seen.pending is not None:
        return False
    if ask.mode is Mode.AUTO:
        return isinstance(seen.observation, Sample) and seen.observation.mode is Mode.AUTO
    return _runs(ask, seen.confirmed)


def _runs(ask: Ask, confirmed: TierName | None) -> bool:
    if ask.mode is Mode.OFF:
        return confirmed == OFF
    if ask.mode is Mode.ON and ask.tier is not None:
        return confirmed == ask.tier
    return ask.mode is Mode.AUTO or confirmed not in (None, OFF)


def waiting_words(ask: Ask, confirmed: TierName | None, now_ms: int) -> str:
    """``asked 2.1s ago, not confirmed: override off for 10m; the engine runs s3k1d4``."""
    ago = seconds(max(now_ms - ask.at_ms, 0) / 1000)
    runs = f"; the engine runs {confirmed}" if confirmed else ""
    return f"asked {ago} ago on {ask.engine_id}, not confirmed yet: {ask.words}{runs}"


def settled_words(ask: Ask, now_ms: int) -> str:
    """``confirmed after 0.4s: override off for 10m``."""
    took = seconds(max(now_ms - ask.at_ms, 0) / 1000)
    return f"{ask.engine_id} confirmed after {took}: {ask.words}"
