"""The engines that are looked after: each with its loop, wherever it was named.

An engine stands in the settings, was added by request, or was named by a file or a router
(``controlplane.sources``).  What is not in the settings is stored with its own settings, so that it
is found again after a start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from controlplane.added import (
    NO_KEYS,
    added_engines,
    added_record,
    engine_settings,
    keep,
    keys_of,
)
from controlplane.engine import EngineClient
from controlplane.errors import ProblemError
from controlplane.messages import AddEngineRequest, EngineStatus, RemoveEngineRequest
from controlplane.roster_notes import RosterNotes
from controlplane.runner import Runner
from controlplane.security import EngineKeys
from controlplane.settings import EngineSettings, Settings
from controlplane.surroundings import Surroundings
from controlplane.turns import turn_of
from store.db import Record
from store.records import AuditEntry, EngineRecord, Marker

STOP_S = 0.8
"""Seconds a loop gets to end; what it holds is in the store already."""


class Roster:
    """Starts and ends the engines' loops.

    Args:
        keys: keys of the engines in the settings, by id.
        sources: names of the sources that are followed; engines of others are retired.
    """

    def __init__(
        self,
        settings: Settings,
        around: Surroundings,
        keys: Mapping[str, EngineKeys],
        sources: frozenset[str],
    ) -> None:
        self._settings = settings
        self._around = around
        self._notes = RosterNotes(around)
        self._adding = asyncio.Lock()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._keys: dict[str, EngineKeys] = {}
        self._left_behind: list[EngineRecord] = []
        self.measured: Callable[[str], bool] = lambda _: False
        """Whether a benchmark runs on an engine: it is neither left alone nor set up anew then."""
        self.runners: dict[str, Runner] = {}
        for engine in settings.engines:
            self._make(engine, keys[engine.id])
        for engine, record in added_engines(around.store, settings.engines):
            if record.source and record.source not in sources:
                self._left_behind.append(record)
            else:
                self._make(engine, keys_of(engine) if record.source else NO_KEYS, record)
        self._take_turns()

    async def start(self) -> None:
        """Start a loop per engine."""
        for record in self._left_behind:
            why = "the settings name this source no more"
            notes = await self._notes.farewell(record.engine_id, record.source, why)
            await keep(self._around.store, [self._notes.gone(record), *notes])
        for engine_id in self.runners:
            self._run(engine_id)

    async def stop(self) -> None:
        """End every loop within a second.  No engine is switched."""
        for task in self._tasks.values():
            task.cancel()
        closing = [*self._tasks.values()]
        closing += [asyncio.create_task(runner.close()) for runner in self.runners.values()]
        if closing:
            _, late = await asyncio.wait(closing, timeout=STOP_S)
            for task in late:
                task.cancel()

    def api_key(self, engine_id: str) -> str | None:
        """SGLang's API key of an engine."""
        keys = self._keys.get(engine_id)
        return None if keys is None else keys.api

    def troubles(self) -> list[str]:
        """Loops that do not run, in sentences."""
        found = [f"the loop of {name} ended" for name, one in self._tasks.items() if one.done()]
        if not self._tasks and self.runners:
            found.append("the engines' loops are not running")
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

    def check_known(self, engine_id: str) -> None:
        """Refuse an engine that was never looked after.  Blocks on the database.

        Raises:
            ProblemError: 404.
        """
        if engine_id not in self.runners and self._around.store.engine(engine_id) is None:
            self.runner(engine_id)

    def retired(self) -> list[EngineStatus]:
        """Engines that are looked after no more, as they were last.  Blocks on the database."""
        store, now = self._around.store, self._around.clock.utc_ms()
        return [
            EngineStatus(
                engine=record,
                policy=store.policy(record.engine_id),
                tick=store.last_tick(record.engine_id),
                poll_s=0.0,
                now_utc_ms=now,
            )
            for record in store.engines()
            if record.engine_id not in self.runners
        ]

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

    # -- by request --------------------------------------------------------------------------

    async def add(
        self, request: AddEngineRequest, author: str, *, dry_run: bool = False
    ) -> EngineSettings:
        """Look after one more engine, from now on and after each start.

        Args:
            dry_run: check alone; nothing changes.

        Raises:
            ProblemError: 409, the id or the URL is taken; 422, it cannot be an engine; 503, the
                store cannot be written.
        """
        engine = engine_settings(request)
        async with self._adding:
            other = self.taken(engine, None)
            if other is not None:
                raise ProblemError(
                    409, "engine_exists", f"{engine.id} at {engine.url} is looked after as {other}"
                )
            if not dry_run:
                detail = f"{engine.url}: {request.reason}".rstrip(": ")
                entry = self._notes.entry(author, "engine.add", engine.id, detail)
                await self._begin(engine, NO_KEYS, "", entry)
            return engine

    async def remove(
        self, engine_id: str, request: RemoveEngineRequest, author: str, *, dry_run: bool = False
    ) -> None:
        """Leave an engine alone that was added by request; its lease decides how it goes on.

        Raises:
            ProblemError: 404, there is none; 409, it stands in the settings, is named by a source
                or a benchmark runs on it; 503, the store cannot be written.
        """
        async with self._adding:
            runner = self.runner(engine_id)
            if any(engine.id == engine_id for engine in self._settings.engines):
                raise ProblemError(
                    409,
                    "in_settings",
                    f"engine {engine_id} stands in the settings: remove it there and start anew",
                )
            if runner.known.record.source:
                raise ProblemError(
                    409,
                    "in_source",
                    f"engine {engine_id} is named by {runner.known.record.source}: remove it there",
                )
            if self.measured(engine_id):
                raise ProblemError(
                    409, "benchmark_running", f"a benchmark of {engine_id} runs: cancel it first"
                )
            if not dry_run:
                entry = self._notes.entry(author, "engine.remove", engine_id, request.reason)
                await self._end(runner, [entry])

    # -- by a source -------------------------------------------------------------------------

    def found(self, source: str) -> Mapping[str, tuple[EngineSettings, EngineKeys]]:
        """The engines of a source that are looked after."""
        return {
            name: (runner.settings, self._keys[name])
            for name, runner in self.runners.items()
            if runner.known.record.source == source
        }

    def taken(self, engine: EngineSettings, source: str | None) -> str | None:
        """Which engine has this one's id or URL already; those of ``source`` do not count."""
        for other in self.runners.values():
            if engine.id == other.engine_id or engine.url == other.settings.url:
                if other.known.record.source == source:
                    continue
                by = f" ({other.known.record.source})" if other.known.record.source else ""
                return f"{other.engine_id} at {other.settings.url}{by}"
        return None

    async def begin(self, engine: EngineSettings, keys: EngineKeys, source: str) -> None:
        """Look after one more engine of a source, or after a known one by other settings.

        One that a benchmark runs on waits for the next look, here and in ``retire``.
        """
        async with self._adding:
            if self.measured(engine.id):
                return
            known = self.runners.get(engine.id)
            action = "engine.add" if known is None else "engine.change"
            entry = self._notes.entry(source, action, engine.id, engine.url)
            await self._begin(engine, keys, source, entry)

    async def retire(self, engine_id: str, source: str, why: str) -> None:
        """Leave an engine of a source alone; a marker on its time line says so."""
        async with self._adding:
            if self.measured(engine_id):
                return
            runner = self.runner(engine_id)
            await self._end(runner, await self._notes.farewell(engine_id, source, why))

    # -- one way in, one way out ---------------------------------------------------------------

    async def _begin(
        self, engine: EngineSettings, keys: EngineKeys, source: str, entry: AuditEntry
    ) -> None:
        store = self._around.store
        known = await asyncio.to_thread(store.engine, engine.id)
        record = added_record(known, engine, source, self._around.clock.utc_ms())
        notes: list[Marker] = []
        if known is not None and known.removed_utc_ms is not None:
            notes = [await self._notes.returned(engine.id, source or entry.actor)]
        await keep(store, [record, entry, *notes])
        old = self.runners.get(engine.id)
        if old is not None:
            # It is shown until the new loop takes its place; two loops never run at once.
            await self._halt(engine.id)
            await old.close()
        self._make(engine, keys, record)
        self._take_turns()
        self._run(engine.id)

    async def _end(self, runner: Runner, notes: Sequence[Record]) -> None:
        """Record that an engine is left alone, and do so; on a failure it is looked after on."""
        engine_id = runner.engine_id
        # First of all: its loop must not store the engine's record once more afterwards.
        await self._halt(engine_id)
        try:
            await keep(self._around.store, [self._notes.gone(runner.known.record), *notes])
        except ProblemError:
            self._run(engine_id)
            raise
        del self.runners[engine_id], self._keys[engine_id]
        self._take_turns()
        await runner.close()

    async def _halt(self, engine_id: str) -> None:
        task = self._tasks.pop(engine_id, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task], timeout=STOP_S)

    def _make(
        self, engine: EngineSettings, keys: EngineKeys, record: EngineRecord | None = None
    ) -> None:
        clock = self._around.clock
        client = EngineClient(
            engine.id,
            engine.url,
            admin_key=keys.admin,
            api_key=keys.api,
            timeout_s=engine.timeout_s,
            clock=clock,
            clock_id=clock.clock_id,
            holder=self._around.holder,
        )
        runner = Runner(engine, client, self._around)
        if record is not None:
            runner.known.record = record
        self._keys[engine.id] = keys
        self.runners[engine.id] = runner

    def _run(self, engine_id: str) -> None:
        work = self.runners[engine_id].run()
        self._tasks[engine_id] = asyncio.create_task(work, name=f"engine {engine_id}")

    def _take_turns(self) -> None:
        """Give each engine its slot among those of its group; one without a group is alone."""
        settings, groups = self._settings, dict[str, list[str]]()
        for runner in self.runners.values():
            if runner.settings.group:
                groups.setdefault(runner.settings.group, []).append(runner.engine_id)
        for runner in self.runners.values():
            names = groups.get(runner.settings.group, [])
            turn = turn_of(runner.engine_id, names, settings.stagger_share, settings.stagger_s)
            runner.pilot.take_turns(turn)
