"""The benchmark calls of ``ControlPlaneClient``.

Their records are loaded with the first call: a console that only watches starts without them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING
from urllib.parse import quote

from controlplane.client_calls import Calls, engine_path

if TYPE_CHECKING:
    from controlplane.bench_findings import Analysis
    from controlplane.bench_propose import Proposal
    from controlplane.bench_records import BenchFile
    from controlplane.benchrun_messages import BenchRequest, BenchStatus, CancelRequest

START_S = 40.0
"""Seconds a start may take: the engine is watched for traffic, and tried."""
CANCEL_S = 20.0


class BenchmarkCalls(Calls):
    """Start, watch, cancel and read benchmarks."""

    async def benchmarks(self, engine_id: str) -> list[BenchStatus]:
        """The engine's benchmarks with its present setup, newest first."""
        from controlplane.benchrun_messages import BenchStatus

        return self._read_list(BenchStatus, await self._request("GET", _path(engine_id)))

    async def benchmark(self, engine_id: str, benchmark: str) -> BenchStatus:
        """One benchmark."""
        from controlplane.benchrun_messages import BenchStatus

        answer = await self._request("GET", _path(engine_id, benchmark))
        return self._read(BenchStatus, answer)

    async def start_benchmark(self, engine_id: str, request: BenchRequest) -> BenchStatus:
        """Begin one."""
        from controlplane.benchrun_messages import BenchStatus

        answer = await self._request("POST", _path(engine_id), body=request, timeout_s=START_S)
        return self._read(BenchStatus, answer)

    async def cancel_benchmark(
        self, engine_id: str, benchmark: str, request: CancelRequest
    ) -> BenchStatus:
        """End one now; the engine is released when this returns."""
        from controlplane.benchrun_messages import BenchStatus

        path = _path(engine_id, benchmark)
        answer = await self._request("DELETE", path, body=request, timeout_s=CANCEL_S)
        return self._read(BenchStatus, answer)

    async def benchmark_file(self, engine_id: str, benchmark: str) -> BenchFile:
        """Its results file."""
        from controlplane.bench_records import BenchFile

        answer = await self._request("GET", _path(engine_id, benchmark, "file"))
        return self._read(BenchFile, answer)

    async def benchmark_analysis(self, engine_id: str, benchmark: str) -> Analysis:
        """What follows from it."""
        from controlplane.bench_findings import Analysis

        answer = await self._request("GET", _path(engine_id, benchmark, "analysis"))
        return self._read(Analysis, answer)

    async def benchmark_proposal(self, engine_id: str, benchmark: str) -> Proposal:
        """The thresholds it proposes, with the gain they promise."""
        from controlplane.bench_propose import Proposal

        answer = await self._request("GET", _path(engine_id, benchmark, "proposal"))
        return self._read(Proposal, answer)

    async def benchmark_progress(
        self, engine_id: str, benchmark: str
    ) -> AsyncGenerator[BenchStatus, None]:
        """Its status after each change; the last one is how it ended.

        Raises:
            UnreachableError: the stream broke; the benchmark may go on.
        """
        from controlplane.benchrun_messages import BenchStatus

        stream = self._server_sent(_path(engine_id, benchmark, "events"))
        async with aclosing(stream) as events:
            async for event, data in events:
                if event in ("progress", "end"):
                    yield self._read(BenchStatus, data)


def _path(engine_id: str, *more: str) -> str:
    return engine_path(engine_id, "benchmarks", *(quote(part, safe="") for part in more))
