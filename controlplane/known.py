"""What is known of one engine beside its samples: its record, its step costs, a policy for them."""

from __future__ import annotations

from controlplane.cost_lookup import CostLookup
from controlplane.engine_life import life_notes
from controlplane.fleet_rules import ruled
from controlplane.pilot import Pilot
from controlplane.polled import Polled
from controlplane.settings import EngineSettings
from controlplane.surroundings import Surroundings
from engine_patch.costs import StepCost
from store.db import Record
from store.marks import AUTHOR as MARKS_AUTHOR
from store.observations import EngineFacts, Sample
from store.policies import PolicyConfig
from store.records import EngineRecord, EngineSwitch, Marker


class Known:
    """What one engine has told about itself.

    Args:
        settings: the engine's settings.
        pilot: given what its policies depend on.
        around: store, clock and rules of the fleet.
    """

    def __init__(self, settings: EngineSettings, pilot: Pilot, around: Surroundings) -> None:
        self.record = EngineRecord(
            engine_id=settings.id,
            url=settings.url,
            name=settings.name,
            group=settings.group,
            added_utc_ms=around.clock.utc_ms(),
        )
        self.costs = CostLookup(around.store, around.clock)
        self._settings = settings
        self._pilot = pilot
        self._around = around

    def restore(self, found: EngineRecord | None) -> EngineFacts | None:
        """Take over an earlier record of the same address; returns its facts."""
        if found is None or found.url != self._settings.url:
            return None
        self.record = self.record.model_copy(
            update={"facts": found.facts, "added_utc_ms": found.added_utc_ms}
        )
        return found.facts

    async def learned(self, polled: Polled, seq: int) -> list[Record]:
        """What a poll told beside the sample itself: facts, and changes the engine made."""
        records: list[Record] = []
        now = self._around.clock.utc_ms()
        if polled.facts_changed is not None:
            records += [
                Marker(
                    engine_id=self._settings.id,
                    at_utc_ms=now,
                    seq=seq,
                    kind=note.kind,
                    author=MARKS_AUTHOR,
                    text=note.text,
                )
                for note in life_notes(self.record.facts, polled.facts_changed)
            ]
            self.record = self.record.model_copy(update={"facts": polled.facts_changed})
            records.append(self.record)
        facts, changed = self.record.facts, polled.facts_changed is not None
        if facts is not None and (changed or isinstance(polled.observation, Sample)):
            costs = await self.costs.look(facts, polled.costs, changed=changed)
            if costs is not None:
                records += self.adopt(facts, costs, now)
        if isinstance(polled.observation, Sample):
            records += [
                EngineSwitch(
                    engine_id=self._settings.id,
                    boot_id=polled.observation.boot_id or "",
                    seen_utc_ms=now,
                    entry=entry,
                )
                for entry in polled.observation.switches
            ]
        return records

    def adopt(
        self, facts: EngineFacts, costs: tuple[StepCost, ...], now_utc_ms: int
    ) -> list[PolicyConfig]:
        """Take over what is known of the engine; returns the versions that this made."""
        first = self._pilot.policy is None
        new = self._pilot.adopt(facts, costs, now_utc_ms)
        chosen, rules = self._pilot.policy, self._around.rules
        if not first or chosen is None or rules is None:
            return [new] if new else []
        other = ruled(
            chosen,
            rules.in_force(),
            group=self._settings.group,
            facts=facts,
            stored=new is None,
            now_utc_ms=now_utc_ms,
        )
        if other is None:
            return [new] if new else []
        self._pilot.set_policy(other)
        return [other]
