"""One benchmark: its task, what it tells while it runs, and what it stores."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from controlplane.bench_records import BenchFile, BenchPoint
from controlplane.benchrun_costs import table_after
from controlplane.benchrun_flow import FlowError, FlowProcess
from controlplane.benchrun_live import LiveSubject
from controlplane.benchrun_messages import BenchRequest, BenchState, BenchStatus
from controlplane.benchrun_plan import make_plan
from controlplane.benchrun_refine import chooser
from controlplane.benchrun_stored import marker, point_record
from controlplane.benchrun_subject import StoppedError
from controlplane.benchrun_sweep import Sweep
from controlplane.benchrun_window import Load
from controlplane.clock import SystemClock
from controlplane.errors import ProblemError
from controlplane.load_reports import FlowSettings
from controlplane.runner import Runner
from controlplane.setup_key import setup_key
from store.db import Record, Store
from store.errors import StoreError
from store.measurements import CostTable
from store.records import AuditEntry

log = logging.getLogger("specdeck.bench")

TELL_EVERY_MS = 500
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
        dp_size = facts.identity.dp_size if facts.identity is not None else 1
        most = {
            tier.name: tier.max_batch * dp_size
            for tier in facts.tiers
            if tier.max_batch is not None
            and (facts.identity is None or tier.max_batch != facts.identity.max_running_requests)
        }
        plan = make_plan(
            tiers, loads, request.repeats, request.budget_s, request.window_s, most=most
        )
        sweep = Sweep(
            subjects=dict.fromkeys(tiers, subject),
            plan=plan,
            budget_s=request.budget_s,
            clock=self._clock,
            changed=self._changed,
            chooser=chooser(tiers, loads, plan.window_s, most=most),
            allow_traffic=request.allow_traffic,
            lengths=(None, None) if varied else (request.input_len, request.output_len),
        )
        busiest = max(load.clients for load in loads)
        sweep.notes += request.notes
        sweep.notes += [
            f"{tier} serves at most {limit} requests here: it was not measured above"
            for tier, limit in most.items()
            if tier in tiers and limit < busiest
        ]
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
            stream_interval=request.stream_interval,
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
        facts, costs = self._runner.pilot.facts, self._runner.known.costs.told
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
