"""One rank: takes commands out of SGLang's broadcast, feeds the chooser, publishes numbers.

Lives in a scheduler process.  Everything here runs inside the scheduler's loop, so it is counted in
microseconds, and nothing of it may raise into the loop.  Decisions use counts only; the clock is
used for one thing, to publish less often.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from engine_patch import adapter_cold as cold
from engine_patch import shm
from engine_patch.accept_window import Window
from engine_patch.adapter_facts import reserve_per_request
from engine_patch.adapter_orders import Orders
from engine_patch.adapter_pages import Pages
from engine_patch.adapter_tiers import TierController
from engine_patch.chooser import Chooser
from engine_patch.contract_words import Mode, OffFlavour
from engine_patch.published import RankFacts
from engine_patch.step_times import StepTimes
from engine_patch.tier import OFF, TierName
from engine_patch.wire import Number

log = logging.getLogger("specdeck")

PUBLISH_NS = 50_000_000
"""Numbers are published at most every 50 ms while batches run, and at once on a change of tier."""
IDLE_NS = 200_000_000
"""While nothing runs they are published every 200 ms, so that their age shows a living rank."""
CONTEXT_STEPS = 16
"""Decode steps between two readings of the requests' lengths."""
_MARK = "specdeck_tier"
"""Attribute put on a batch result: the tier that produced it."""


