"""Routes of policies: versions, rollback, stance, and a stop of many engines.

A version's number is its ETag: a change may name the version it was made for (``If-Match``), and is
refused with 412 when another one is in force meanwhile.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response

from controlplane.added import added_record
from controlplane.changes import Asked, DryRun, waited
from controlplane.errors import ProblemError
from controlplane.etags import policy_tag
from controlplane.messages import (
    AddEngineRequest,
    EngineStatus,
    GroupPolicyRequest,
    PolicyRequest,
    RemoveEngineRequest,
    RollbackRequest,
    StanceRequest,
    StopAnswer,
    StopRequest,
    TakeoverAnswer,
    TakeoverRequest,
)
from controlplane.paging import ROW_ID_MAX, Limit, ThePages
from controlplane.problems import declared
from controlplane.routes_engines import EngineId, Operator, TheService
from controlplane.routes_overrides import TheChange, TheWait
from controlplane.runner import Runner
from controlplane.security import Caller, reader
from controlplane.service import Service
from store.observations import Sample
from store.policies import PolicyConfig

router = APIRouter(
    prefix="/v1",
    tags=["policies"],
    dependencies=[Depends(reader)],
    responses=declared(400, 401, 403, 404, 421, 422, 500, 503),
)


@router.get("/engines/{engine_id}/policies")
def list_policies(
    engine_id: EngineId,
    service: TheService,
    pages: ThePages,
    limit: Limit = 1_000,
    before_version: Annotated[int | None, Query(ge=1, le=ROW_ID_MAX)] = None,
) -> list[PolicyConfig]:
    """Every policy version with its author, newest first; older than `before_version` to page."""
    service.roster.check_known(engine_id)
    found = service.store.policies(engine_id)
    if before_version is not None:
        found = [one for one in found if one.version < before_version]
    page = found[:limit]
    if page:
        pages.link(page, limit, before_version=page[-1].version)
    return page


@router.get("/engines/{engine_id}/policy", responses=declared(409))
async def show_policy(engine_id: EngineId, service: TheService, response: Response) -> PolicyConfig:
    """The version in force, with its ETag."""
    policy = _present(service.runner(engine_id))
    response.headers["ETag"] = policy_tag(policy)
    return policy


@router.put("/engines/{engine_id}/policy", responses=waited(PolicyConfig))
async def set_policy(body: PolicyRequest, change: TheChange, wait: TheWait) -> PolicyConfig:
    """Run another policy from the next tick on; answers with the new version."""
    made = await change.runner.desk.set_policy(
        body, change.author(body.author), if_version=change.version(), dry_run=change.dry_run
    )
    return await wait.policy(made)


@router.post("/engines/{engine_id}/policy/rollback", responses=waited(PolicyConfig))
async def roll_back(body: RollbackRequest, change: TheChange, wait: TheWait) -> PolicyConfig:
    """Go back one policy, or to the version named; answers with the new version."""
    made = await change.runner.desk.roll_back(
        body, change.author(body.author), if_version=change.version(), dry_run=change.dry_run
    )
    return await wait.policy(made)


@router.put("/engines/{engine_id}/stance", responses=waited(PolicyConfig))
async def set_stance(body: StanceRequest, change: TheChange, wait: TheWait) -> PolicyConfig:
    """Let automation act, only compute, or rest; answers with the new policy version."""
    made = await change.runner.desk.set_stance(
        body, change.author(body.author), if_version=change.version(), dry_run=change.dry_run
    )
    return await wait.policy(made)


@router.post(
    "/engines/{engine_id}/takeover",
    tags=["claims"],
    status_code=202,
    responses={
        **declared(404, 409, 413),
        200: {"model": TakeoverAnswer, "description": "The claim is ours."},
    },
)
async def take_over(
    body: TakeoverRequest, asked: Annotated[Asked, Depends(Asked)], wait: TheWait
) -> TakeoverAnswer:
    """Take the claim of another control plane, whose name must be given; with the next command."""
    runner, ours = asked.runner, asked.service.settings.holder_name
    tick = runner.status().tick
    seen = None if tick is None else tick.observation
    held_by = seen.claim_holder if isinstance(seen, Sample) else None
    await runner.desk.take_over(body, asked.author(body.author), held_by, dry_run=asked.dry_run)
    confirmed = await wait.until(
        lambda one: isinstance(one.observation, Sample) and one.observation.claim_holder == ours
    )
    if confirmed or asked.dry_run:
        asked.response.status_code = 200
    return TakeoverAnswer(
        engine_id=runner.engine_id, from_holder=body.holder, holder=ours, confirmed=confirmed
    )


@router.put("/groups/{group}/policy", responses=declared(409, 413))
async def set_group_policy(
    group: Annotated[str, Path(min_length=1, max_length=100, description="The group's name.")],
    body: GroupPolicyRequest,
    service: TheService,
    caller: Operator,
    dry_run: DryRun = False,
) -> list[StopAnswer]:
    """Run one policy on every engine of a group, also on those that join it from now on.

    An engine that cannot is told by itself.
    """
    runners = service.roster.group(group)
    if not dry_run:
        await service.rules.share(group, body, caller.author(body.author))
    found: list[StopAnswer] = []
    for runner in runners:
        request = PolicyRequest.model_validate(body.model_dump())
        try:
            made = await runner.desk.set_policy(
                request, caller.author(body.author), dry_run=dry_run
            )
            found.append(StopAnswer(engine_id=runner.engine_id, policy=made))
        except ProblemError as error:
            found.append(StopAnswer(engine_id=runner.engine_id, problem=error.detail))
    return found


@router.post(
    "/engines",
    tags=["engines"],
    status_code=201,
    responses={
        **declared(409, 413),
        200: {"model": EngineStatus, "description": "With dry_run: what would be."},
    },
)
async def add_engine(
    body: AddEngineRequest,
    service: TheService,
    caller: Operator,
    response: Response,
    dry_run: DryRun = False,
) -> EngineStatus:
    """Look after one more engine, now and after each start."""
    author = caller.author(body.author)
    engine = await service.roster.add(body, author, dry_run=dry_run)
    if not dry_run:
        return service.runner(engine.id).status()
    response.status_code = 200
    now = service.clock.utc_ms()
    record = added_record(None, engine, "", now)
    return EngineStatus(engine=record, poll_s=engine.poll_s, now_utc_ms=now)


@router.delete("/engines/{engine_id}", tags=["engines"], responses=declared(409, 413))
async def remove_engine(
    engine_id: EngineId,
    body: RemoveEngineRequest,
    service: TheService,
    caller: Operator,
    dry_run: DryRun = False,
) -> EngineStatus:
    """Leave an engine alone that was added by request; what was recorded stays."""
    status = service.runner(engine_id).status()
    await service.roster.remove(engine_id, body, caller.author(body.author), dry_run=dry_run)
    return status


@router.post("/pause", responses=declared(409, 413))
async def pause(
    body: StopRequest, service: TheService, caller: Operator, dry_run: DryRun = False
) -> list[StopAnswer]:
    """Let automation rest on every engine, or on those named; overrides go on.

    Without names it holds for engines that join, or answer for the first time, from now on.
    """
    return await _each(service, body, caller, resume=False, dry_run=dry_run)


@router.post("/resume", responses=declared(409, 413))
async def resume(
    body: StopRequest, service: TheService, caller: Operator, dry_run: DryRun = False
) -> list[StopAnswer]:
    """Give each engine the stance back that it had before `POST /v1/pause`."""
    return await _each(service, body, caller, resume=True, dry_run=dry_run)


async def _each(
    service: Service, body: StopRequest, caller: Caller, *, resume: bool, dry_run: bool
) -> list[StopAnswer]:
    every = (
        list(service.runners.values()) if body.group is None else service.roster.group(body.group)
    )
    runners = [service.runner(name) for name in body.engines] or every
    author = caller.author(body.author)
    if not body.engines and not dry_run:
        decide = service.rules.resume if resume else service.rules.stop
        await decide(body.group or "", author, body.reason)
    found: list[StopAnswer] = []
    for runner in runners:
        if body.group is not None and runner.settings.group != body.group:
            continue
        act = runner.desk.resume if resume else runner.desk.pause
        try:
            made = await act(body.reason, author, dry_run=dry_run)
            found.append(StopAnswer(engine_id=runner.engine_id, policy=made))
        except ProblemError as error:
            found.append(StopAnswer(engine_id=runner.engine_id, problem=error.detail))
    return found


def _present(runner: Runner) -> PolicyConfig:
    policy = runner.pilot.policy
    if policy is None:
        raise ProblemError(
            409,
            "not_reached",
            f"engine {runner.engine_id} has not answered yet, so it has no policy",
        )
    return policy
