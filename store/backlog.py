"""Writes that wait in memory while the file cannot be written: locked, full, read-only."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from store.errors import StoreError

RETRY_S = 0.5
"""Seconds between two attempts while the file cannot be written."""

_log = logging.getLogger("specdeck.store")


class StoreState(NamedTuple):
    """How the writing goes.

    Args:
        trouble: why the file cannot be written now, "" while it can.
        waiting: writes that are not stored yet.
        refused: writes refused since the store was opened, because too many waited.
    """

    trouble: str
    waiting: int
    refused: int


class Write(Protocol):
    """What waits here: ``keep`` if it may, and a future that is told otherwise."""

    keep: bool
    future: Future[Any]


_Write = TypeVar("_Write", bound=Write)


class Backlog(Generic[_Write]):
    """In the order they were handed over.  For the writer thread; others may ask for numbers."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._held: deque[_Write] = deque()
        self._since = 0.0
        self._share = 1
        self._refused_before = 0
        self.trouble: StoreError | None = None
        """The last error, until everything that waited is stored."""
        self.failed = False
        """Whether the last attempt failed."""
        self.refused = 0

    def __len__(self) -> int:
        return len(self._held)

    def append(self, write: _Write) -> None:
        """Let one more wait, behind the others."""
        self._held.append(write)

    def take(self, limit: int) -> list[_Write]:
        """The first of those that wait: one as a probe, then ever more while it goes well."""
        return [self._held.popleft() for _ in range(min(self._share, limit, len(self._held)))]

    def put_back(self, group: Sequence[_Write], error: StoreError) -> None:
        """The file could not be written: those that may wait do, the others are told."""
        self._held.extendleft(reversed([write for write in group if write.keep]))
        if self._held and self.trouble is None:
            self._since, self._refused_before = time.monotonic(), self.refused
            _log.error("recording stops, what is to be recorded waits in memory: %s", error)
        self.trouble, self.failed, self._share = (
            (error, True, 1) if self._held else (None, False, 1)
        )
        for write in group:
            if not write.keep:
                write.future.set_exception(error)

    def written(self) -> None:
        """An attempt went well."""
        self.failed = False
        self._share *= 2
        if self.trouble is not None and not self._held:
            _log.warning(
                "%s is written again after %.0f s; %d writes were refused meanwhile",
                self._name,
                time.monotonic() - self._since,
                self.refused - self._refused_before,
            )
            self.trouble, self._share = None, 1

    def give_up(self) -> None:
        """The store closes and the file still cannot be written."""
        if self._held and self.trouble is not None:
            _log.error("%d writes are lost with the end: %s", len(self._held), self.trouble)
            while self._held:
                self._held.popleft().future.set_exception(self.trouble)
