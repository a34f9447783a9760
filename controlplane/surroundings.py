"""What everything that looks after engines shares, and how people's decisions are written down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controlplane.added import keep
from controlplane.clock import SystemClock
from controlplane.fleet_rules import FleetRules
from controlplane.hub import Hub
from controlplane.pilot import Pilot
from controlplane.webhooks import Webhooks
from store.db import Record, Store
from store.records import AuditEntry


@dataclass(frozen=True)
class Surroundings:
    """What everything that looks after engines shares."""

    store: Store
    hub: Hub
    clock: SystemClock
    holder: str
    override_max_s: float
    scrape_every_s: float
    webhooks: Webhooks | None = None
    rules: FleetRules | None = None


class Clerk:
    """Takes decisions of people for one engine, one at a time, and stores them first.

    Args:
        wake: called when the engine's loop should not wait for its next poll.
    """

    def __init__(
        self,
        engine_id: str,
        pilot: Pilot,
        around: Surroundings,
        wake: Callable[[], None],
    ) -> None:
        self._engine_id = engine_id
        self._pilot = pilot
        self._around = around
        self._wake = wake
        self._turn = asyncio.Lock()

    def _audit(self, actor: str, action: str, detail: str) -> AuditEntry:
        return AuditEntry(
            at_utc_ms=self._around.clock.utc_ms(),
            actor=actor,
            action=action,
            target=self._engine_id,
            detail=detail,
        )

    async def _keep(self, records: Sequence[Record]) -> list[Record]:
        return await keep(self._around.store, records)

    async def _write(self, records: Sequence[Record]) -> list[Record]:
        return await asyncio.wrap_future(self._around.store.write(records))
