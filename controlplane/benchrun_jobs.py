"""Benchmarks of the running control plane: at most one per engine, each a task of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

from controlplane.bench_records import BenchFile, BenchPoint
from controlplane.benchrun_check import check
from controlplane.benchrun_costs import table_after
from controlplane.benchrun_flow import FlowError, FlowProcess
from controlplane.benchrun_live import LiveSubject
from controlplane.benchrun_messages import BenchRequest, BenchState, BenchStatus
from controlplane.benchrun_plan import make_plan
from controlplane.benchrun_refine import chooser
from controlplane.benchrun_stored import marker, point_record, stored
from controlplane.benchrun_sweep import StoppedError, Sweep
from controlplane.benchrun_window import Load
from controlplane.clock import SystemClock
from controlplane.errors import ProblemError
from controlplane.load_reports import FlowSettings
from controlplane.runner import Runner
from controlplane.setup_key import setup_key
from store.db import Record, Store
from store.errors import StoreError
from store.records import AuditEntry, CostTable

log = logging.getLogger("specdeck.bench")

TELL_EVERY_MS = 500
KEPT = 20
"""Ended benchmarks of one engine kept in memory; older ones are read from the store."""
MARGIN_S = 120.0


class Job:
    """One benchmark."""

    def __init__(
        self,
        runner: Runner,
        request: BenchRequest,
        status: BenchStatus,
        *,
        store: Store,
        clock: SystemClock,
        api_key: str | None,
        longest_s: float,
    ) -> None:
        self.status = status
        self.version = 0
        self._runner = runner
        self._request = request
        self._store = store
        self._clock = clock
        self._api_key = api_key
        self._longest_s = longest_s
        self._began_ms = clock.mono_ms()
        self._told_ms = 0
        self._news = asyncio.Event()
        self._cancelled_by = ""
        self._sweep: Sweep | None = None
        self._writes: set[asyncio.Task[None]] = set()
        self.task = asyncio.create_task(self._run(), name=f"benchmark {status.id}")

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self.status.state is BenchState.RUNNING

    async def cancel(self, by: str) -> None:
        """End it now and wait until the engine is released."""
        if self.running:
            self._cancelled_by = by
            self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def after(self, version: int, silence_s: float) -> bool:
        """Wait until the status is newer than ``version``; False after ``silence_s``."""
        try:
            async with asyncio.timeout(silence_s):
                while self.version <= version:
                    news = self._news
                    await news.wait()
        except TimeoutError:
            return False
        return True

    async def _run(self) -> None:
        flow: FlowProcess | None = None
        subject: LiveSubject | None = None
        state, message = BenchState.DONE, ""
        try:
            flow = await FlowProcess.start(self._flow_settings())
            self._set(prompts=flow.prompts)
            subject = self._subject(flow)
            await self._measure(subject)
        except asyncio.CancelledError:
            state = BenchState.CANCELLED
            message = f"cancelled by {self._cancelled_by or 'the control plane, which ended'}"
        except (StoppedError, FlowError) as error:
            state, message = BenchState.STOPPED, str(error)
        except Exception as error:
            log.exception("benchmark %s failed", self.status.id)
            state, message = BenchState.STOPPED, f"{type(error).__name__}: {error}"
        finally:
            # Shielded by being short: the engine must be let go whatever ended the benchmark.
            await self._end(flow, subject, state, message)

    async def _measure(self, subject: LiveSubject) -> None:
        request = self._request
        facts = subject.facts
        tiers = request.tiers or tuple(tier.name for tier in facts.tiers)
        loads = [Load(0, rate) for rate in request.rates_s] or [
            Load(clients) for clients in sorted(request.concurrency)
        ]
        varied = request.prompts.partition(":")[0] in ("sharegpt", "lengths")
        plan = make_plan(tiers, loads, request.repeats, request.budget_s, request.window_s)
        sweep = Sweep(
            subjects=dict.fromkeys(tiers, subject),
            plan=plan,
            budget_s=request.budget_s,
            clock=self._clock,
            changed=self._changed,
            chooser=chooser(tiers, loads, plan.window_s),
            allow_traffic=request.allow_traffic,
            lengths=(None, None) if varied else (request.input_len, request.output_len),
        )
        self._sweep = sweep
        await sweep.run()

    def _subject(self, flow: FlowProcess) -> LiveSubject:
        name = f"bench {self.status.author}"
        return LiveSubject(
            self._runner,
            flow,
            self._clock,
            author=name,
            reason=f"benchmark {self.status.id}",
            longest_s=self._longest_s,
        )

    def _flow_settings(self) -> FlowSettings:
        request = self._request
        return FlowSettings(
            url=self._runner.settings.url,
            api_key=self._api_key,
            prompts=request.prompts,
            input_len=request.input_len,
            output_len=request.output_len,
            seed=request.seed,
            max_seconds=min(request.budget_s + MARGIN_S, 86_400.0),
        )

    def _changed(self, point: BenchPoint | None) -> None:
        sweep = self._sweep
        assert sweep is not None
        facts = self._runner.pilot.facts
        if facts is not None and setup_key(facts) != self.status.setup_key:
            raise StoppedError("the engine came back with another setup: its points would not fit")
        if point is not None:
            self._write([point_record(self.status, point)])
        now = self._clock.mono_ms()
        same = sweep.progress.phase == self.status.phase
        if point is None and same and now - self._told_ms < TELL_EVERY_MS:
            return
        self._told_ms = now
        self._set(
            phase=sweep.progress.phase,
            done_runs=sweep.progress.done,
            total_runs=sweep.progress.total,
            left_s=sweep.progress.left_s,
            notes=tuple(sweep.notes),
            points=tuple(sweep.points),
        )

    async def _end(
        self,
        flow: FlowProcess | None,
        subject: LiveSubject | None,
        state: BenchState,
        message: str,
    ) -> None:
        client: tuple[str, ...] = ()
        if subject is not None:
            with suppress(ProblemError):
                await subject.release()
        if flow is not None:
            client = (flow.account(),)
            await flow.close()
        now = self._clock.utc_ms()
        self._set(
            state=state,
            message=message,
            phase="ended",
            ended_utc_ms=now,
            left_s=None,
            client=client,
            notes=tuple(self._sweep.notes) if self._sweep is not None else (),
            points=tuple(self._sweep.points) if self._sweep is not None else (),
        )
        tick = self._runner.status().tick
        seq = tick.observation.seq if tick is not None else 0
        records: list[Record] = [marker(self.status, now, seq)]
        records.append(
            AuditEntry(
                at_utc_ms=now,
                actor=self.status.author,
                action="benchmark.end",
                target=self.status.engine_id,
                detail=f"{self.status.id} {state.value} {message}".strip(),
            )
        )
        table = await self._table(now)
        if table is not None:
            records.append(table)
        self._write(records)
        await asyncio.gather(*self._writes, return_exceptions=True)

    async def _table(self, now_utc_ms: int) -> CostTable | None:
        facts, costs = self._runner.pilot.facts, self._runner.pilot.costs
        key = self.status.setup_key
        if facts is None or setup_key(facts) != key:
            # What the engine tells now belongs to another setup.
            costs = ()
        dp_size = facts.identity.dp_size if facts is not None and facts.identity is not None else 1
        try:
            earlier = await asyncio.to_thread(self._store.cost_table, key)
            return table_after(file_of(self.status), costs, earlier, now_utc_ms, dp_size)
        except (StoreError, ValueError):
            log.exception("benchmark %s leaves no step-cost table", self.status.id)
            return None

    def _set(self, **changes: object) -> None:
        elapsed = (self._clock.mono_ms() - self._began_ms) / 1000
        self.status = self.status.model_copy(update={"elapsed_s": elapsed} | changes)
        self.version += 1
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _write(self, records: list[Record]) -> None:
        async def write() -> None:
            try:
                await asyncio.wrap_future(self._store.write(records))
            except StoreError as error:
                log.error("benchmark %s is not recorded: %s", self.status.id, error)

        task = asyncio.create_task(write())
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)


class Benchmarks:
    """All benchmarks of a control plane.

    Args:
        api_keys: SGLang's API key by engine id.
        read_files: whether prompts may be read from files of this machine.
    """

    def __init__(
        self,
        store: Store,
        clock: SystemClock,
        *,
        api_keys: Mapping[str, str | None],
        longest_s: float,
        read_files: bool,
    ) -> None:
        self._store = store
        self._clock = clock
        self._api_keys = api_keys
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
                api_key=self._api_keys.get(engine_id),
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


def file_of(status: BenchStatus) -> BenchFile:
    """The results file of a benchmark."""
    return BenchFile(
        engine_id=status.engine_id,
        setup_key=status.setup_key,
        created_utc_ms=status.ended_utc_ms or status.started_utc_ms,
        simulated=status.simulated,
        complete=status.state is BenchState.DONE,
        client=status.client,
        notes=(*status.notes, *([status.message] if status.message else [])),
        points=status.points,
    )
