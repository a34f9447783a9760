"""Turns: when an engine of a group may begin a change, so that a group never switches all at once.

A router moves load to the engines that did not switch; if all of a group follow one threshold at
the same moment, they chase each other.  Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import Field

from engine_patch.tier import Frozen


class Turn(Frozen):
    """When this engine may begin a change, so that a group never switches all at once.

    Time is cut into slots, by the wall clock so that several control planes need not agree on
    anything; each engine of a group has every ``of``-th one.

    Args:
        slot: this engine's, from 0.
        of: number of slots in a round.
        length_s: how long a slot is.
    """

    slot: int = Field(ge=0)
    of: int = Field(ge=1)
    length_s: float = Field(gt=0)

    def wait_ms(self, at_utc_ms: int) -> int:
        """Time until this engine's next slot; 0 in it."""
        length = round(self.length_s * 1000)
        place = at_utc_ms // length
        ahead = (self.slot - place) % self.of
        return 0 if ahead == 0 else ahead * length - at_utc_ms % length


def turn_of(engine_id: str, group: Sequence[str], share: float, length_s: float) -> Turn | None:
    """The turn of one engine of a group.

    Args:
        group: ids of all its engines.
        share: share of the group that may begin a change in one slot; at least one engine may.
        length_s: length of a slot; 0 for no turns.
    """
    names = sorted(group)
    if length_s <= 0 or len(names) < 2 or engine_id not in names:
        return None
    at_once = max(math.floor(len(names) * share), 1)
    slots = math.ceil(len(names) / at_once)
    if slots < 2:
        return None
    return Turn(slot=names.index(engine_id) % slots, of=slots, length_s=length_s)
