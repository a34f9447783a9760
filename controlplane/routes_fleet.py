"""Routes that the console reads beside the stream: all engines in short, costs, one moment."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from controlplane.fleet import fleet_row
from controlplane.messages import Costs, Fleet, SourceStatus
from controlplane.paging import ROW_ID_MAX
from controlplane.problems import declared
from controlplane.routes_engines import EngineId, TheService
from controlplane.security import reader
from controlplane.setup_key import setup_key
from store.records import Tick
from store.rules import FleetRule
from store.tick_codec import tick_of

router = APIRouter(
    prefix="/v1",
    tags=["engines"],
    dependencies=[Depends(reader)],
    responses=declared(400, 401, 403, 421, 422, 500, 503),
)


@router.get("/fleet")
async def show_fleet(service: TheService) -> Fleet:
    """Every engine in one row: what runs, why, load, alarms.  Small enough for twice a second."""
    rows = tuple(fleet_row(status) for status in service.statuses())
    return Fleet(now_utc_ms=service.clock.utc_ms(), rows=rows)


@router.get("/sources")
async def list_sources(service: TheService) -> list[SourceStatus]:
    """The file and the routers that name engines: what they named last, and what is wrong."""
    return [follower.status() for follower in service.followers]


@router.get("/rules")
async def list_rules(service: TheService) -> list[FleetRule]:
    """Stops and policies of groups and of the whole fleet that hold for engines to come."""
    return list(service.rules.in_force())


@router.get("/engines/{engine_id}/costs", responses=declared(404))
async def show_costs(engine_id: EngineId, service: TheService) -> Costs:
    """The step-cost table that automation reckons with; empty if nothing is measured."""
    runner = service.runner(engine_id)
    pilot = runner.pilot
    if pilot.facts is None:
        return Costs()
    key = setup_key(pilot.facts)
    if not pilot.costs:
        return Costs(setup_key=key)
    return Costs(setup_key=key, source=runner.known.costs.source, costs=pilot.costs)


@router.get("/engines/{engine_id}/moment", responses=declared(404))
def show_moment(
    engine_id: EngineId,
    service: TheService,
    seq: Annotated[int, Query(ge=0, le=ROW_ID_MAX, description="Number of an observation.")],
    limit: Annotated[int, Query(ge=1, le=2000, description="Most ticks to answer.")] = 1,
) -> list[Tick]:
    """The tick on observation `seq` and those just before it, oldest first.

    Their row ids are 0: a moment is named by its observation.
    """
    service.roster.check_known(engine_id)
    first = max(seq - limit + 1, 0)
    return [
        tick_of(text, row_id=0, seq=number, at_utc_ms=at_utc_ms, is_gap=is_gap)
        for number, at_utc_ms, is_gap, text in service.store.tick_texts(
            engine_id, first, seq, limit
        )
        if text
    ]
