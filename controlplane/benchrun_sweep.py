"""Measures a plan window by window: changes tier, then load, waits until both hold, looks.

What is measured is a **subject**: a live server whose tiers are switched under the load, or one of
two servers that take turns.  The sweep knows no control plane and no store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from controlplane.bench_records import BenchPoint
from controlplane.benchrun_flow import FlowProcess
from controlplane.benchrun_plan import RAMP_S, Plan, Run, cost_s
from controlplane.benchrun_refine import Chooser
from controlplane.benchrun_steady import saw_a_request
from controlplane.benchrun_subject import Progress, StoppedError, Subject
from controlplane.benchrun_window import Load, Window, foreign, measured
from controlplane.clock import Clock

SETTLE_S = 0.3
"""Seconds between a confirmed tier and the window: steps of the old tier are still under way."""
RAMP_MOST_S = 15.0
RAMP_STEP_S = 2.0
LONGER_MOST_S = 60.0
"""Seconds a window may go on beyond its length, until it has seen whole requests."""
RETRIES = 2
BACK_S = 60.0
"""Seconds an engine that went away gets to come back."""
TRAFFIC_RUNS = 2
"""Windows in a row with requests of others after which a benchmark gives way."""
TICK_S = 0.1


@dataclass
class Sweep:
    """One sweep over a plan.

    Args:
        subjects: the subject of each tier.
        budget_s: seconds it may take in all, counted from ``run``.
        allow_traffic: go on beside requests of others.
        lengths: input and output tokens, None where they vary.
        chooser: picks the load of each further pass.
        changed: called after each change of progress, with a point once there is one.
    """

    subjects: Mapping[str, Subject]
    plan: Plan
    budget_s: float
    clock: Clock
    changed: Callable[[BenchPoint | None], None]
    chooser: Chooser
    allow_traffic: bool = False
    lengths: tuple[int | None, int | None] = (None, None)
    progress: Progress = field(default_factory=Progress)
    points: list[BenchPoint] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _done: list[Run] = field(default_factory=list)
    _tier: str | None = None
    _load: Load | None = None
    _flow: FlowProcess | None = None
    _pinned_ms: float = 0.0
    _ramped: bool = True
    _ends_ms: int = 0
    _traffic: int = 0

    async def run(self) -> None:
        """Warm up, measure the plan, then spend what time is left where it tells most.

        Raises:
            StoppedError: it cannot go on; what was measured until then stays in ``points``.
            FlowError: the load cannot be made.
        """
        self._ends_ms = self.clock.mono_ms() + round(self.budget_s * 1000)
        self.progress.total = len(self.plan.runs)
        await self._warm_up()
        for place, run in enumerate(self.plan.runs):
            if self._left_s() < self.plan.window_s:
                self._note(
                    f"the budget ended after {len(self._done)} of {self.progress.total} runs"
                )
                return
            await self._measure(run, self.plan.runs[place + 1 :])
        await self._refine()

    async def _refine(self) -> None:
        while (more := self.chooser(self.points, self._done, self._left_s())) is not None:
            if self._cost_s(more.runs, self._load) > self._left_s():
                return
            self.progress.total += len(more.runs)
            for place, run in enumerate(more.runs):
                await self._measure(run, more.runs[place + 1 :], more.reason)

    async def _warm_up(self) -> None:
        """A short load on every tier, unmeasured: the first requests compile and cache."""
        load = self.plan.runs[0].load
        for tier in dict.fromkeys(run.tier for run in self.plan.runs):
            self._say(f"warming up {tier}")
            await self._prepare(Run(tier, load, 0, 0), self.plan.runs)
            await asyncio.sleep(SETTLE_S)

    async def _measure(self, run: Run, rest: Sequence[Run], why: str = "") -> None:
        phase = f"{run.tier} at {run.load.words}, repeat {run.repeat}"
        self._say(f"{phase} ({why})" if why else phase)
        for attempt in range(RETRIES + 1):
            went_away = await self._prepare(run, rest)
            point = None if went_away else await self._window(run, rest)
            if point is not None:
                break
            self._forget()
            if attempt == RETRIES:
                self._note(f"{run.tier} at {run.load.words}: nothing could be measured")
        self._done.append(run)
        self.progress.done += 1
        if point is not None:
            self.points.append(point)
            self.changed(point)
        if self._traffic >= TRAFFIC_RUNS and not self.allow_traffic:
            raise StoppedError(
                "requests of others arrived: the benchmark gave way (--allow-traffic measures "
                "beside them)"
            )

    async def _prepare(self, run: Run, rest: Sequence[Run]) -> bool:
        """Bring the server to the run's tier and load; True if it went away meanwhile."""
        subject = self.subjects[run.tier]
        await self._wait_if_away(subject)
        if self._flow is not None and self._flow is not subject.flow:
            await self._flow.order(None)
            self._load = None
        self._flow = subject.flow
        hold_s = self.plan.window_s + SETTLE_S + RAMP_STEP_S
        confirmed = await subject.pin(run.tier, hold_s)
        if not confirmed and subject.trouble():
            return True
        if self._tier != run.tier:
            self._tier = run.tier
            self._pinned_ms = self.clock.mono_ms()
        if self._load != run.load:
            await subject.flow.order(run.load)
            self._load = run.load
            self._ramped = await self._ramp(subject, run, hold_s, self._spare_s(run, rest))
        await asyncio.sleep(SETTLE_S)
        return bool(subject.trouble())

    async def _ramp(self, subject: Subject, run: Run, hold_s: float, spare_s: float) -> bool:
        """Wait until the load is steady; False if not even all clients had a first token in time.

        Steady is when every client has ended its first, shortened request: only then are the
        contexts as long as they will be.  With arrivals, when the first of them has been answered.
        """
        load = run.load
        identity = subject.facts.identity
        cap = identity.max_running_requests if identity is not None else None
        capped = identity is not None and cap is not None and load.clients > cap * identity.dp_size
        most = RAMP_STEP_S if capped else min(RAMP_MOST_S, max(self._left_s() / 4, 1.0))
        # A load that is warm is waited for no longer than its share of the time allows.
        calm = min(most, RAMP_S + spare_s)
        begun = self.clock.mono_ms()
        warm = settled = False
        if load.rate_s is not None:
            await asyncio.sleep(min(RAMP_STEP_S, self._left_s() / 4))
        while not settled:
            left_s = (calm if warm else most) - (self.clock.mono_ms() - begun) / 1000
            if left_s <= 0:
                break
            done = await subject.flow.until(
                (lambda seen: seen.settled >= max(load.clients, 1))
                if warm
                else (lambda seen: seen.warm >= load.clients),
                min(left_s, RAMP_STEP_S),
            )
            warm, settled = warm or done, warm and done
            # The pin is short and goes along, so that nothing dead holds the engine for long.
            await subject.pin(run.tier, hold_s)
            self._tell()
        if warm and not settled and not capped:
            self._note(
                f"at {load.words} not every client's first request had ended when measuring "
                "began: the first window there may have seen shorter contexts than later ones "
                "(--budget gives it time)"
            )
        # Above the cap nobody waits for all clients: the queue itself is told with the point.
        return warm or capped

    async def _window(self, run: Run, rest: Sequence[Run]) -> BenchPoint | None:
        subject = self.subjects[run.tier]
        subject.look()
        begin, at_utc_ms = self.clock.mono_ms(), self.clock.utc_ms()
        least = begin + self.plan.window_s * 1000
        most = least + self._spare_s(run, rest) * 1000
        held = least
        while (now := self.clock.mono_ms()) < least or (now < most and _part(subject, begin)):
            if subject.trouble():
                return None
            if now > held:
                await subject.pin(run.tier, RAMP_STEP_S + SETTLE_S)
                held = now + RAMP_STEP_S * 1000
            self._tell()
            left_s = (least - now) / 1000 + 0.001
            await asyncio.sleep(min(TICK_S, left_s) if now < least else TICK_S)
        end = self.clock.mono_ms()
        subject.look()
        if not await subject.flow.until(lambda report: report.at_ms >= end, 5.0):
            return None
        samples = subject.samples()
        window = Window(
            tier=run.tier,
            load=run.load,
            begin_ms=begin,
            end_ms=end,
            pinned_ms=self._pinned_ms,
            repeat=run.repeat,
            block=run.block,
            input_len=self.lengths[0],
            output_len=self.lengths[1],
            mean_output=subject.flow.mean_output,
            at_utc_ms=at_utc_ms,
            ramped=self._ramped,
        )
        inside = [one for one in samples if begin <= one.at_mono_ms <= end]
        if len({one.boot_id for one in inside}) > 1 or subject.trouble():
            return None
        in_flight = subject.flow.reports[-1].in_flight
        self._traffic = self._traffic + 1 if foreign(inside, in_flight) else 0
        return measured(window, subject.facts, tuple(subject.flow.reports), samples)

    async def _wait_if_away(self, subject: Subject) -> None:
        """Wait for a server that went away.

        Raises:
            StoppedError: it did not come back.
        """
        trouble = subject.trouble()
        if not trouble:
            return
        self._forget()
        self._note(f"the engine went away ({trouble}); the run under way was measured again")
        self._say("waiting for the engine")
        until = self.clock.mono_ms() + BACK_S * 1000
        while subject.trouble():
            if self.clock.mono_ms() > until or self._left_s() <= 0:
                raise StoppedError(f"the engine did not come back: {trouble}")
            self._tell()
            await asyncio.sleep(TICK_S)

    def _forget(self) -> None:
        """Pin and ramp anew: after a restart nothing that was reached still holds."""
        self._tier, self._load = None, None

    def _spare_s(self, run: Run, rest: Sequence[Run]) -> float:
        """This run's share of the time that it and those after it do not need."""
        spare = self._left_s() - self.plan.window_s - self._cost_s(rest, run.load)
        return min(max(spare, 0.0) / (len(rest) + 1), LONGER_MOST_S)

    def _cost_s(self, runs: Sequence[Run], load: Load | None) -> float:
        return cost_s(runs, self.plan.window_s, load, self.plan.switch_s)

    def _left_s(self) -> float:
        return max((self._ends_ms - self.clock.mono_ms()) / 1000, 0.0)

    def _say(self, phase: str) -> None:
        self.progress.phase = phase
        self._tell()

    def _tell(self) -> None:
        self.progress.left_s = self._left_s()
        self.changed(None)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _part(subject: Subject, begin_ms: float) -> bool:
    """Whether what was seen since then is only a part of a request."""
    seen = [report for report in subject.flow.reports if report.at_ms >= begin_ms]
    return not saw_a_request(seen, subject.flow.mean_output)
