"""The loops of the load generator: closed and open, over a fixed plan, bounded."""

from __future__ import annotations

import asyncio
import itertools
import random
import resource
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from controlplane.load_exchange import Shot, make_shots, send
from controlplane.load_http import Connection
from controlplane.load_plan import LoadPhase, Target, Work
from controlplane.load_records import LoadResult, PhaseRecord, RequestRecord, own, summarise

HEARTBEAT_S = 0.02
GIVE_UP_S = 10.0
"""Seconds without one good answer, while requests fail, after which a run gives up."""
_BACKOFF_S = (0.05, 1.0)
_LATENESS_KEPT = 50_000


class UnreachableError(Exception):
    """Nothing answers at the target; the message names it and what to start."""


@dataclass(slots=True)
class _Tally:
    """What a run has seen so far; the only thing the clients write to."""

    began: float
    records: list[RequestRecord] = field(default_factory=list)
    phases: list[PhaseRecord] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    lags: list[float] = field(default_factory=list)
    sent: int = 0
    last_good: float = 0.0

    def now(self) -> float:
        return time.monotonic() - self.began


PhaseSeen = Callable[[PhaseRecord], Awaitable[None]]


async def run(
    target: Target,
    work: Work,
    *,
    keep_requests: bool = True,
    stop: asyncio.Event | None = None,
    on_phase: PhaseSeen | None = None,
) -> LoadResult:
    """Send the work and return what was measured.

    Args:
        keep_requests: also return one record per request; without it only summaries are kept.
        stop: ends the run early when set; requests in flight are abandoned.
        on_phase: called after each phase, for progress.

    Raises:
        UnreachableError: nothing answers at the target.
    """
    context = ssl.create_default_context() if target.tls else None
    connections = [
        Connection(target.host, target.port, tls=context, prefix=target.prefix)
        for _ in range(work.plan.clients)
    ]
    try:
        for connection in connections:
            await connection.open()
    except OSError as error:
        for connection in connections:
            connection.close()
        raise UnreachableError(
            f"nothing answers at {target.url}: {error.strerror or error}"
        ) from None
    loaded = [
        make_shots(connections[0], phase, work, index)
        for index, phase in enumerate(work.plan.phases)
    ]
    started_utc_ms = time.time_ns() // 1_000_000
    tally = _Tally(began=time.monotonic())
    cpu_before = _cpu_s()
    heart = asyncio.create_task(_heartbeat(tally))
    stopped_by = ""
    try:
        stopped_by = await _until_stopped(
            _phases(connections, loaded, work, tally, keep_requests, on_phase), work, stop
        )
    finally:
        heart.cancel()
        for connection in connections:
            connection.close()
    seconds = tally.now()
    return LoadResult(
        target=target.url,
        stream=work.stream,
        started_utc_ms=started_utc_ms,
        seconds=seconds,
        complete=stopped_by == "" or (work.repeat and stopped_by == "max_seconds"),
        stopped_by=stopped_by,
        phases=tuple(tally.phases),
        own=own(_cpu_s() - cpu_before, seconds, tally.lags),
        errors=dict(tally.errors),
        requests=tuple(tally.records) if keep_requests else (),
    )