class Rank:
    """The bookkeeping of one scheduler process.

    Args:
        scheduler: SGLang's scheduler, complete.
        file: the rank's shared memory.
        facts: what does not change.
        mine: our controller, None where SGLang runs one fixed shape or none.
    """

    def __init__(
        self, scheduler: Any, file: shm.RankFile, facts: RankFacts, mine: TierController | None
    ) -> None:
        self._scheduler = scheduler
        self._file = file
        self._tiers = mine
        self._facts = facts
        self.chooser: Chooser | None = None
        if mine is not None and not facts.unsupported:
            self.chooser = mine.chooser = Chooser(
                mine.tiers,
                mine.launch,
                largest_batch=mine.limits,
                page_size=facts.identity.page_size,
                reserve_follows=facts.reserve_follows,
                dp_rank=facts.dp_rank,
            )
            mine.free_slots = self._free_slots
        # Without a chooser the rank still reports the fixed shape it runs.
        self._fixed: TierName | None = facts.launch_tier
        self._window = Window(facts.launch_tier) if facts.launch_tier is not None else None
        self._times = StepTimes()
        self._context = 0.0
        self._decode_steps = self._verify_steps = self._decode_tokens = 0
        self._prefill_tokens = self._retractions = self._graph_misses = 0
        self._prefilling = self._joining = 0
        self._orders = Orders(scheduler, mine, self._free_slots)
        self._silent = False
        self._pages = Pages(file)
        self._published_ns = 0
        self._shown: tuple[Any, ...] = ()
        self._told: TierName | None = None
        self._hook_ns = self._hook_batches = 0
        file.write("facts", facts.model_dump_json().encode(), time.monotonic_ns())
        self.publish()

    # What the scheduler's loop tells us.

    def launching(self, batch: Any) -> None:
        """A batch is about to run."""
        self._joining = 0
        if batch.forward_mode.is_extend():
            self._times.disturb()
            cold.forget(batch.reqs)
            self._prefilling = len(batch.reqs)
            self._prefill_tokens += int(batch.extend_num_tokens or 0)
            # A long prefill says nothing until it is over, so say it now.
            self.publish()

    def launched(self, batch: Any, result: Any) -> None:
        """A batch was launched (with the overlap loop its result is still on the way)."""
        if not batch.forward_mode.is_decode():
            return
        tier = self._tier()
        setattr(result, _MARK, tier)
        if self._tiers is not None and self._tiers.round.flavour is OffFlavour.COLD:
            cold.mark(batch.reqs)
        self._decode_steps += 1
        if tier is not None and tier != OFF:
            self._verify_steps += 1
        self._orders.launched(tier, self._decode_steps, self.chooser)
        if self._moved() or tier != self._told:
            # Now, not when the result of the batch before is there, which is one step later.  A
            # move up is decided with one batch and runs with the next, so both are told.
            self.publish()

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
        due = time.monotonic_ns() - self._published_ns >= PUBLISH_NS
        # The write before a prefill shows its requests as not running yet; a short answer could be
        # half over when the next regular one corrects that.
        if due or self._moved() or (mode.is_extend() and self._load() != self._shown):
            self.publish()
        self._hook_ns += time.perf_counter_ns() - begin

    def idle(self) -> None:
        """Nothing to run in this pass of the loop."""
        self._joining = 0
        self._times.disturb()
        if self._scheduler.chunked_req is None:
            self._prefilling = 0
        self._settle()
        due = time.monotonic_ns() - self._published_ns >= IDLE_NS
        if due or self._moved() or self._load() != self._shown:
            self.publish()

    def retracted(self, requests: int) -> None:
        """Requests were retracted for lack of KV slots."""
        self._retractions += requests
        self._times.disturb()

    def command(self, numbers: Mapping[str, Number]) -> bool:
        """Take an order; whether it was taken."""
        before = self._orders.rebuilt
        taken = self._orders.take(
            numbers, self._facts, self.chooser, tier=self._tier(), step=self._decode_steps
        )
        if self._orders.rebuilt != before:
            self._times.disturb()
        self.publish()
        return taken

    # Inside.

    def _free_slots(self) -> int:
        """KV slots that a larger reserve could take: the same on all ranks of a replica."""
        pool = self._scheduler.pool_stats_observer.get_pool_stats()
        return int(pool.full_available_size) + int(pool.full_evictable_size)

    def _count(self, batch: Any, result: Any) -> None:
        accepted = getattr(result, "num_correct_drafts_per_req_cpu", None)
        tier = getattr(result, _MARK, None)
        if accepted is None:
            tokens = len(batch.reqs)
        else:
            tokens = sum(accepted) + len(accepted)
            # What a request with a hole in the drafter's KV accepts says nothing about the tier.
            fair = cold.without(accepted, batch.reqs)
            if self.chooser is not None:
                if tier is not None:
                    self.chooser.verified(tier, fair)
            elif self._window is not None and tier != OFF and fair:
                self._window.add(fair)
        self._decode_tokens += tokens
        graph = not self._facts.graphs or bool(getattr(result, "can_run_cuda_graph", True))
        if not graph:
            self._graph_misses += 1
        if batch.reqs and tier is not None and self._facts.tp_rank == 0:
            self._time(tier, batch, tokens, graph=graph)

    def _time(self, tier: TierName, batch: Any, tokens: int, *, graph: bool) -> None:
        if self._decode_steps % CONTEXT_STEPS == 1 or not self._context:
            length = sum(len(r.origin_input_ids) + len(r.output_ids) for r in batch.reqs)
            self._context = length / len(batch.reqs)
        bridging = self._tiers is not None and self._tiers.round.bridge
        if bridging:
            self._times.disturb()
            return
        self._times.result(
            tier, len(batch.reqs), tokens, self._context, time.monotonic_ns(), graph=graph
        )

    def _settle(self) -> None:
        """Let an idle engine obey at once, instead of with the next request."""
        mine, chooser = self._tiers, self.chooser
        if mine is None or chooser is None or mine.fault:
            return
        if self._scheduler.running_batch.reqs or chooser.mode is Mode.AUTO:
            # In auto a moment without requests is no reason to move: the next batch decides.
            return
        tier = chooser.settle_idle()
        # In the stream in which a decode batch would have switched, so that buffers are made and
        # freed in the order in which the GPU uses them.
        stream = getattr(self._scheduler, "forward_stream_ctx", None)
        if tier != mine.active or tier != mine.announced:
            with stream if stream is not None else contextlib.nullcontext():
                mine.settle(tier)
            self._orders.obeyed_idle()

    def _tier(self) -> TierName | None:
        """What the worker really runs, not what was decided."""
        return self._fixed if self._tiers is None else self._tiers.active

    def _moved(self) -> bool:
        return self.chooser is not None and self.chooser.switches != self._pages.journaled

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
            if self.chooser is not None and self._moved():
                self._pages.write_journal(self.chooser, now)
            self._file.write("live", to_json(self._live()), now)
            self._pages.write_costs(self._times, now)
        except Exception:
            self._silent = True
            log.exception("specdeck: this rank stops publishing: its numbers will show their age")
        self._published_ns = now

    def _live(self) -> dict[str, object]:
        self._shown = load = self._load()
        self._told = self._tier()
        running, queued, prefilling = load
        pool = self._scheduler.pool_stats_observer.get_pool_stats()
        used, evictable = int(pool.full_num_used), int(pool.full_evictable_size)
        # SGLang counts the reserve of running requests as used; it is shown apart.
        held = reserve_per_request() if self._facts.identity.algorithm is not None else 0
        reserve = min(max(used, 0), running * held)
        mine = self._tiers
        off = mine.off if mine is not None and OFF in mine.states else None
        chooser, orders = self.chooser, self._orders
        window = self._window if chooser is None else chooser.window
        return {
            "tier": self._told,
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
            "refused": orders.refused,
            "needed_slots": orders.needed_slots,
            "free_slots": orders.free_slots,
            "fault": "" if mine is None else mine.fault,
            "off_flavour": None
            if off is None
            else off.flavour(None if chooser is None else chooser.off_flavour),
            "keep_reason": "" if off is None else off.keep_reason,
            "bridges": 0 if mine is None else mine.bridges,
            "cold_requests": cold.count(self._scheduler.running_batch.reqs),
            "rebuilt_requests": orders.rebuilt,
            "confirm_steps": orders.confirm_steps,
            "hook_us": self._hook_ns / 1000 / self._hook_batches if self._hook_batches else None,
        }
