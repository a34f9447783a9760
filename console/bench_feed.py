"""Follows one engine's benchmarks and comes back by itself.  Knows no widget.

It posts what it reads and touches nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from textual.message import Message

from console.bench_messages import BenchesListed, BenchJudged, BenchMoved, BenchTrouble
from controlplane.bench_propose import Proposal
from controlplane.benchrun_messages import BenchState, BenchStatus
from controlplane.client import ControlPlaneClient, ControlPlaneError, RefusedError

LIST_EVERY_S = 2.0
RETRY_S = 2.0


class BenchFeed:
    """Reads one engine's benchmarks and posts them.

    Args:
        post: takes each message; must not block.
    """

    def __init__(
        self, client: ControlPlaneClient, engine_id: str, post: Callable[[Message], object]
    ) -> None:
        self._client = client
        self._engine_id = engine_id
        self._post = post
        self._wanted: str | None = None
        self._judged: tuple[str, int] | None = None
        self._ask = asyncio.Event()

    def judge(self, benchmark: str | None) -> None:
        """Read the analysis of this one (None: of the newest) from now on."""
        self._wanted = benchmark
        self._judged = None
        self._ask.set()

    async def run(self) -> None:
        """Follow for ever; ends only by cancellation."""
        while True:
            try:
                await self._round()
            except ControlPlaneError as error:
                self._post(BenchTrouble(self._engine_id, str(error)))
                await asyncio.sleep(RETRY_S)

    async def _round(self) -> None:
        """The list, then the running one to its end, or a while of waiting."""
        self._ask.clear()
        statuses = await self._client.benchmarks(self._engine_id)
        self._post(BenchesListed(self._engine_id, tuple(statuses)))
        await self._look(statuses)
        running = next((one for one in statuses if one.state is BenchState.RUNNING), None)
        if running is not None:
            await self._follow(running)
            return
        try:
            async with asyncio.timeout(LIST_EVERY_S):
                await self._ask.wait()
        except TimeoutError:
            pass

    async def _follow(self, running: BenchStatus) -> None:
        stream = self._client.benchmark_progress(self._engine_id, running.id)
        async with aclosing(stream) as progress:
            async for status in progress:
                self._post(BenchMoved(self._engine_id, status))
                if self._wanted in (None, status.id):
                    await self._look([status])
                elif self._ask.is_set():
                    return

    async def _look(self, statuses: list[BenchStatus]) -> None:
        """Read what follows from the wanted one, if it has new points."""
        wanted = next((one for one in statuses if self._wanted in (None, one.id)), None)
        if wanted is None or not wanted.points or self._judged == (wanted.id, len(wanted.points)):
            return
        analysis = await self._client.benchmark_analysis(self._engine_id, wanted.id)
        proposal: Proposal | None = None
        try:
            proposal = await self._client.benchmark_proposal(self._engine_id, wanted.id)
        except RefusedError:
            # Nothing can be proposed from what was measured so far: the analysis says why.
            proposal = None
        self._judged = (wanted.id, len(wanted.points))
        self._post(BenchJudged(self._engine_id, wanted.id, analysis, proposal))
