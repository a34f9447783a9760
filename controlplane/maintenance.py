"""What keeps the database in shape while the control plane runs: retention, its log, its alarms."""

from __future__ import annotations

import asyncio
import logging

from controlplane.clock import Clock
from controlplane.settings_storage import Storage
from store.db import Store
from store.errors import StoreError
from store.pruning import Pruned
from store.records import Alarm
from store.retention import Retention

log = logging.getLogger("specdeck.storage")

LOOK_S = 60.0
"""Seconds between two looks at the sizes."""
PRUNE_EVERY_S = 3600.0
WHOLE_EVERY = 24
"""Of so many prunings one looks at every row; the others end at the first young ones."""
DAY_MS = 86_400_000
MB = 1024 * 1024


def retention(settings: Storage, now_utc_ms: int, *, whole: bool) -> Retention:
    """What goes now."""

    def before(days: int) -> int | None:
        return now_utc_ms - days * DAY_MS if days else None

    return Retention(
        ticks=before(settings.ticks_days),
        scrapes=before(settings.scrapes_days),
        history=before(settings.history_days),
        downsample=before(settings.downsample_after_days),
        every_ms=round(settings.downsample_s * 1000),
        whole=whole,
    )


class Maintenance:
    """Looks after one store.

    Args:
        settings: how long what is kept.
    """

    def __init__(self, store: Store, settings: Storage, clock: Clock) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._alarms: dict[str, Alarm] = {}
        self._runs = 0
        self._due_mono_ms = clock.mono_ms()
        self.removed = Pruned()
        """Rows removed since the start."""

    def alarms(self) -> tuple[Alarm, ...]:
        """What is wrong with the database now."""
        self._look_at_writing()
        return tuple(self._alarms.values())

    def troubles(self) -> list[str]:
        """What keeps it from being written; empty when it can be."""
        trouble = self._store.state.trouble
        return [trouble] if trouble else []

    async def run(self) -> None:
        """For ever."""
        while True:
            if self._clock.mono_ms() >= self._due_mono_ms:
                self._due_mono_ms = self._clock.mono_ms() + round(PRUNE_EVERY_S * 1000)
                await self.prune()
            elif not self._store.state.trouble:
                await self._step(Retention())  # nothing goes, but a long log is cut
            self._look_at_log()
            await asyncio.sleep(LOOK_S)

    async def prune(self) -> None:
        """Remove and down-sample what is old."""
        whole = self._runs % WHOLE_EVERY == 0
        self._runs += 1
        await self._step(retention(self._settings, self._clock.utc_ms(), whole=whole))

    async def _step(self, wanted: Retention) -> None:
        try:
            found = await asyncio.wrap_future(self._store.prune(wanted))
        except StoreError as error:
            self._raise("prune_failed", f"old records are not removed: {error}")
        else:
            self._alarms.pop("prune_failed", None)
            self.removed = Pruned(*map(sum, zip(self.removed, found, strict=True)))

    def _look_at_log(self) -> None:
        size = self._store.size
        if size is not None and size.wal > self._settings.wal_alarm_mb * MB:
            self._raise(
                "wal_too_long",
                f"{self._store.name}-wal has grown to {size.wal / MB:.0f} MB, because a reader "
                "keeps it from being brought into the database. Nothing is lost, but it goes on "
                "growing: end the program that reads the file (an open sqlite3 shell, a copy that "
                "hangs; lsof names it)",
            )
        else:
            self._alarms.pop("wal_too_long", None)

    def _look_at_writing(self) -> None:
        state = self._store.state
        if state.trouble:
            self._raise(
                "not_recording",
                f"recording has stopped, control goes on; {state.waiting} writes wait in memory, "
                f"{state.refused} were refused: {state.trouble}",
            )
        else:
            self._alarms.pop("not_recording", None)

    def _raise(self, code: str, text: str) -> None:
        before = self._alarms.get(code)
        if before is None:
            log.error("%s: %s", code, text)
        since = self._clock.utc_ms() if before is None else before.since_utc_ms
        self._alarms[code] = Alarm(code=code, text=text, since_utc_ms=since)
