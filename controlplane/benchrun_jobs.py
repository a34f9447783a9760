"""Benchmarks of the running control plane: at most one per engine, each a task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from controlplane.benchrun_check import check
from controlplane.benchrun_job import Job
from controlplane.benchrun_messages import BenchRequest, BenchState, BenchStatus
from controlplane.benchrun_stored import marker, stored
from controlplane.clock import SystemClock
from controlplane.errors import ProblemError
from controlplane.runner import Runner
from controlplane.setup_key import setup_key
from store.db import Record, Store
from store.errors import StoreError
from store.records import AuditEntry

KEPT = 20
"""Ended benchmarks of one engine kept in memory; older ones are read from the store."""


class Benchmarks:
    """All benchmarks of a control plane.

    Args:
        api_key: SGLang's API key of an engine.
        read_files: whether prompts may be read from files of this machine.
    """

    def __init__(
        self,
        store: Store,
        clock: SystemClock,
        *,
        api_key: Callable[[str], str | None],
        longest_s: float,
        read_files: bool,
    ) -> None:
        self._store = store
        self._clock = clock
        self._api_key = api_key
        self._longest_s = longest_s
        self._read_files = read_files
        self._jobs: dict[str, list[Job]] = {}
        self._starting: set[str] = set()

    async def start(self, runner: Runner, request: BenchRequest, author: str) -> BenchStatus:
        """Begin a benchmark.

        Raises:
            ProblemError: the engine cannot be measured now, or the request is not possible.
        """
        engine_id = runner.engine_id
        if engine_id in self._starting or self.running(engine_id) is not None:
            raise ProblemError(
                409, "benchmark_running", f"a benchmark of {engine_id} runs already: cancel it"
            )
        self._starting.add(engine_id)
        try:
            facts = await check(runner, request, read_files=self._read_files)
            status = BenchStatus(
                id=self._name(engine_id),
                engine_id=engine_id,
                state=BenchState.RUNNING,
                author=author,
                reason=request.reason,
                request=request,
                setup_key=setup_key(facts),
                simulated=facts.simulated,
                started_utc_ms=self._clock.utc_ms(),
                phase="starting",
            )
            await self._begin(runner, status)
            job = Job(
                runner,
                request,
                status,
                store=self._store,
                clock=self._clock,
                api_key=self._api_key(engine_id),
                longest_s=self._longest_s,
            )
        finally:
            self._starting.discard(engine_id)
        jobs = self._jobs.setdefault(engine_id, [])
        jobs.append(job)
        del jobs[:-KEPT]
        return job.status

    def running(self, engine_id: str) -> Job | None:
        """The benchmark that runs on an engine now."""
        return next((job for job in self._jobs.get(engine_id, ()) if job.running), None)

    def job(self, engine_id: str, name: str) -> Job | None:
        """A benchmark of this process."""
        return next((j for j in self._jobs.get(engine_id, ()) if j.status.id == name), None)

    async def all(self, runner: Runner) -> list[BenchStatus]:
        """Every benchmark of an engine's present setup, newest first, earlier processes' too."""
        mine = [job.status for job in self._jobs.get(runner.engine_id, ())]
        facts = runner.pilot.facts
        earlier: list[BenchStatus] = []
        if facts is not None:
            key = setup_key(facts)
            earlier = await asyncio.to_thread(stored, self._store, runner.engine_id, key)
        known = {one.id for one in mine}
        found = [one for one in earlier if one.id not in known] + mine
        return sorted(found, key=lambda one: one.started_utc_ms, reverse=True)

    async def one(self, runner: Runner, name: str) -> BenchStatus:
        """One benchmark.

        Raises:
            ProblemError: 404.
        """
        job = self.job(runner.engine_id, name)
        if job is not None:
            return job.status
        for status in await self.all(runner):
            if status.id == name:
                return status
        raise ProblemError(
            404,
            "unknown_benchmark",
            f"engine {runner.engine_id} has no benchmark {name!r} with its present setup",
        )

    async def cancel(self, runner: Runner, name: str, author: str) -> BenchStatus:
        """End a running benchmark; the engine goes back to what it did before.

        Raises:
            ProblemError: 404, or 409 if it has ended already.
        """
        status = await self.one(runner, name)
        job = self.job(runner.engine_id, name)
        if job is None or not job.running:
            raise ProblemError(
                409, "benchmark_ended", f"benchmark {name} has ended already: {status.state.value}"
            )
        await job.cancel(author)
        return job.status

    async def close(self) -> None:
        """End all of them, so that no load and no pin outlives the control plane."""
        running = [job for jobs in self._jobs.values() for job in jobs if job.running]
        await asyncio.gather(*(job.cancel("") for job in running), return_exceptions=True)

    def _name(self, engine_id: str) -> str:
        moment = datetime.fromtimestamp(self._clock.utc_ms() / 1000, UTC)
        name = moment.strftime("%Y%m%d-%H%M%S")
        while self.job(engine_id, name) is not None:
            name += "b"
        return name

    async def _begin(self, runner: Runner, status: BenchStatus) -> None:
        tick = runner.status().tick
        seq = tick.observation.seq if tick is not None else 0
        request = status.request
        assert request is not None
        loads = request.rates_s or request.concurrency
        entry = AuditEntry(
            at_utc_ms=status.started_utc_ms,
            actor=status.author,
            action="benchmark.start",
            target=status.engine_id,
            detail=f"{status.id} at {', '.join(f'{one:g}' for one in loads)}: {request.reason}",
        )
        try:
            records: list[Record] = [marker(status, status.started_utc_ms, seq), entry]
            await asyncio.wrap_future(self._store.write(records))
        except StoreError as error:
            raise ProblemError(
                503, "store_failed", f"not started, because it cannot be recorded: {error}"
            ) from error
