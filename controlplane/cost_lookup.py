"""Which step-cost table automation reckons with: that of the engine's present setup, or none.

A simulated engine's own table counts.  A real one's is the stored table of its setup key, which
benchmarks make (``docs/benchmarks.md``); without one, what the engine measured of itself.
"""

from __future__ import annotations

import asyncio
import logging

from controlplane.clock import SystemClock
from controlplane.setup_key import setup_key
from engine_patch.costs import StepCost
from store.db import Store
from store.errors import StoreError
from store.observations import EngineFacts

log = logging.getLogger("specdeck.engine")

STORED_EVERY_MS = 60_000
"""How often it is looked whether a benchmark has stored a newer table."""
TOLD_EVERY_MS = 10_000
"""How often it is looked whether the engine has measured more of itself."""

WAIT_S = 1.0
"""Seconds that the first look at a setup waits for the store."""

Costs = tuple[StepCost, ...]


class CostLookup:
    """Keeps the table of one engine."""

    def __init__(self, store: Store, clock: SystemClock) -> None:
        self.told: Costs = ()
        """What the engine says it measured, by its last answer."""
        self.source = ""
        """Where the table comes from, for people."""
        self._store = store
        self._clock = clock
        self._key = ""
        self._stored: Costs = ()
        self._stored_from = ""
        self._read_ms = 0
        self._looked_ms = 0
        self._given: Costs = ()
        self._reading: asyncio.Task[None] | None = None

    async def look(self, facts: EngineFacts, told: Costs, *, changed: bool) -> Costs | None:
        """The table to use from now on; None if it is the one that is in use.

        The store is waited for only where the setup is another one, and then for a second.

        Args:
            told: what the engine says it measured.
            changed: whether ``facts`` are new.
        """
        self.told = told
        now = self._clock.mono_ms()
        if not changed and now - self._looked_ms < TOLD_EVERY_MS:
            return None
        self._looked_ms = now
        if not facts.simulated:
            key = setup_key(facts) if changed or not self._key else self._key
            if key != self._key:
                self._key, self._stored, self._stored_from = key, (), ""
                self._begin(now)
                if self._reading is not None:
                    await asyncio.wait([self._reading], timeout=WAIT_S)
            elif now - self._read_ms >= STORED_EVERY_MS:
                self._begin(now)
        self.source, found = self._choose(facts, told)
        if changed or worth(found, self._given):
            self._given = found
            return found
        return None

    async def close(self) -> None:
        """Give up what is being read."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    def _choose(self, facts: EngineFacts, told: Costs) -> tuple[str, Costs]:
        if facts.simulated:
            return f"simulation table {facts.simulation_table}", told
        if self._stored:
            return self._stored_from, self._stored
        return "told by the engine", told

    def _begin(self, now: int) -> None:
        """Read the stored table, beside everything else: a slow store delays no poll."""
        if self._reading is None or self._reading.done():
            self._read_ms = now
            self._reading = asyncio.create_task(self._read(self._key))

    async def _read(self, key: str) -> None:
        try:
            table = await asyncio.to_thread(self._store.cost_table, key)
        except StoreError as error:
            log.warning("the step-cost table of %s cannot be read: %s", key, error)
            return
        if table is not None and key == self._key:
            self._stored, self._stored_from = table.costs, table.source


def worth(found: Costs, used: Costs) -> bool:
    """Whether a table says enough more than the one in use: other cells, or twice the samples.

    Means move with every sample of a live engine; a controller must not be set up anew for that.
    """
    if found is used or found == used:
        return False
    cells = {(cost.tier, cost.bucket, cost.band) for cost in found}
    if cells != {(cost.tier, cost.bucket, cost.band) for cost in used}:
        return True
    had = sum(cost.samples for cost in used)
    has = sum(cost.samples for cost in found)
    return has >= 2 * had or has < had
