"""Routes of overrides: set, extended, released, each for what its maker has seen."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from controlplane.changes import CHANGES, Change, Wait, at_rest, waited
from controlplane.etags import override_tag
from controlplane.messages import ExtendRequest, OverrideAnswer, OverrideRequest, ReleaseRequest
from controlplane.problems import declared
from controlplane.routes_engines import EngineId, TheService
from controlplane.security import reader
from store.records import Override

PATH = "/engines/{engine_id}/override"
router = APIRouter(
    prefix="/v1",
    tags=["overrides"],
    dependencies=[Depends(reader)],
    responses=declared(400, 401, 403, 421, 422, 500, 503),
)
TheChange = Annotated[Change, Depends(Change)]
TheWait = Annotated[Wait, Depends(Wait)]


@router.get(PATH, responses=declared(404))
async def show_override(
    engine_id: EngineId, service: TheService, response: Response
) -> OverrideAnswer:
    """The override in force, null if there is none, with its ETag."""
    override = service.runner(engine_id).pilot.override
    response.headers["ETag"] = override_tag(override)
    return OverrideAnswer(override=override)


@router.put(PATH, responses=waited(OverrideAnswer))
async def set_override(body: OverrideRequest, change: TheChange, wait: TheWait) -> OverrideAnswer:
    """Set an override; it takes effect at once and replaces one in force."""
    runner = change.runner
    made = await runner.desk.set_override(
        body, change.author(body.author), if_match=change.if_match, dry_run=change.dry_run
    )
    override: Override | None = made
    confirmed = None
    if wait.wanted:
        confirmed = await runner.confirmed(made, wait.timeout_s)
        override = runner.pilot.override
        if not confirmed:
            wait.late()
    change.tagged(override_tag(runner.pilot.override))
    return OverrideAnswer(override=override, confirmed=confirmed)


@router.delete(PATH, responses=waited(OverrideAnswer))
async def release_override(
    body: ReleaseRequest, change: TheChange, wait: TheWait
) -> OverrideAnswer:
    """End the override in force; automation takes over at once."""
    await change.runner.desk.release_override(
        body, change.author(body.author), if_match=change.if_match, dry_run=change.dry_run
    )
    confirmed = await wait.until(lambda tick: tick.override is None and at_rest(tick))
    change.tagged(override_tag(change.runner.pilot.override))
    return OverrideAnswer(override=None, confirmed=confirmed)


@router.post(f"{PATH}/extend", responses=CHANGES)
async def extend_override(body: ExtendRequest, change: TheChange) -> OverrideAnswer:
    """Add seconds to the end of the override in force."""
    longer = await change.runner.desk.extend_override(
        body, change.author(body.author), if_match=change.if_match, dry_run=change.dry_run
    )
    change.tagged(override_tag(change.runner.pilot.override))
    return OverrideAnswer(override=longer)
