"""The one thread that writes: a bounded queue in, futures out, a sentinel at the end."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property

from sqlalchemy import Connection

from store.backlog import RETRY_S, Backlog, StoreState
from store.database import Database
from store.doubt import Doubt
from store.errors import (
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreOverloaded,
    StoreRefused,
    StoreUnreachable,
    StoreUnwritable,
)
from store.pen import Pen, Record
from store.pruning import Pruned, Pruning
from store.records import ControlInput, RawScrape, Tick
from store.retention import Retention
from store.writer_line import WriterLine

QUEUE_LIMIT = 4096
"""Writes that may wait.  Ticks and scrapes alone are refused earlier, at ``TICK_LIMIT``, so that a
flood of them leaves room for decisions, overrides and the audit."""
TICK_LIMIT = 3584
GROUP_LIMIT = 256
"""Waiting writes that share one transaction at most."""
SYNC_EVERY_S = 5.0
"""Ticks are forced to the disk at least this often, in seconds: what a power cut may cost."""

SOFT = (Tick, RawScrape, ControlInput)
"""Records that are acknowledged once committed, before they are on the disk."""

_log = logging.getLogger("specdeck.store")


@dataclass
class _Write:
    records: tuple[Record, ...]
    keep: bool = False
    future: Future[list[Record]] = field(default_factory=Future)

    @cached_property
    def durable(self) -> bool:
        """Whether it must be on the disk before it is acknowledged."""
        return not all(isinstance(record, SOFT) for record in self.records)


@dataclass
class _Prune:
    pruning: Pruning
    future: Future[Pruned] = field(default_factory=Future)


_Item = _Write | _Prune | None


class Writer:
    """Owns the only connection that writes.

    One submitted write is one transaction: all its records are stored or none.  When several wait
    they are committed together, but each still succeeds or fails on its own.
    """

    def __init__(self, database: Database) -> None:
        self._name = database.name
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._backlog: Backlog[_Write] = Backlog(self._name)
        self._in_hand = 0
        self._ending = threading.Event()
        self._closing = threading.Lock()
        self._closed = False
        self._pen = Pen()
        self._doubt = Doubt()
        self._synced_at = time.monotonic()
        self._unsynced = False
        self._line = WriterLine(database)
        self._thread = threading.Thread(target=self._run, name="specdeck-store", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Writes that have not been taken up yet, or wait for the file."""
        return self._queue.qsize() + len(self._backlog) + self._in_hand

    @property
    def state(self) -> StoreState:
        """How the writing goes."""
        trouble = self._backlog.trouble
        return StoreState(str(trouble or ""), self.waiting, self._backlog.refused)

    def submit(self, records: Sequence[Record], *, keep: bool = False) -> Future[list[Record]]:
        """Queue one transaction; never blocks and never raises, the future tells.

        A write once handed over cannot be cancelled: it is done even if nobody waits any more.

        Args:
            keep: wait in memory while the file cannot be written, instead of failing.
        """
        write = _Write(tuple(records), keep)
        write.future.set_running_or_notify_cancel()
        strangers = [r for r in write.records if not isinstance(r, Record)]
        limit = QUEUE_LIMIT if write.durable else TICK_LIMIT
        with self._closing:
            if self._closed:
                write.future.set_exception(_closed(self._name))
            elif strangers:
                kind = type(strangers[0]).__name__
                write.future.set_exception(StoreRefused(f"the store keeps no {kind}"))
            elif self.waiting >= limit:
                self._backlog.refused += 1
                write.future.set_exception(self._overloaded())
            else:
                self._queue.put(write)
        return write.future

    def prune(self, retention: Retention) -> Future[Pruned]:
        """Queue the removal of what is old."""
        prune = _Prune(Pruning(retention))
        prune.future.set_running_or_notify_cancel()
        with self._closing:
            if self._closed:
                prune.future.set_exception(_closed(self._name))
            else:
                self._queue.put(prune)
        return prune.future

    def drain(self) -> None:
        """Do what is queued, then end the thread; what comes later is refused."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
                self._ending.set()
        self._thread.join()

    def close(self) -> None:
        """Drain, then close the connection.

        The last connection of a file brings its write-ahead log into it, and a reader's cannot: so
        readers close between ``drain`` and this.
        """
        self.drain()
        self._line.close()

    def _run(self) -> None:
        open_ = True
        while open_:
            group: list[_Write] = []
            prune: _Prune | None = None
            if self._backlog.failed:
                self._ending.wait(RETRY_S)
            try:
                item = self._queue.get(timeout=self._patience())
                while isinstance(item, _Write):
                    if item.keep and self._backlog.trouble is not None:
                        self._backlog.append(item)  # behind those that wait already
                    else:
                        group.append(item)
                    if len(group) == GROUP_LIMIT:
                        break
                    item = self._queue.get_nowait()
                else:
                    open_ = item is not None
                    prune = item
            except queue.Empty:
                if not group and self._backlog.trouble is None:
                    self._sync()
            held = self._backlog.take(GROUP_LIMIT)
            self._in_hand = len(held)
            if held or group:
                self._write(held + group)
            self._in_hand = 0
            if prune is not None:
                self._prune_step(prune)
        while self._backlog and not self._backlog.failed:
            self._write(self._backlog.take(GROUP_LIMIT))
        self._backlog.give_up()

    def _patience(self) -> float | None:
        """Seconds to wait for the next write; None for ever."""
        if self._backlog.trouble is not None:
            return 0.0
        return SYNC_EVERY_S if self._unsynced else None

    def _write(self, group: list[_Write]) -> None:
        """Commit the group in one transaction or, if a record is to blame, one by one."""
        try:
            self._commit(group)
        except (StoreUnwritable, StoreBusy) as error:
            # The file's trouble, not a record's: trying each again would only take longer.
            self._backlog.put_back(group, error)
        except StoreCorrupt as error:
            for write in group:
                write.future.set_exception(error)
        except StoreError as error:
            if len(group) == 1:
                group[0].future.set_exception(error)
            else:
                self._write_each(group)

    def _write_each(self, group: list[_Write]) -> None:
        for index, write in enumerate(group):
            try:
                self._commit([write])
            except (StoreUnwritable, StoreBusy) as error:
                self._backlog.put_back(group[index:], error)
                return
            except StoreError as error:
                write.future.set_exception(error)

    def _commit(self, group: list[_Write]) -> None:
        answers = self._transaction(group)
        self._backlog.written()
        for write, answer in zip(group, answers, strict=True):
            self._doubt.answered(write.future)
            write.future.set_result(answer)

    def _transaction(self, group: list[_Write]) -> list[list[Record]]:
        now = time.monotonic()
        answers: list[list[Record]] = []
        durable = any(write.durable for write in group) or now - self._synced_at >= SYNC_EVERY_S
        try:
            connection = self._begin(durable=durable)
            answers = [self._save(connection, write) for write in group]
            connection.commit()
        except BaseException as error:
            why = self._undone(error)
            if answers and isinstance(why, StoreUnreachable):
                futures = [write.future for write in group]
                self._doubt.raise_for(futures, [write.records for write in group], answers)
                why = StoreUnreachable(f"{why} Whether this was stored is not known: look first.")
            raise why from error
        self._pen.kept()
        self._unsynced = not durable
        if durable:
            self._synced_at = now
        return answers

    def _save(self, connection: Connection, write: _Write) -> list[Record]:
        known = self._doubt.stored(write.future)
        return known or [self._pen.save(connection, record) for record in write.records]

    def _prune_step(self, prune: _Prune) -> None:
        try:
            connection = self._begin(durable=False)
            more = prune.pruning.step(connection)
            connection.commit()
            self._line.free_space()
        except BaseException as error:  # noqa: BLE001 (the thread must live; the future tells)
            prune.future.set_exception(self._undone(error))
            return
        with self._closing:
            if more and not self._closed:
                self._queue.put(prune)  # behind whatever has been queued meanwhile
                return
        prune.future.set_result(prune.pruning.pruned)

    def _sync(self) -> None:
        """Force acknowledged ticks to the disk when nothing else came to do it."""
        self._unsynced = False
        self._synced_at = time.monotonic()
        self._line.sync()

    def _begin(self, *, durable: bool) -> Connection:
        if self._line.renew():
            self._pen = Pen()
            self._doubt.settle(self._line.connection)
            self._line.connection.rollback()
        self._line.begin(durable=durable)
        return self._line.connection

    def _undone(self, error: BaseException) -> StoreError:
        """Roll back; returns what to tell."""
        why = self._line.explain(error)
        self._pen.forget()
        self._line.undo(why)
        return why

    def _overloaded(self) -> StoreOverloaded:
        trouble = self._backlog.trouble or "Look for a slow or locked disk, or poll less often."
        return StoreOverloaded(
            f"{self._name} is {self.waiting} writes behind; this one was not recorded. {trouble}"
        )


def _closed(name: str) -> StoreClosed:
    return StoreClosed(f"{name}: the store was closed; this was not recorded")
