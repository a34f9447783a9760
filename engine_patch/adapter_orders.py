"""Orders that reach a rank: tiers, thresholds and flavours, and the wish to rebuild requests.

Remembers what is told about the last one: why it was refused, and how many decode steps went by
until the tier it asked for ran.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine_patch import adapter_rebuild
from engine_patch.adapter_tiers import TierController
from engine_patch.chooser import Chooser
from engine_patch.contract_words import Mode, OffFlavour
from engine_patch.published import RankFacts
from engine_patch.tier import OFF, TierName
from engine_patch.wire import REBUILD, Number, RankCommand, WireError, decode


class Orders:
    """The orders of one rank.

    Args:
        scheduler: SGLang's.
        mine: our controller, None where nothing can be switched.
        free_slots: reads the KV slots that a larger reserve could take.
    """

    def __init__(
        self, scheduler: Any, mine: TierController | None, free_slots: Callable[[], int]
    ) -> None:
        self._scheduler = scheduler
        self._tiers = mine
        self._free_slots = free_slots
        self._at: int | None = None
        self.refused = ""
        """The rank's words on the last order it did not take, "" after one it took."""
        self.needed_slots: int | None = None
        self.free_slots: int | None = None
        self.rebuilt = 0
        """Requests that were prefilled anew by order, since boot."""
        self.confirm_steps: int | None = None
        """Decode steps from the last order that changed the tier to the first that ran it."""

    def take(
        self,
        numbers: Mapping[str, Number],
        facts: RankFacts,
        chooser: Chooser | None,
        *,
        tier: TierName | None,
        step: int,
    ) -> bool:
        """Take an order; whether it was taken.

        Args:
            tier: what the worker runs.
            step: decode steps launched so far.
        """
        if numbers.keys() == REBUILD.keys():
            return self._rebuild(chooser, tier)
        if chooser is None:
            self.refused = facts.unsupported or "this rank cannot switch"
            return False
        try:
            command = decode(numbers, facts.planned)
        except WireError as error:
            self.refused = str(error)
            return False
        self.refused = _not_built(command, chooser)
        if self.refused:
            return False
        follows = facts.reserve_follows and command.mode is Mode.ON
        answer = chooser.command(
            command,
            running=len(self._scheduler.running_batch.reqs),
            free_slots=self._free_slots() if follows else None,
        )
        self.refused = "" if answer.applied else answer.message
        self.needed_slots, self.free_slots = answer.needed_slots, answer.free_slots
        if answer.applied:
            moves = command.mode is not Mode.AUTO and chooser.wanted != tier
            self._at = step if moves else None
        return answer.applied

    def launched(self, tier: TierName | None, step: int, chooser: Chooser | None) -> None:
        """A decode step was launched: does it run what the last order asked for?"""
        if self._at is None or chooser is None or tier != chooser.wanted:
            return
        self.confirm_steps, self._at = step - self._at, None

    def obeyed_idle(self) -> None:
        """The tier changed while nothing ran."""
        self.confirm_steps = self._at = None

    def _rebuild(self, chooser: Chooser | None, tier: TierName | None) -> bool:
        mine = self._tiers
        asked = None if chooser is None else chooser.off_flavour
        if mine is None or mine.off is None:
            self.refused = "this server has no tier off, so no request has a hole"
        elif tier == OFF and mine.off.flavour(asked) is OffFlavour.COLD:
            self.refused = (
                "off runs cold, so a rebuilt request has a hole again at its next token: "
                "command another tier or flavour first"
            )
        else:
            holes, self.refused = adapter_rebuild.rebuild(self._scheduler)
            self.rebuilt += holes
        return not self.refused


def _not_built(command: RankCommand, chooser: Chooser) -> str:
    """Tiers of a command that this rank has not built (another replica may have)."""
    named = [] if command.tier is None else [command.tier]
    named += list(command.thresholds.tiers) if command.thresholds is not None else []
    gone = [name for name in named if name not in chooser.tiers]
    return f"tier {', '.join(gone)} was not built on this replica" if gone else ""
