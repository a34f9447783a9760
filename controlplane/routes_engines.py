"""Routes of the engines: what is seen, and what people decide."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from controlplane.messages import (
    EngineStatus,
    ExtendRequest,
    OverrideAnswer,
    OverrideRequest,
    ReleaseRequest,
)
from controlplane.problems import declared
from controlplane.security import Caller, operator, reader
from controlplane.service import Service
from store.audit_chain import AuditCheck
from store.records import AuditEntry, Decision, EngineSwitch, Tick

ROW_ID_MAX = 2**63 - 1

router = APIRouter(
    prefix="/v1",
    dependencies=[Depends(reader)],
    responses=declared(400, 401, 403, 421, 422, 500, 503),
)


def service_of(request: Request) -> Service:
    """The service behind this application."""
    service: Service = request.app.state.service
    return service


Operator = Annotated[Caller, Depends(operator)]
TheService = Annotated[Service, Depends(service_of)]
EngineId = Annotated[str, Path(min_length=1, max_length=64, description="The engine's id.")]
Limit = Annotated[int, Query(ge=1, le=10_000, description="Most rows to answer.")]
RowId = Annotated[int | None, Query(ge=0, le=ROW_ID_MAX)]


@router.get("/engines", tags=["engines"])
async def list_engines(service: TheService) -> list[EngineStatus]:
    """Every engine with its policy and newest tick."""
    return service.statuses()


@router.get("/engines/{engine_id}", tags=["engines"], responses=declared(404))
async def show_engine(engine_id: EngineId, service: TheService) -> EngineStatus:
    """One engine with its policy and newest tick."""
    return service.runner(engine_id).status()


@router.get("/engines/{engine_id}/ticks", tags=["engines"], responses=declared(404))
def list_ticks(
    engine_id: EngineId,
    service: TheService,
    limit: Limit = 500,
    after_id: RowId = None,
) -> list[Tick]:
    """Ticks, oldest first: the newest ones, or those that follow row `after_id`."""
    service.runner(engine_id)
    return service.store.ticks(engine_id, after_id=after_id, limit=limit)


@router.get("/engines/{engine_id}/decisions", tags=["engines"], responses=declared(404))
def list_decisions(
    engine_id: EngineId, service: TheService, limit: Limit = 100, before_id: RowId = None
) -> list[Decision]:
    """Decisions with their clauses and what became of them, newest first."""
    service.runner(engine_id)
    return service.store.decisions(engine_id, before_id=before_id, limit=limit)


@router.get("/engines/{engine_id}/switches", tags=["engines"], responses=declared(404))
def list_switches(
    engine_id: EngineId, service: TheService, limit: Limit = 100
) -> list[EngineSwitch]:
    """Changes of tier from the engine's own journal, newest first."""
    service.runner(engine_id)
    return service.store.switches(engine_id, limit=limit)


@router.get("/engines/{engine_id}/override", tags=["overrides"], responses=declared(404))
async def show_override(engine_id: EngineId, service: TheService) -> OverrideAnswer:
    """The override in force, null if there is none."""
    return OverrideAnswer(override=service.runner(engine_id).pilot.override)


@router.put(
    "/engines/{engine_id}/override",
    tags=["overrides"],
    responses={
        **declared(404, 409, 413),
        202: {"model": OverrideAnswer, "description": "In force, not confirmed in time."},
    },
)
async def set_override(
    engine_id: EngineId,
    body: OverrideRequest,
    service: TheService,
    caller: Operator,
    response: Response,
    wait: Annotated[
        Literal["confirmed"] | None,
        Query(description="Answer when every observed rank confirms it, or with 202 in time."),
    ] = None,
    timeout: Annotated[
        float, Query(gt=0, le=60, description="Seconds to wait for the confirmation.")
    ] = 5.0,
    dry_run: Annotated[
        bool, Query(description="Check it and answer what would be; change nothing.")
    ] = False,
) -> OverrideAnswer:
    """Set an override; it takes effect at once and replaces one in force."""
    runner = service.runner(engine_id)
    author = caller.author(body.author)
    override = await runner.desk.set_override(body, author, dry_run=dry_run)
    if wait is None or dry_run:
        return OverrideAnswer(override=override)
    confirmed = await runner.confirmed(override, timeout)
    if not confirmed:
        response.status_code = 202
    return OverrideAnswer(override=runner.pilot.override, confirmed=confirmed)


@router.delete(
    "/engines/{engine_id}/override", tags=["overrides"], responses=declared(404, 409, 413)
)
async def release_override(
    engine_id: EngineId, body: ReleaseRequest, service: TheService, caller: Operator
) -> OverrideAnswer:
    """End the override in force; automation takes over at once."""
    await service.runner(engine_id).desk.release_override(body, caller.author(body.author))
    return OverrideAnswer(override=None)


@router.post(
    "/engines/{engine_id}/override/extend",
    tags=["overrides"],
    responses=declared(404, 409, 413),
)
async def extend_override(
    engine_id: EngineId, body: ExtendRequest, service: TheService, caller: Operator
) -> OverrideAnswer:
    """Add seconds to the end of the override in force."""
    runner = service.runner(engine_id)
    return OverrideAnswer(
        override=await runner.desk.extend_override(body, caller.author(body.author))
    )


@router.get("/audit", tags=["audit"])
def list_audit(
    service: TheService, limit: Limit = 100, before_id: RowId = None
) -> list[AuditEntry]:
    """Who changed what, newest first."""
    return service.store.audit(before_id=before_id, limit=limit)


@router.get("/audit/check", tags=["audit"])
def check_audit(
    service: TheService,
    expect: Annotated[
        str, Query(max_length=64, description="A head noted earlier, or its beginning.")
    ] = "",
) -> AuditCheck:
    """Whether the audit's hash chain is whole, and its newest hash."""
    return service.store.check_audit(expect)
