"""The embedded engine itself: continuous batching on a virtual clock.  No asyncio, no wall clock.

Scheduling follows SGLang (read in 0.5.17 and 0.5.23, ``managers/scheduler.py``,
``schedule_policy.py``, ``schedule_batch.py``): waiting requests are prefilled before anything is
decoded, in passes of at most the chunk size, as long as running requests and KV slots allow;
otherwise the whole running batch makes one decode step.  When slots run short at the head of a
decode step, the requests with the least output are retracted and computed again later.  The tier of
each decode step comes from the same ``Chooser`` as in the plugin.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from engine_patch.chooser import JOURNAL_LENGTH, Chooser
from engine_patch.contract_commands import ReplicaAnswer
from engine_patch.contract_words import OffFlavour
from engine_patch.embedded.admission import OutputShare, admit
from engine_patch.embedded.config import EngineConfig
from engine_patch.embedded.emission import Emission
from engine_patch.embedded.gauges import Books
from engine_patch.embedded.kv import KvPool
from engine_patch.embedded.passes import Kind, Pass
from engine_patch.embedded.requests import Request
from engine_patch.tier import OFF, TierShape
from engine_patch.wire import RankCommand

__all__ = ["Engine", "EngineConfig", "Kind", "Pass"]


class Engine:
    """One replica.  Deterministic by ``seed`` and the order of calls.

    Args:
        on_pass: called with each pass when it starts.

    Attributes:
        switch_times: virtual time of each entry of the chooser's journal, by its number.
    """

    def __init__(
        self,
        config: EngineConfig,
        seed: int = 1,
        *,
        on_pass: Callable[[Pass], None] | None = None,
    ) -> None:
        self.config = config
        self.now_ms = 0.0
        self.kv = KvPool(config.kv_slots)
        self.books = Books(config)
        self.chooser = Chooser(
            config.tiers,
            config.launch_tier,
            largest_batch=dict.fromkeys(config.tiers, config.max_running_requests),
            reserve_follows=config.reserve_follows,
            dp_rank=config.dp_rank,
        )
        self.arrivals: deque[Request] = deque()
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.current: Pass | None = None
        self.switch_times: dict[int, float] = {}
        self._chunked: Request | None = None
        self._finished: list[Request] = []
        self._noted = 0
        self._share = OutputShare()
        self._on_pass = on_pass
        self._emission = Emission(config, self.chooser, self.books, seed)
        self._steps = {
            tier: config.table.column(tier, config.off_kind).step_times() for tier in config.tiers
        }
        shapes = [TierShape.parse(tier) for tier in config.tiers]
        self._widest = 0 if config.plain else max(shape.reserve() for shape in shapes)
        self._follow_tier()

    # ---- what callers do -------------------------------------------------------------------------

    def submit(self, request: Request) -> Request:
        """Hand over a request; it is seen by the scheduler at its ``arrival_ms``.

        Raises:
            ValueError: it could never run.
        """
        needed = request.prompt + request.output + max(self.kv.per_request, self._widest)
        if request.prompt < 1 or request.output < 1:
            raise ValueError("a request needs at least one prompt token and one output token")
        if needed > self.kv.capacity:
            raise ValueError(
                f"prompt and output need {needed} KV slots, this engine has {self.kv.capacity}"
            )
        if self.arrivals and request.arrival_ms < self.arrivals[-1].arrival_ms:
            later = [*self.arrivals, request]
            later.sort(key=lambda entry: entry.arrival_ms)
            self.arrivals = deque(later)
        else:
            self.arrivals.append(request)
        return request

    @property
    def next_event_ms(self) -> float | None:
        """When something happens next if nothing is submitted; None while idle."""
        if self.current is not None:
            return self.current.end_ms
        if self.arrivals:
            return max(self.now_ms, self.arrivals[0].arrival_ms)
        return None

    def advance(self, until_ms: float) -> list[Request]:
        """Run until a virtual time; returns the requests that left, in that order."""
        while (due := self.next_event_ms) is not None and due <= until_ms:
            self.now_ms = due
            if self.current is not None:
                self._complete(self.current)
            self._begin()
        self.now_ms = max(self.now_ms, until_ms)
        finished, self._finished = self._finished, []
        return finished

    def command(self, command: RankCommand) -> ReplicaAnswer:
        """Take a command; the tier changes at the head of the next decode step."""
        answer = self.chooser.command(
            command, running=len(self.running), free_slots=max(0, self.kv.free)
        )
        if self.current is None:
            self._settle_idle()
        return answer

    def abort_all(self, why: str) -> list[Request]:
        """Take every request out; returns them."""
        # A pass under way counts nothing any more.
        prefilling = self.current.requests if self.prefilling and self.current else []
        self.current = None
        gone = [*self.arrivals, *self.waiting, *prefilling, *self.running]
        for request in gone:
            request.failure = why
            request.finish_ms = self.now_ms
        for request in self.waiting:
            self.kv.release(request.prefilled, keep=False)
        for request in (*prefilling, *self.running):
            self.kv.leave(request.context, keep=False)
        self.arrivals.clear()
        self.waiting.clear()
        self.running = []
        self._chunked = None
        return gone

    def cut(self, request: Request) -> None:
        """End a request early: its caller has gone.  It leaves with its next token."""
        request.output = min(request.output, max(1, request.emitted))

    def hold(self, slots: int) -> None:
        """Take KV slots away, as if something else held them; 0 gives them back."""
        self.kv.held = slots
        self.kv.evict()
        if self.current is None:
            self._begin()

    def set_accept_length(self, accept_length: float) -> None:
        """Change the mean accept length of the chain of three from the next step on."""
        self._emission.set_accept_length(accept_length)

    @property
    def progressed(self) -> list[Request]:
        """Streaming requests that got tokens; the caller empties it."""
        return self._emission.progressed

    @progressed.setter
    def progressed(self, requests: list[Request]) -> None:
        self._emission.progressed = requests

    @property
    def idle(self) -> bool:
        """Whether nothing runs, waits or is on its way."""
        return self.current is None and not self.arrivals

    @property
    def prefilling(self) -> int:
        """Requests in the prefill pass under way."""
        current = self.current
        return len(current.requests) if current and current.kind is Kind.PREFILL else 0

    @property
    def queued(self) -> int:
        """Requests that wait and are not being prefilled."""
        return len(self.waiting) - (1 if self._chunked is not None else 0)

    @property
    def cold_requests(self) -> int:
        """Running requests whose drafter KV has holes."""
        return sum(request.cold for request in self.running)

    # ---- the scheduler ---------------------------------------------------------------------------

    def _begin(self) -> None:
        while self.arrivals and self.arrivals[0].arrival_ms <= self.now_ms:
            self.waiting.append(self.arrivals.popleft())
        started = self._prefill() or self._decode()
        self.current = started
        if started is None:
            self._settle_idle()
        elif self._on_pass is not None:
            self._on_pass(started)

    def _settle_idle(self) -> None:
        self.chooser.settle_idle()
        self._follow_tier()

    def _follow_tier(self) -> None:
        """Note when the chooser switched, and set the reserve of the tier it is on."""
        for number in range(self._noted + 1, self.chooser.switches + 1):
            self.switch_times[number] = self.now_ms
            self.switch_times.pop(number - JOURNAL_LENGTH, None)
        self._noted = self.chooser.switches
        follows = self.config.reserve_follows and not self.config.plain
        self.kv.per_request = (
            self.chooser.reserve_of(self.chooser.tier) if follows else self._widest
        )

    def _prefill(self) -> Pass | None:
        if not self.waiting:
            return None
        batch, chunks = admit(
            self.waiting,
            self.running,
            room=self.config.max_running_requests - self.config.empty_slots - len(self.running),
            chunk_tokens=self.config.table.prefill.chunk_tokens,
            free=self.kv.free,
            reserve=self.kv.per_request,
            share=self._share.now,
        )
        if not batch:
            return None
        for request in batch:
            if request.forward_ms is None:
                request.forward_ms = self.now_ms
        prefill = self.config.table.prefill
        per_token = prefill.plain_token_ms if self.config.plain else prefill.draft_token_ms
        for request, chunk in zip(batch, chunks, strict=True):
            self.kv.commit(chunk)
            request.prefilled += chunk
        self.kv.evict()
        last = batch[-1]
        self._chunked = last if last.prefilled < last.context else None
        whole = len(batch) - (1 if self._chunked is not None else 0)
        # The slots of requests that will run are spoken for from here on.
        for _ in range(whole):
            self.kv.enter()
        self.kv.evict()
        for _ in range(whole):
            self.waiting.popleft()
        duration = prefill.pass_ms + sum(chunks) * per_token
        return Pass(
            Kind.PREFILL,
            self.now_ms,
            self.now_ms + duration,
            self.chooser.tier,
            batch[:whole],
            chunks,
        )

    def _decode(self) -> Pass | None:
        if not self.running:
            return None
        tier = self.chooser.next_tier(len(self.running))
        self._follow_tier()
        self._make_room()
        if not self.running:
            return None
        if tier == OFF and self.chooser.off_flavour is OffFlavour.COLD:
            for request in self.running:
                request.cold = True
        duration = self._steps[tier][len(self.running)]
        return Pass(Kind.DECODE, self.now_ms, self.now_ms + duration, tier, self.running)

    def _make_room(self) -> None:
        """Retract requests until the step fits; the last one is given up if it cannot."""
        before = len(self.running)
        if self._short():
            # Least output goes first, longest prompt among equals.
            self.running.sort(key=lambda entry: (-entry.emitted, entry.prompt))
        while self._short() and len(self.running) > 1:
            request = self.running.pop()
            self.kv.leave(request.context, keep=False)
            request.prefilled = 0
            request.retractions += 1
            self.books.retractions += 1
            self.waiting.append(request)
        if self._short():
            request = self.running.pop()
            self.kv.leave(request.context, keep=False)
            self._leave(request, "out of KV slots even after retracting all other requests")
        self.kv.evict()
        if len(self.running) < before:
            self._share.retracted(self.running)
        else:
            self._share.decay()

    def _short(self) -> bool:
        # Without a reserve (a plain server) each request still needs the slot of its next token.
        spare = len(self.running) if self.kv.per_request == 0 else 0
        return bool(self.running) and self.kv.free < spare

    # ---- results ---------------------------------------------------------------------------------

    def _complete(self, done: Pass) -> None:
        self.current = None
        if done.kind is Kind.PREFILL:
            self._complete_prefill(done)
        else:
            self._complete_decode(done)

    def _complete_prefill(self, done: Pass) -> None:
        self.books.prefilled(done, len(self.running), self.queued, self.kv, self.now_ms)
        for request in done.requests:
            self._emission.one(request)
            self.kv.commit(1)
            request.prefilled = request.context
            if request.first_token_ms is None:
                request.first_token_ms = self.now_ms
            if request.emitted >= request.output:
                self.kv.leave(request.context, keep=not request.cold)
                self._leave(request)
            else:
                self.running.append(request)
        self.kv.evict()

    def _complete_decode(self, done: Pass) -> None:
        emitted = self._emission.decode(done)
        self.kv.commit(emitted)
        finished = [entry for entry in self.running if entry.emitted >= entry.output]
        if finished:
            self.running = [entry for entry in self.running if entry.emitted < entry.output]
            for request in finished:
                self.kv.leave(request.context, keep=not request.cold)
                self._leave(request)
        self.kv.evict()
        self.books.decoded(
            done,
            emitted,
            running=len(self.running),
            queued=self.queued,
            kv=self.kv,
            now_ms=self.now_ms,
        )

    def _leave(self, request: Request, failure: str = "") -> None:
        request.failure = failure
        request.finish_ms = self.now_ms
        self._finished.append(request)
        self.books.left(request)
