"""Routes of the engines: what is seen, and what people decide."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request

from controlplane.messages import (
    EngineStatus,
)
from controlplane.paging import BeforeId, Limit, RowId, ThePages
from controlplane.problems import declared
from controlplane.security import Caller, operator, reader
from controlplane.service import Service
from store.audit_chain import AuditCheck
from store.records import AuditEntry, Decision, EngineSwitch, Tick

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


@router.get("/engines", tags=["engines"])
async def list_engines(
    service: TheService,
    retired: Annotated[
        bool, Query(description="Those that are looked after no more, as they were last.")
    ] = False,
) -> list[EngineStatus]:
    """Every engine with its policy and newest tick."""
    if retired:
        return await asyncio.to_thread(service.roster.retired)
    return service.statuses()


@router.get("/engines/{engine_id}", tags=["engines"], responses=declared(404))
async def show_engine(engine_id: EngineId, service: TheService) -> EngineStatus:
    """One engine with its policy and newest tick."""
    return service.runner(engine_id).status()


@router.get("/engines/{engine_id}/ticks", tags=["engines"], responses=declared(404))
def list_ticks(
    engine_id: EngineId,
    service: TheService,
    pages: ThePages,
    limit: Limit = 500,
    after_id: RowId = None,
    before_id: BeforeId = None,
) -> list[Tick]:
    """Ticks, oldest first: the newest ones, or those that follow row `after_id`."""
    service.roster.check_known(engine_id)
    page = service.store.ticks(engine_id, after_id=after_id, before_id=before_id, limit=limit)
    if after_id is None:
        return pages.by_id(page, limit)
    if page:
        pages.link(page, limit, after_id=page[-1].id)
    return page


@router.get("/engines/{engine_id}/decisions", tags=["engines"], responses=declared(404))
def list_decisions(
    engine_id: EngineId,
    service: TheService,
    pages: ThePages,
    limit: Limit = 100,
    before_id: BeforeId = None,
) -> list[Decision]:
    """Decisions with their clauses and what became of them, newest first."""
    service.roster.check_known(engine_id)
    page = service.store.decisions(engine_id, before_id=before_id, limit=limit)
    return pages.by_id(page, limit)


@router.get("/engines/{engine_id}/switches", tags=["engines"], responses=declared(404))
def list_switches(
    engine_id: EngineId,
    service: TheService,
    pages: ThePages,
    limit: Limit = 100,
    before_id: BeforeId = None,
) -> list[EngineSwitch]:
    """Changes of tier from the engine's own journal, newest first."""
    service.roster.check_known(engine_id)
    page = service.store.switches(engine_id, before_id=before_id, limit=limit)
    return pages.by_id(page, limit)


@router.get("/audit", tags=["audit"])
def list_audit(
    service: TheService, pages: ThePages, limit: Limit = 100, before_id: BeforeId = None
) -> list[AuditEntry]:
    """Who changed what, newest first."""
    page = service.store.audit(before_id=before_id, limit=limit)
    return pages.by_id(page, limit)


@router.get("/audit/check", tags=["audit"])
def check_audit(
    service: TheService,
    expect: Annotated[
        str, Query(max_length=64, description="A head noted earlier, or its beginning.")
    ] = "",
) -> AuditCheck:
    """Whether the audit's hash chain is whole, and its newest hash."""
    return service.store.check_audit(expect)