async def _until_stopped(phases: Awaitable[str], work: Work, stop: asyncio.Event | None) -> str:
    """Wait for the phases, a bound or a stop; says which one ended the run ("" for the phases)."""
    running = asyncio.ensure_future(phases)
    waiter = asyncio.ensure_future(stop.wait()) if stop is not None else None
    watched = {running} if waiter is None else {running, waiter}
    try:
        done, _ = await asyncio.wait(
            watched, timeout=work.bounds.max_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        if running in done:
            return running.result()
        return "stop" if waiter is not None and waiter in done else "max_seconds"
    finally:
        for task in watched:
            task.cancel()
        await asyncio.gather(*watched, return_exceptions=True)


async def _phases(
    connections: list[Connection],
    loaded: list[list[Shot]],
    work: Work,
    tally: _Tally,
    keep: bool,
    on_phase: PhaseSeen | None,
) -> str:
    plan = work.plan.phases
    order: Iterator[LoadPhase] = itertools.cycle(plan) if work.repeat else iter(plan)
    for index, phase in enumerate(order):
        # A single run has everything ready before its first request, so that no phase begins
        # late; an endless one makes each phase's prompts anew, lest a prefix cache answers them.
        shots = (
            loaded[index] if index < len(loaded) else make_shots(connections[0], phase, work, index)
        )
        left = work.bounds.max_requests - tally.sent
        before = len(tally.records)
        mine: list[RequestRecord] = []
        ended_early = ""
        try:
            ended_early = await _phase(connections, index, phase, shots[:left], work, tally)
        finally:
            # Also when cancelled by a bound: what was answered until then is a phase, incomplete.
            mine = tally.records[before:]
            if mine:
                complete = len(mine) == len(phase.requests)
                tally.phases.append(summarise(index, phase.concurrency, mine, complete=complete))
            if not keep:
                del tally.records[before:]
        if on_phase is not None and mine:
            await on_phase(tally.phases[-1])
        if ended_early:
            return ended_early
        if left <= len(phase.requests) and work.repeat:
            return "max_requests"
    return ""


async def _phase(
    connections: list[Connection],
    index: int,
    phase: LoadPhase,
    shots: list[Shot],
    work: Work,
    tally: _Tally,
) -> str:
    """Run one phase; "gave_up" if the server stopped answering, else ""."""
    queue = iter(shots)
    tally.last_good = tally.now()
    arrivals = _arrivals(phase.rate, tally.now(), random.Random(f"{work.seed}/arrivals/{index}"))

    async def client(number: int) -> None:
        connection = connections[number]
        backoff = _BACKOFF_S[0]
        for shot in queue:
            tally.sent += 1
            due = next(arrivals, None)
            if due is None:
                due = tally.now()
            else:
                await asyncio.sleep(max(0.0, due - tally.now()))
                tally.lags.append(max(0.0, tally.now() - due))
            record = await _one(connection, index, number, shot, due, work, tally)
            tally.records.append(record)
            if not record.error:
                tally.last_good = tally.now()
                backoff = _BACKOFF_S[0]
                continue
            tally.errors[record.error] += 1
            if tally.now() - tally.last_good > GIVE_UP_S:
                raise _GaveUpError
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, _BACKOFF_S[1])

    gave_up = False
    try:
        async with asyncio.TaskGroup() as group:
            for number in range(min(phase.concurrency, len(shots))):
                group.create_task(client(number))
    except* _GaveUpError:
        gave_up = True
    return "gave_up" if gave_up else ""


class _GaveUpError(Exception):
    pass


def _arrivals(rate: float | None, start_s: float, generator: random.Random) -> Iterator[float]:
    """Poisson arrival times from ``start_s`` on; none at all for the closed loop."""
    if rate is None:
        return
    at = start_s
    while True:
        at += generator.expovariate(rate)
        yield at


async def _one(
    connection: Connection,
    index: int,
    number: int,
    shot: Shot,
    due: float,
    work: Work,
    tally: _Tally,
) -> RequestRecord:
    sent = tally.now()
    answer = await send(connection, shot, work.bounds.request_timeout_s, tally.now)
    return RequestRecord(
        phase=index,
        client=number,
        prompt_tokens=shot.prompt_tokens,
        due_s=due,
        sent_s=sent,
        first_s=answer.first_s,
        done_s=tally.now(),
        output_tokens=answer.output_tokens,
        accept_length=answer.accept_length,
        verify_steps=answer.verify_steps,
        error=answer.error,
    )


async def _heartbeat(tally: _Tally) -> None:
    """Sleep and see how late the loop wakes: the generator's own lag."""
    while True:
        due = tally.now() + HEARTBEAT_S
        await asyncio.sleep(HEARTBEAT_S)
        if len(tally.lags) >= _LATENESS_KEPT:
            del tally.lags[::2]
        tally.lags.append(max(0.0, tally.now() - due))


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
