"""Routes of benchmarks: start, watch, cancel, and read what was found."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path
from fastapi.responses import StreamingResponse
from fastapi.sse import EventSourceResponse, format_sse_event

from controlplane.bench_analysis import analyse
from controlplane.bench_findings import Analysis
from controlplane.bench_propose import Proposal, ProposalError, propose
from controlplane.bench_records import BenchFile
from controlplane.benchrun_job import Job, file_of
from controlplane.benchrun_messages import BenchRequest, BenchStatus, CancelRequest
from controlplane.errors import ProblemError
from controlplane.problems import declared
from controlplane.routes_engines import EngineId, Operator, TheService
from controlplane.routes_events import PING_S, RETRY_MS
from controlplane.security import reader

router = APIRouter(
    prefix="/v1",
    tags=["benchmarks"],
    dependencies=[Depends(reader)],
    responses=declared(400, 401, 403, 404, 421, 422, 500, 503),
)
BenchId = Annotated[str, Path(min_length=1, max_length=64, description="The benchmark's id.")]
_BASE = "/engines/{engine_id}/benchmarks"
_ONE = _BASE + "/{benchmark}"


@router.get(_BASE)
async def list_benchmarks(engine_id: EngineId, service: TheService) -> list[BenchStatus]:
    """Benchmarks of the engine's present setup, newest first."""
    return await service.benchmarks.all(service.runner(engine_id))


@router.post(_BASE, status_code=202, responses=declared(409, 413))
async def start_benchmark(
    engine_id: EngineId, body: BenchRequest, service: TheService, caller: Operator
) -> BenchStatus:
    """Begin a benchmark: it pins one tier after another by overrides and makes the load."""
    runner = service.runner(engine_id)
    return await service.benchmarks.start(runner, body, caller.author(body.author))


@router.get(_ONE)
async def show_benchmark(
    engine_id: EngineId, benchmark: BenchId, service: TheService
) -> BenchStatus:
    """One benchmark: how far it is, and its points."""
    return await service.benchmarks.one(service.runner(engine_id), benchmark)


@router.delete(_ONE, responses=declared(409, 413))
async def cancel_benchmark(
    engine_id: EngineId,
    benchmark: BenchId,
    body: CancelRequest,
    service: TheService,
    caller: Operator,
) -> BenchStatus:
    """End a running benchmark; the engine is released and its points are kept."""
    runner = service.runner(engine_id)
    return await service.benchmarks.cancel(runner, benchmark, caller.author(body.author))


@router.get(_ONE + "/file")
async def benchmark_file(engine_id: EngineId, benchmark: BenchId, service: TheService) -> BenchFile:
    """Its results file, as `specdeck bench analyze` reads it."""
    return file_of(await service.benchmarks.one(service.runner(engine_id), benchmark))


@router.get(_ONE + "/analysis")
async def benchmark_analysis(
    engine_id: EngineId, benchmark: BenchId, service: TheService
) -> Analysis:
    """Speed-ups with intervals, crossover, floor and verdict of what was measured so far."""
    status = await service.benchmarks.one(service.runner(engine_id), benchmark)
    return analyse(file_of(status), f"benchmark {status.id}")


@router.get(_ONE + "/proposal", responses=declared(409))
async def benchmark_proposal(
    engine_id: EngineId, benchmark: BenchId, service: TheService
) -> Proposal:
    """Thresholds that follow from it, with the gain they promise; PUT policy applies them."""
    runner = service.runner(engine_id)
    status = await service.benchmarks.one(runner, benchmark)
    facts = runner.pilot.facts
    dp_size = facts.identity.dp_size if facts is not None and facts.identity is not None else 1
    try:
        return propose(status.points, dp_size=dp_size)
    except ProposalError as error:
        raise ProblemError(409, "nothing_to_propose", str(error)) from error


@router.get(
    _ONE + "/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "Until it ends."}},
)
async def benchmark_events(
    engine_id: EngineId, benchmark: BenchId, service: TheService
) -> EventSourceResponse:
    """Its status after each change, `event: progress`; the last one is `event: end`."""
    status = await service.benchmarks.one(service.runner(engine_id), benchmark)
    job = service.benchmarks.job(engine_id, benchmark)
    headers: dict[str, Any] = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return EventSourceResponse(stream(job, status), headers=headers)


async def stream(job: Job | None, status: BenchStatus) -> AsyncIterator[bytes]:
    """The stream's bytes: the status now, and after each change until it ended."""
    yield format_sse_event(comment="specdeck", retry=RETRY_MS)
    while job is not None and job.running:
        version = job.version
        yield format_sse_event(event="progress", data_str=job.status.model_dump_json())
        while job.running and not await job.after(version, PING_S):
            yield format_sse_event(comment="ping")
    if job is not None:
        status = job.status
    yield format_sse_event(event="end", data_str=status.model_dump_json())
