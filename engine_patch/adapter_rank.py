"""One rank: takes commands out of SGLang's broadcast, feeds the chooser, publishes numbers.

Lives in a scheduler process.  Everything here runs inside the scheduler's loop, so it is counted in
microseconds, and nothing of it may raise into the loop.  Decisions use counts only; the clock is
used for one thing, to publish less often.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from engine_patch import shm
from engine_patch.adapter_facts import reserve_per_request
from engine_patch.adapter_policy import TierPolicy
from engine_patch.chooser import JOURNAL_LENGTH, Chooser, Window
from engine_patch.contract import JournalEntry, Mode
from engine_patch.published import RankFacts
from engine_patch.tier import OFF, TierName
from engine_patch.wire import Number, WireError, decode

log = logging.getLogger("specdeck")

PUBLISH_NS = 50_000_000
"""Numbers are published at most every 50 ms while batches run, and at once on a change of tier."""
IDLE_NS = 200_000_000
"""While nothing runs they are published every 200 ms, so that their age shows a living rank."""
_MARK = "specdeck_tier"
"""Attribute put on a batch result: the tier that produced it."""


class Rank:
    """The bookkeeping of one scheduler process.

    Args:
        scheduler: SGLang's scheduler, complete.
        file: the rank's shared memory.
        facts: what does not change.
        mine: our policy, None where SGLang runs one fixed shape or none.
    """

    def __init__(
        self, scheduler: Any, file: shm.RankFile, facts: RankFacts, mine: TierPolicy | None
    ) -> None:
        self._scheduler = scheduler
        self._file = file
        self._policy = mine
        self._facts = facts
        self._names = {} if mine is None else {steps: tier for tier, steps in mine.steps.items()}
        self.chooser: Chooser | None = None
        if mine is not None and not facts.unsupported:
            self.chooser = mine.chooser = Chooser(
                tuple(mine.steps),
                mine.launch_tier,
                page_size=facts.identity.page_size,
                dp_rank=facts.dp_rank,
            )
        # Without a chooser the rank still reports the fixed shape it runs.
        self._fixed: TierName | None = facts.launch_tier
        self._window = Window(facts.launch_tier) if facts.launch_tier is not None else None
        self._reserve = reserve_per_request() if facts.identity.algorithm is not None else 0
        self._decode_steps = self._verify_steps = self._decode_tokens = 0
        self._prefill_tokens = self._retractions = self._graph_misses = 0
        self._prefilling = self._joining = 0
        self._refused = ""
        self._silent = False
        self._journal: deque[bytes] = deque(maxlen=JOURNAL_LENGTH)
        self._journaled = 0
        self._published_ns = 0
        self._shown: tuple[Any, ...] = ()
        self._hook_ns = self._hook_batches = 0
        file.write("facts", facts.model_dump_json().encode(), time.monotonic_ns())
        self.publish()

    # What the scheduler's loop tells us.

    def launching(self, batch: Any) -> None:
        """A batch is about to run."""
        self._joining = 0
        if batch.forward_mode.is_extend():
            self._prefilling = len(batch.reqs)
            self._prefill_tokens += int(batch.extend_num_tokens or 0)
            # A long prefill says nothing until it is over, so say it now.
            self.publish()

    def launched(self, batch: Any, result: Any) -> None:
        """A batch was launched (with the overlap loop its result is still on the way)."""
        if not batch.forward_mode.is_decode():
            return
        tier = self._fixed if self.chooser is None else self.chooser.tier
        setattr(result, _MARK, tier)
        self._decode_steps += 1
        if tier is not None and tier != OFF:
            self._verify_steps += 1

    def finished(self, batch: Any, result: Any) -> None:
        """The result of a batch was processed; it may be older than the last launched one."""
        begin = time.perf_counter_ns()
        mode = batch.forward_mode
        if mode.is_decode():
            self._count(batch, result)
            self._hook_batches += 1
        elif mode.is_extend():
            chunked = self._scheduler.chunked_req is not None
            self._prefilling = 1 if chunked else 0
            self._joining = max(0, len(batch.reqs) - self._prefilling)
        if time.monotonic_ns() - self._published_ns >= PUBLISH_NS or self._moved():
            self.publish()
        self._hook_ns += time.perf_counter_ns() - begin

    def idle(self) -> None:
        """Nothing to run in this pass of the loop."""
        self._joining = 0
        if self._scheduler.chunked_req is None:
            self._prefilling = 0
        self._settle()
        due = time.monotonic_ns() - self._published_ns >= IDLE_NS
        if due or self._moved() or self._load() != self._shown:
            self.publish()

    def retracted(self, requests: int) -> None:
        """Requests were retracted for lack of KV slots."""
        self._retractions += requests

    def command(self, numbers: Mapping[str, Number]) -> bool:
        """Take a command; whether it was taken."""
        chooser = self.chooser
        if chooser is None:
            self._refused = self._facts.unsupported or "this rank cannot switch"
            self.publish()
            return False
        try:
            command = decode(numbers, chooser.tiers)
        except WireError as error:
            self._refused = str(error)
            self.publish()
            return False
        answer = chooser.command(command, running=len(self._scheduler.running_batch.reqs))
        self._refused = "" if answer.applied else answer.message
        self.publish()
        return answer.applied

    # Inside.

    def _count(self, batch: Any, result: Any) -> None:
        accepted = getattr(result, "num_correct_drafts_per_req_cpu", None)
        if accepted is None:
            self._decode_tokens += len(batch.reqs)
        else:
            self._decode_tokens += sum(accepted) + len(accepted)
            tier = getattr(result, _MARK, None)
            if self.chooser is not None:
                if tier is not None:
                    self.chooser.verified(tier, accepted)
            elif self._window is not None and tier != OFF and accepted:
                self._window.add(accepted)
        if self._facts.graphs and not getattr(result, "can_run_cuda_graph", True):
            self._graph_misses += 1

    def _settle(self) -> None:
        """Let an idle engine obey at once, instead of with the next request."""
        mine, chooser = self._policy, self.chooser
        if mine is None or chooser is None or mine.controller is None or mine.fault:
            return
        if self._scheduler.running_batch.reqs or chooser.mode is Mode.AUTO:
            # In auto a moment without requests is no reason to move: the next batch decides.
            return
        steps = mine.steps[chooser.settle_idle()]
        if steps == mine.controller.worker.speculative_num_steps:
            return
        # In the stream in which a decode batch would have switched, so that buffers are made and
        # freed in the order in which the GPU uses them.
        stream = getattr(self._scheduler, "forward_stream_ctx", None)
        with stream if stream is not None else contextlib.nullcontext():
            mine.controller._activate(steps)

    def _tier(self) -> TierName | None:
        """What the worker really runs, not what was decided."""
        if self._policy is None or self._policy.controller is None:
            return self._fixed
        return self._names.get(self._policy.controller.worker.speculative_num_steps)

    def _moved(self) -> bool:
        return self.chooser is not None and self.chooser.switches != self._journaled

    def _load(self) -> tuple[int, int, int]:
        scheduler = self._scheduler
        queued = len(scheduler.waiting_queue) + len(scheduler.grammar_manager.grammar_queue)
        return len(scheduler.running_batch.reqs) + self._joining, queued, self._prefilling

    def publish(self) -> None:
        """Write the numbers, and the journal if it grew.

        A defect here ends this rank's numbers, which then show their age, and nothing else: what
        the ranks decide from must go on alike on all of them.
        """
        if self._silent:
            return
        now = time.monotonic_ns()
        try:
            if self._moved():
                self._write_journal(now)
            self._file.write("live", to_json(self._live()), now)
        except Exception:
            self._silent = True
            log.exception("specdeck: this rank stops publishing: its numbers will show their age")
        self._published_ns = now

    def _live(self) -> dict[str, object]:
        self._shown = load = self._load()
        running, queued, prefilling = load
        pool = self._scheduler.pool_stats_observer.get_pool_stats()
        used, evictable = int(pool.full_num_used), int(pool.full_evictable_size)
        # SGLang counts the reserve of running requests as used; it is shown apart.
        reserve = min(max(used, 0), running * self._reserve)
        chooser = self.chooser
        window = self._window if chooser is None else chooser.window
        return {
            "tier": self._tier(),
            "wanted": None if chooser is None or chooser.mode is Mode.AUTO else chooser.wanted,
            "step": self._decode_steps,
            "applied_epoch": 0 if chooser is None else chooser.epoch,
            "applied_generation": 0 if chooser is None else chooser.generation,
            "running": running,
            "queued": queued,
            "prefilling": prefilling,
            "kv": {
                "capacity": used + evictable + int(pool.full_available_size),
                "committed": max(0, used - reserve),
                "evictable": max(0, evictable),
                "reserve": reserve,
            },
            "accept": None if window is None or window.tier == OFF else window.record(),
            "decode_tokens": self._decode_tokens,
            "decode_steps": self._decode_steps,
            "verify_steps": self._verify_steps,
            "prefill_tokens": self._prefill_tokens,
            "retractions": self._retractions,
            "graph_misses": self._graph_misses,
            "switches": 0 if chooser is None else chooser.switches,
            "journal_first": 1 if chooser is None else chooser.journal_first,
            "refused": self._refused,
            "fault": "" if self._policy is None else self._policy.fault,
            "hook_us": self._hook_ns / 1000 / self._hook_batches if self._hook_batches else None,
        }

    def _write_journal(self, now_ns: int) -> None:
        chooser = self.chooser
        if chooser is None:
            return
        at = time.time_ns() // 1_000_000
        for entry in chooser.journal_since(self._journaled):
            stamped: JournalEntry = entry.model_copy(update={"at_utc_ms": at})
            self._journal.append(stamped.model_dump_json().encode())
            log.info(
                "specdeck: tier %s -> %s (%s, batch %d, step %d)",
                entry.from_tier,
                entry.to_tier,
                entry.reason,
                entry.batch,
                entry.step,
            )
        self._journaled = chooser.switches
        self._file.write("journal", b"[" + b",".join(self._journal) + b"]", now_ns)
