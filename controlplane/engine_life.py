"""What an engine's facts tell of its life: a start of its own, another setup.  Pure."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.setup_key import differences
from store.observations import EngineFacts, PluginStatus

RESTART = "restart"
SETUP = "setup"


@dataclass(frozen=True, slots=True)
class LifeNote:
    """Something for the time line."""

    kind: str
    text: str


def life_notes(before: EngineFacts | None, now: EngineFacts) -> tuple[LifeNote, ...]:
    """What happened between two facts; nothing at first contact.

    What is not known on one side is no difference: facts of an unpatched server come piece by
    piece.
    """
    if before is None:
        return ()
    found = []
    if _started_anew(before, now):
        found.append(LifeNote(RESTART, "the engine started anew; its counters begin at 0"))
    changed = differences(before, now)
    if changed:
        parts = ", ".join(f"{name} {old} → {new}" for name, old, new in changed)
        text = f"another setup: {parts}; costs measured before are not used until measured anew"
        found.append(LifeNote(SETUP, text))
    return tuple(found)


def _started_anew(before: EngineFacts, now: EngineFacts) -> bool:
    old, new = before.boot_id, now.boot_id
    if not old or not new or old == new:
        return False
    if PluginStatus.PRESENT in (before.plugin, now.plugin):
        return before.plugin is now.plugin
    # An unpatched server's is MARKER.STARTS, and starts are counted from 0 by each control plane.
    marker, _, starts = old.rpartition(".")
    again, _, later = new.rpartition(".")
    return marker != again or int(later or 0) > int(starts or 0)
