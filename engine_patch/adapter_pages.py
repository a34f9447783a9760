"""What a rank publishes seldom: the journal of its switches and its step-cost table."""

from __future__ import annotations

import logging
import time
from collections import deque

from engine_patch import shm
from engine_patch.chooser import JOURNAL_LENGTH, Chooser
from engine_patch.contract import JournalEntry
from engine_patch.published import COSTS
from engine_patch.step_times import StepTimes

log = logging.getLogger("specdeck")

COSTS_NS = 1_000_000_000
"""The step-cost table is published at most once a second."""


class Pages:
    """The journal and the table, as far as they are written.

    Args:
        file: the rank's shared memory.
    """

    def __init__(self, file: shm.RankFile) -> None:
        self._file = file
        self._entries: deque[bytes] = deque(maxlen=JOURNAL_LENGTH)
        self._changes = self._costs_ns = 0
        self.journaled = 0
        """Number of the newest switch in the journal."""

    def write_journal(self, chooser: Chooser, now_ns: int) -> None:
        """Write the switches since the last time, with the moment they are written."""
        at = time.time_ns() // 1_000_000
        for entry in chooser.journal_since(self.journaled):
            stamped: JournalEntry = entry.model_copy(update={"at_utc_ms": at})
            self._entries.append(stamped.model_dump_json().encode())
            log.info(
                "specdeck: tier %s -> %s (%s, batch %d, step %d)",
                entry.from_tier,
                entry.to_tier,
                entry.reason,
                entry.batch,
                entry.step,
            )
        self.journaled = chooser.switches
        self._file.write("journal", b"[" + b",".join(self._entries) + b"]", now_ns)

    def write_costs(self, times: StepTimes, now_ns: int) -> None:
        """Write the table if it changed and the last one is old enough."""
        if times.changes == self._changes or now_ns - self._costs_ns < COSTS_NS:
            return
        self._file.write("costs", COSTS.dump_json(times.table()), now_ns)
        self._changes, self._costs_ns = times.changes, now_ns
