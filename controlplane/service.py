"""All engines of one control plane: starts and stops their loops and answers for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from controlplane.benchrun_jobs import Benchmarks
from controlplane.clock import SystemClock
from controlplane.fleet_rules import FleetRules
from controlplane.hub import Hub
from controlplane.maintenance import Maintenance
from controlplane.messages import EngineStatus
from controlplane.roster import STOP_S, Roster
from controlplane.runner import Runner
from controlplane.security import EngineKeys
from controlplane.settings import Settings
from controlplane.sources import Follower, sources_of
from controlplane.surroundings import Surroundings
from controlplane.version import VERSION
from controlplane.webhooks import Webhooks, hooks_of
from store.db import Store
from store.errors import StoreError
from store.records import Alarm, AuditEntry

log = logging.getLogger("specdeck.service")
BENCHMARKS_STOP_S = 10.0
"""Longest wait for running benchmarks when the control plane stops."""

ALARMS_EVERY_S = 1.0
"""How often alarms beside the engines' are told to webhooks."""
SERVICE = "service"
"""Actor of what nobody asked for."""


class Service:
    """The running control plane.

    Args:
        store: open for writing; the service closes it when it stops.
        keys: the engines' keys by engine id; read from where the settings say if not given.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        *,
        keys: Mapping[str, EngineKeys] | None = None,
        clock: SystemClock | None = None,
    ) -> None:
        self.settings = settings
        self.store = store
        self.clock = clock or SystemClock()
        self.hub = Hub()
        self.webhooks = Webhooks(hooks_of(settings.webhooks), settings.holder_name, self.clock)
        self.rules = FleetRules(store, self.clock)
        around = Surroundings(
            store=store,
            hub=self.hub,
            clock=self.clock,
            holder=settings.holder_name,
            override_max_s=settings.override_max_s,
            scrape_every_s=settings.scrape_every_s,
            webhooks=self.webhooks,
            rules=self.rules,
        )
        if keys is None:
            keys = {engine.id: EngineKeys.read(engine) for engine in settings.engines}
        sources = sources_of(settings, self.clock)
        names = frozenset(source.name for source in sources)
        self.roster = Roster(settings, around, keys, names)
        self.followers = [Follower(source, self.roster, self.clock) for source in sources]
        self.maintenance = Maintenance(store, settings.storage, self.clock)
        self.benchmarks = Benchmarks(
            store,
            self.clock,
            api_key=self.roster.api_key,
            longest_s=settings.override_max_s,
            read_files=not settings.tokens,
        )
        self.roster.measured = lambda name: self.benchmarks.running(name) is not None
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def runners(self) -> dict[str, Runner]:
        """The engines' loops by id."""
        return self.roster.runners

    def runner(self, engine_id: str) -> Runner:
        """The loop of one engine.

        Raises:
            ProblemError: 404, there is no such engine.
        """
        return self.roster.runner(engine_id)

    def alarms(self) -> tuple[Alarm, ...]:
        """What is wrong beside the engines."""
        followers = tuple(one.alarm for one in self.followers if one.alarm is not None)
        return followers + self.maintenance.alarms()

    async def start(self) -> None:
        """Start a loop per engine."""
        self.webhooks.start()
        await self._audit("service.start", f"version {VERSION}, {len(self.runners)} engines")
        await self.roster.start()
        for follower in self.followers:
            name = follower.source.name
            self._tasks[name] = asyncio.create_task(follower.run(), name=name)
        self._tasks["alarms"] = asyncio.create_task(self._tell_alarms(), name="alarms")
        name = "maintenance"
        self._tasks[name] = asyncio.create_task(self.maintenance.run(), name=name)

    async def stop(self) -> None:
        """Stop within about a second.  No engine is switched: each goes on as its lease says.

        A benchmark is given longer: its load has to end and its engine goes back to what it did.
        """
        self.hub.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(BENCHMARKS_STOP_S):
                await self.benchmarks.close()
        await self.webhooks.close()
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=STOP_S)
        await self.roster.stop()
        try:
            await self._audit("service.stop", "")
        except StoreError as error:
            log.error("the stop is not recorded: %s", error)
        finally:
            await asyncio.to_thread(self.store.close)

    async def _tell_alarms(self) -> None:
        while True:
            self.webhooks.stand(self.alarms())
            await asyncio.sleep(ALARMS_EVERY_S)

    def statuses(self) -> list[EngineStatus]:
        """Every engine."""
        return [runner.status() for runner in self.runners.values()]

    def troubles(self) -> list[str]:
        """What keeps the control plane from doing its work; empty when it is ready."""
        found = [text for runner in self.runners.values() for text in runner.troubles()]
        found += self.roster.troubles() + self.maintenance.troubles()
        found += [f"the loop of {name} ended" for name, t in self._tasks.items() if t.done()]
        return found

    def _entry(self, actor: str, action: str, target: str, detail: str) -> AuditEntry:
        return AuditEntry(
            at_utc_ms=self.clock.utc_ms(),
            actor=actor,
            action=action,
            target=target,
            detail=detail,
        )

    async def _audit(self, action: str, detail: str) -> None:
        entry = self._entry(SERVICE, action, self.settings.holder_name, detail)
        await asyncio.wrap_future(self.store.write([entry]))
