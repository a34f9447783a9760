"""All engines of one control plane: starts and stops their loops and answers for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from controlplane.benchrun_jobs import Benchmarks
from controlplane.clock import SystemClock
from controlplane.desk import Surroundings
from controlplane.engine import EngineClient
from controlplane.errors import ProblemError
from controlplane.hub import Hub
from controlplane.messages import EngineStatus
from controlplane.runner import Runner
from controlplane.security import EngineKeys
from controlplane.settings import EngineSettings, Settings
from controlplane.version import VERSION
from store.db import Store
from store.errors import StoreError
from store.records import AuditEntry

log = logging.getLogger("specdeck.service")

STOP_S = 0.8
"""Seconds the loops get to end; what they hold is in the store already."""
PRUNE_EVERY_S = 3600.0
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
        around = Surroundings(
            store=store,
            hub=self.hub,
            clock=self.clock,
            holder=settings.holder_name,
            override_max_s=settings.override_max_s,
            scrape_every_s=settings.scrape_every_s,
        )
        if keys is None:
            keys = {engine.id: EngineKeys.read(engine) for engine in settings.engines}
        self.runners: Mapping[str, Runner] = {
            engine.id: Runner(engine, self._client(engine, keys[engine.id]), around)
            for engine in settings.engines
        }
        self.benchmarks = Benchmarks(
            store,
            self.clock,
            api_keys={name: one.api for name, one in keys.items()},
            longest_s=settings.override_max_s,
            read_files=not settings.tokens,
        )
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def _client(self, engine: EngineSettings, keys: EngineKeys) -> EngineClient:
        return EngineClient(
            engine.id,
            engine.url,
            admin_key=keys.admin,
            api_key=keys.api,
            timeout_s=engine.timeout_s,
            clock=self.clock,
            clock_id=self.clock.clock_id,
            holder=self.settings.holder_name,
        )

    async def start(self) -> None:
        """Start a loop per engine."""
        await self._audit("service.start", f"version {VERSION}, {len(self.runners)} engines")
        for name, runner in self.runners.items():
            self._tasks[name] = asyncio.create_task(runner.run(), name=f"engine {name}")
        if self.settings.retention_days:
            self._tasks[""] = asyncio.create_task(self._prune(), name="retention")

    async def stop(self) -> None:
        """Stop within about a second.  No engine is switched: each goes on as its lease says."""
        self.hub.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await self.benchmarks.close()
        for task in self._tasks.values():
            task.cancel()
        closing = [*self._tasks.values()]
        closing += [asyncio.create_task(runner.close()) for runner in self.runners.values()]
        if closing:
            _, late = await asyncio.wait(closing, timeout=STOP_S)
            for task in late:
                task.cancel()
        try:
            await self._audit("service.stop", "")
        except StoreError as error:
            log.error("the stop is not recorded: %s", error)
        finally:
            await asyncio.to_thread(self.store.close)

    def runner(self, engine_id: str) -> Runner:
        """The loop of one engine.

        Raises:
            ProblemError: 404, there is no such engine.
        """
        found = self.runners.get(engine_id)
        if found is None:
            known = ", ".join(self.runners) or "none"
            raise ProblemError(
                404, "unknown_engine", f"there is no engine {engine_id!r}; engines are: {known}"
            )
        return found

    def statuses(self) -> list[EngineStatus]:
        """Every engine."""
        return [runner.status() for runner in self.runners.values()]

    def troubles(self) -> list[str]:
        """What keeps the control plane from doing its work; empty when it is ready."""
        found = [text for runner in self.runners.values() for text in runner.troubles()]
        if not self._tasks and self.runners:
            found.append("the engines' loops are not running")
        found += [f"the loop of {name} ended" for name, t in self._tasks.items() if t.done()]
        return found

    async def _prune(self) -> None:
        """Remove what is older than the retention, once an hour."""
        while True:
            before = self.clock.utc_ms() - self.settings.retention_days * 86_400_000
            try:
                await asyncio.wrap_future(self.store.prune(before))
            except StoreError as error:
                log.error("old ticks are not removed: %s", error)
            await asyncio.sleep(PRUNE_EVERY_S)

    async def _audit(self, action: str, detail: str) -> None:
        entry = AuditEntry(
            at_utc_ms=self.clock.utc_ms(),
            actor=SERVICE,
            action=action,
            target=self.settings.holder_name,
            detail=detail,
        )
        await asyncio.wrap_future(self.store.write([entry]))
