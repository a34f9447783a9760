"""Two servers that take turns: one plain, one speculating.  For SGLang without the plugin.

Nothing is switched and nothing is claimed: each server runs what it was started with, and only the
one that is measured has load.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from controlplane.bench_records import PLAIN, BenchFile, BenchPoint
from controlplane.benchrun_flow import FlowProcess
from controlplane.benchrun_messages import BenchRequest
from controlplane.benchrun_plan import RAMP_S, SWITCH_S, make_plan
from controlplane.benchrun_refine import chooser
from controlplane.benchrun_subject import Progress, StoppedError
from controlplane.benchrun_sweep import Sweep
from controlplane.benchrun_window import Load
from controlplane.capabilities import cap_note
from controlplane.clock import SystemClock
from controlplane.engine import EngineClient
from controlplane.load_reports import FlowSettings
from controlplane.polled import EngineError
from engine_patch.tier import OFF, TierShape
from store.observations import EngineFacts, Gap, Sample

POLL_S = 0.25
INFO_S = 5.0
"""Seconds the shape of a speculating server may take to be known: it comes by a slow question."""
TURN_S = SWITCH_S + RAMP_S
"""Seconds until the other server runs its load: it begins anew at each turn."""
STOPPED = "interrupted"


class ServerSubject:
    """One server, as it was started.

    Args:
        tier: what it runs: ``plain``, or the shape it speculates with.
    """

    def __init__(
        self, tier: str, client: EngineClient, flow: FlowProcess, clock: SystemClock
    ) -> None:
        self.tier = tier
        self.flow = flow
        self._client = client
        self._clock = clock
        self._samples: deque[Sample] = deque(maxlen=2000)
        self._gap = ""
        self._wake = asyncio.Event()
        self._seq = 0
        self._polling = asyncio.create_task(self._poll())

    @property
    def facts(self) -> EngineFacts:
        """What is known of the server."""
        facts = self._client.facts
        assert facts is not None, "a server is measured after its handshake"
        return facts

    async def pin(self, tier: str, hold_s: float) -> bool:  # noqa: ARG002  (nothing to hold)
        """It always runs what it was started with."""
        return tier == self.tier

    def samples(self) -> Sequence[Sample]:
        """See ``Subject``."""
        return tuple(self._samples)

    def trouble(self) -> str:
        """See ``Subject``."""
        return self._gap

    def look(self) -> None:
        """See ``Subject``."""
        self._wake.set()

    async def close(self) -> None:
        """End its load and its connections."""
        self._polling.cancel()
        await asyncio.gather(self._polling, return_exceptions=True)
        await self.flow.close()
        await self._client.aclose()

    async def _poll(self) -> None:
        while True:
            self._seq += 1
            seen = (await self._client.poll(self._seq)).observation
            if isinstance(seen, Gap):
                self._gap = seen.message
            else:
                self._gap = ""
                self._samples.append(seen)
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._wake.wait()


def shape_of(facts: EngineFacts) -> str | None:
    """The tier a server was started with; None if it speculates in no shape that it tells."""
    if facts.launch_tier is not None:
        return facts.launch_tier
    algorithm = facts.identity.algorithm if facts.identity is not None else None
    return OFF if facts.identity is not None and algorithm is None else None


async def measure(
    plain_url: str,
    spec_url: str,
    request: BenchRequest,
    *,
    api_key: str | None,
    told: Callable[[Progress, BenchPoint | None], None],
    stop: asyncio.Event,
    spec_tier: str | None = None,
) -> BenchFile:
    """Measure both in turns: A B B A at each load.

    Args:
        told: called with the progress, and with each point.
        stop: ends it early; what was measured is kept.
        spec_tier: the second server's shape, where it does not tell it.

    Raises:
        StoppedError, FlowError, EngineError: it cannot begin; the text says why.
    """
    clock = SystemClock()
    subjects: dict[str, ServerSubject] = {}
    try:
        subjects[PLAIN] = await _subject(PLAIN, plain_url, request, api_key, clock)
        second = await _subject(spec_tier, spec_url, request, api_key, clock)
        subjects[second.tier] = second
        notes = [*request.notes, *_notes(subjects)]
        await _check_idle(subjects, request)
        loads = [Load(0, rate) for rate in request.rates_s] or [
            Load(clients) for clients in sorted(request.concurrency)
        ]
        tiers = tuple(subjects)
        plan = make_plan(tiers, loads, request.repeats, request.budget_s, request.window_s, TURN_S)
        varied = request.prompts.partition(":")[0] in ("sharegpt", "lengths")

        def changed(point: BenchPoint | None) -> None:
            told(sweep.progress, point)

        sweep = Sweep(
            subjects=dict(subjects),
            plan=plan,
            budget_s=request.budget_s,
            clock=clock,
            changed=changed,
            chooser=chooser(tiers, loads, plan.window_s, plan.switch_s),
            allow_traffic=request.allow_traffic,
            lengths=(None, None) if varied else (request.input_len, request.output_len),
        )
        message = await _run(sweep, stop)
        return BenchFile(
            created_utc_ms=clock.utc_ms(),
            simulated=any(one.facts.simulated for one in subjects.values()),
            complete=not message,
            client=tuple(f"{name}: {one.flow.account()}" for name, one in subjects.items()),
            notes=(*notes, *sweep.notes, *([message] if message else [])),
            points=tuple(sweep.points),
        )
    finally:
        await asyncio.gather(*(one.close() for one in subjects.values()), return_exceptions=True)


async def _run(sweep: Sweep, stop: asyncio.Event) -> str:
    running = asyncio.create_task(sweep.run())
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not running.done():
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return STOPPED
    try:
        running.result()
    except StoppedError as error:
        return str(error)
    return ""


async def _subject(
    tier: str | None, url: str, request: BenchRequest, api_key: str | None, clock: SystemClock
) -> ServerSubject:
    client = EngineClient(url, url, api_key=api_key, timeout_s=5.0, clock=clock)
    try:
        facts = await client.handshake()
        shape = shape_of(facts)
        waited = 0.0
        seq = 0
        # Also for what every point says of its setup: points that say less would stand apart.
        while (shape is None or facts.identity is None) and waited < INFO_S:
            await asyncio.sleep(POLL_S)
            waited += POLL_S
            seq += 1
            await client.poll(seq)
            facts = client.facts or facts
            shape = shape_of(facts)
        if tier == PLAIN and shape not in (None, OFF):
            raise StoppedError(
                f"{url} speculates ({shape}): the plain server is one without speculation"
            )
        if tier != PLAIN:
            if shape == OFF:
                raise StoppedError(f"{url} does not speculate: give the speculating server")
            tier = tier or shape
            if tier is None:
                raise StoppedError(
                    f"{url} does not tell its shape: name it with --spec-tier, like s3k1d4"
                )
            tier = TierShape.parse(tier).name
        flow = await FlowProcess.start(
            FlowSettings(
                url=url,
                api_key=api_key,
                prompts=request.prompts,
                input_len=request.input_len,
                output_len=request.output_len,
                stream_interval=request.stream_interval,
                seed=request.seed,
                max_seconds=request.budget_s + 120,
            )
        )
    except EngineError as error:
        await client.aclose()
        raise StoppedError(error.message) from error
    except BaseException:
        await client.aclose()
        raise
    return ServerSubject(tier, client, flow, clock)


async def _check_idle(subjects: dict[str, ServerSubject], request: BenchRequest) -> None:
    await asyncio.sleep(4 * POLL_S)
    for one in subjects.values():
        busy = [
            seen.concurrency
            for seen in one.samples()[-2:]
            if seen.fresh and (seen.concurrency or 0) > 0
        ]
        if len(busy) >= 2 and not request.allow_traffic:
            raise StoppedError(
                f"the {one.tier} server serves {busy[-1]} requests now: take the traffic away, or "
                "say --allow-traffic"
            )


def _notes(subjects: dict[str, ServerSubject]) -> list[str]:
    notes = []
    for name, one in subjects.items():
        note = cap_note(one.facts)
        if note is not None:
            notes.append(f"{name}: {note}")
    return notes
