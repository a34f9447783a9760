"""Engines that others name: a file and routers are looked at again and again, and the engines that
are looked after follow them.

What a source names is stored with the engine, so that a start with a bad file or a router that does
not answer goes on with the last good list.  An engine that vanishes is retired with a marker on its
time line; what was recorded of it stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from controlplane.clock import SystemClock
from controlplane.engines_file import FileSource
from controlplane.errors import ProblemError, SourceError
from controlplane.messages import SourceKind, SourceStatus
from controlplane.roster import Roster
from controlplane.router_source import RouterSource
from controlplane.security import EngineKeys
from controlplane.settings import EngineSettings, Settings
from controlplane.settings_load import ConfigError
from store.records import Alarm

log = logging.getLogger("specdeck.sources")

ALARM = "source_failed"


class Source(Protocol):
    """Something that names engines."""

    name: str
    kind: SourceKind
    every_s: float
    skipped: tuple[str, ...]

    def knows(self, engine: EngineSettings) -> None:
        """An engine it named in an earlier process."""

    async def look(self) -> Sequence[EngineSettings] | None:
        """The engines it names; None for no news.  Raises SourceError."""

    async def close(self) -> None:
        """Let go of what is held open."""


def sources_of(settings: Settings, clock: SystemClock) -> list[Source]:
    """The configured sources."""
    made: list[Source] = [RouterSource(router, clock) for router in settings.routers]
    if settings.engines_file is not None:
        made.insert(0, FileSource(settings.engines_file))
    return made


class Follower:
    """Keeps the engines of one source as it names them."""

    def __init__(self, source: Source, roster: Roster, clock: SystemClock) -> None:
        self.source = source
        self._roster = roster
        self._clock = clock
        self._good_utc_ms: int | None = None
        self._alarm: Alarm | None = None
        for engine, _ in roster.found(source.name).values():
            source.knows(engine)

    @property
    def alarm(self) -> Alarm | None:
        """What is wrong with the source; None if nothing is."""
        return self._alarm

    def status(self) -> SourceStatus:
        """What it named last, and what is wrong."""
        return SourceStatus(
            name=self.source.name,
            kind=self.source.kind,
            engines=tuple(self._roster.found(self.source.name)),
            good_utc_ms=self._good_utc_ms,
            skipped=self.source.skipped,
            alarm=self._alarm,
        )

    async def run(self) -> None:
        """Look again and again, for ever."""
        try:
            while True:
                await self.once()
                await asyncio.sleep(self.source.every_s)
        finally:
            await self.source.close()

    async def once(self) -> None:
        """Look once and follow; what is wrong becomes the alarm."""
        try:
            wanted = await self.source.look()
            if wanted is None:
                return
            problems = await self._follow(wanted)
            self._good_utc_ms = self._clock.utc_ms()
        except (SourceError, ProblemError) as error:
            problems = [str(error)]
        except Exception as error:
            log.exception("%s: not followed", self.source.name)
            problems = [f"{type(error).__name__}: {error}"]
        self._tell(problems)

    async def _follow(self, wanted: Sequence[EngineSettings]) -> list[str]:
        name, problems = self.source.name, list[str]()
        have = self._roster.found(name)
        keys = await asyncio.to_thread(_read_keys, wanted)
        for engine_id in set(have) - {engine.id for engine in wanted}:
            await self._roster.retire(engine_id, name, "it is not named there any more")
        seen: dict[str, str] = {}
        for engine in wanted:
            other = self._roster.taken(engine, name) or seen.get(engine.id)
            seen[engine.id] = f"{engine.id} at {engine.url}"
            key = keys[engine.id]
            if other is not None:
                problems.append(f"engine {engine.id} at {engine.url} is looked after as {other}")
            elif isinstance(key, ConfigError):
                problems.append(str(key))
            elif have.get(engine.id) != (engine, key):
                await self._roster.begin(engine, key, name)
        return problems

    def _tell(self, problems: Sequence[str]) -> None:
        if not problems:
            if self._alarm is not None:
                log.info("%s: good again", self.source.name)
            self._alarm = None
            return
        text = f"{self.source.name}: {'; '.join(problems)}"
        before = self._alarm
        if before is None or before.text != text:
            log.error("%s; the engines known from it stay", text)
        since = self._clock.utc_ms() if before is None else before.since_utc_ms
        self._alarm = Alarm(code=ALARM, text=text, since_utc_ms=since)


def _read_keys(engines: Sequence[EngineSettings]) -> dict[str, EngineKeys | ConfigError]:
    """Each engine's keys, or why they cannot be read."""
    found: dict[str, EngineKeys | ConfigError] = {}
    for engine in engines:
        try:
            found[engine.id] = EngineKeys.read(engine)
        except ConfigError as error:
            found[engine.id] = error
    return found
