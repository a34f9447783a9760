"""What is written down when an engine comes or goes: audit rows, and markers on its time line."""

from __future__ import annotations

import asyncio

from controlplane.surroundings import Surroundings
from store.db import Record
from store.records import AuditEntry, EngineRecord, Marker


class RosterNotes:
    """Makes the records; keeping them is the roster's."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    def entry(self, actor: str, action: str, target: str, detail: str) -> AuditEntry:
        """An audit row of now."""
        at = self._around.clock.utc_ms()
        return AuditEntry(at_utc_ms=at, actor=actor, action=action, target=target, detail=detail)

    async def returned(self, engine_id: str, by: str) -> Marker:
        """An engine that was left alone is looked after again."""
        return await self._marker(engine_id, "returned", by, "looked after again")

    async def farewell(self, engine_id: str, source: str, why: str) -> list[Record]:
        """A source's engine is left alone."""
        marker = await self._marker(engine_id, "retired", source, why)
        return [marker, self.entry(source, "engine.retire", engine_id, why)]

    def gone(self, record: EngineRecord) -> EngineRecord:
        """The record of an engine that is looked after no more."""
        return record.model_copy(update={"removed_utc_ms": self._around.clock.utc_ms()})

    async def _marker(self, engine_id: str, kind: str, by: str, text: str) -> Marker:
        seq = await asyncio.to_thread(self._around.store.last_seq, engine_id)
        at = self._around.clock.utc_ms()
        return Marker(engine_id=engine_id, at_utc_ms=at, seq=seq, kind=kind, author=by, text=text)
