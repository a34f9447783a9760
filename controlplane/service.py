"""All engines of one control plane: starts and stops their loops and answers for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from controlplane.added import (
    NO_KEYS,
    added_engines,
    added_record,
    engine_settings,
    keep,
)
from controlplane.benchrun_jobs import Benchmarks
from controlplane.clock import SystemClock
from controlplane.desk import Surroundings
from controlplane.engine import EngineClient
from controlplane.errors import ProblemError
from controlplane.hub import Hub
from controlplane.messages import AddEngineRequest, EngineStatus, RemoveEngineRequest
from controlplane.runner import Runner
from controlplane.security import EngineKeys
from controlplane.settings import EngineSettings, Settings
from controlplane.turns import turn_of
from controlplane.version import VERSION
from controlplane.webhooks import Webhooks, hooks_of
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
        self.webhooks = Webhooks(hooks_of(settings.webhooks), settings.holder_name, self.clock)
        around = Surroundings(
            store=store,
            hub=self.hub,
            clock=self.clock,
            holder=settings.holder_name,
            override_max_s=settings.override_max_s,
            scrape_every_s=settings.scrape_every_s,
            webhooks=self.webhooks,
        )
        if keys is None:
            keys = {engine.id: EngineKeys.read(engine) for engine in settings.engines}
        self._around = around
        self.runners: dict[str, Runner] = {
            engine.id: Runner(engine, self._client(engine, keys[engine.id]), around)
            for engine in settings.engines
        }
        for engine, record in added_engines(store, settings.engines):
            runner = Runner(engine, self._client(engine, NO_KEYS), around)
            runner.record = record
            self.runners[engine.id] = runner
        self._take_turns()
        self.benchmarks = Benchmarks(
            store,
            self.clock,
            api_keys={name: one.api for name, one in keys.items()},
            longest_s=settings.override_max_s,
            read_files=not settings.tokens,
        )
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._adding = asyncio.Lock()

    def _take_turns(self) -> None:
        """Give each engine its slot among those of its group; one without a group is alone."""
        settings, groups = self.settings, dict[str, list[str]]()
        for runner in self.runners.values():
            if runner.settings.group:
                groups.setdefault(runner.settings.group, []).append(runner.engine_id)
        for runner in self.runners.values():
            names = groups.get(runner.settings.group, [])
            turn = turn_of(runner.engine_id, names, settings.stagger_share, settings.stagger_s)
            runner.pilot.take_turns(turn)

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
        self.webhooks.start()
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
        await self.webhooks.close()
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

    async def add(self, request: AddEngineRequest, author: str) -> Runner:
        """Look after one more engine, from now on and after each start.

        Raises:
            ProblemError: 409, the id or the URL is taken; 422, it cannot be an engine; 503, the
                store cannot be written.
        """
        engine = engine_settings(request)
        async with self._adding:
            for other in self.runners.values():
                if engine.id == other.engine_id or engine.url == other.settings.url:
                    raise ProblemError(
                        409,
                        "engine_exists",
                        f"engine {other.engine_id} at {other.settings.url} is looked after already",
                    )
            runner = Runner(engine, self._client(engine, NO_KEYS), self._around)
            runner.record = added_record(runner.record, engine)
            detail = f"{engine.url}: {request.reason}".rstrip(": ")
            entry = self._entry(author, "engine.add", engine.id, detail)
            await keep(self.store, [runner.record, entry])
            self.runners[engine.id] = runner
            self._take_turns()
            name = f"engine {engine.id}"
            self._tasks[engine.id] = asyncio.create_task(runner.run(), name=name)
            return runner

    async def remove(self, engine_id: str, request: RemoveEngineRequest, author: str) -> None:
        """Leave an engine alone; its lease decides how it goes on.

        Raises:
            ProblemError: 404, there is none; 409, it stands in the settings or a benchmark runs;
                503, the store cannot be written.
        """
        async with self._adding:
            runner = self.runner(engine_id)
            if any(engine.id == engine_id for engine in self.settings.engines):
                raise ProblemError(
                    409,
                    "in_settings",
                    f"engine {engine_id} stands in the settings: remove it there and start anew",
                )
            gone = runner.record.model_copy(update={"removed_utc_ms": self.clock.utc_ms()})
            entry = self._entry(author, "engine.remove", engine_id, request.reason)
            await keep(self.store, [gone, entry])
            del self.runners[engine_id]
            self._take_turns()
            task = self._tasks.pop(engine_id, None)
            if task is not None:
                task.cancel()
                await asyncio.wait([task], timeout=STOP_S)
            await runner.close()

    def group(self, name: str) -> list[Runner]:
        """The engines of a group.

        Raises:
            ProblemError: 404, no engine belongs to it.
        """
        found = [one for one in self.runners.values() if one.settings.group == name]
        if not name or not found:
            known = sorted({one.settings.group for one in self.runners.values()} - {""})
            raise ProblemError(
                404,
                "unknown_group",
                f"no engine belongs to group {name!r}; groups are: {', '.join(known) or 'none'}",
            )
        return found

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
