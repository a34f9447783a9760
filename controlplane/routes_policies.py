"""Routes of policies: versions, rollback, stance, and a stop of many engines.

A version's number is its ETag: a change may name the version it was made for (``If-Match``), and is
refused with 412 when another one is in force meanwhile.
"""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Response

from controlplane.errors import ProblemError
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
from controlplane.problems import declared
from controlplane.routes_engines import EngineId, Operator, TheService
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
IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=100,
        description='ETag of the version this was made for, as "policy-7"; * for any.',
    ),
]
DryRun = Annotated[bool, Query(description="Check it and answer what would be; change nothing.")]
_CHANGES = declared(409, 412, 413)


def etag(policy: PolicyConfig) -> str:
    """The ETag of a version."""
    return f'"policy-{policy.version}"'


def wanted_version(given: str | None, present: PolicyConfig | None) -> int | None:
    """The version an ``If-Match`` names; None for any.

    Raises:
        ProblemError: 412, it names another one than ``present``, or none that can be read.
    """
    if given is None or given.strip() == "*":
        return None
    tags = [tag.strip() for tag in given.split(",")]
    if present is not None and etag(present) in tags:
        return present.version
    if not all(re.fullmatch(r'(W/)?"[^"]*"', tag) for tag in tags):
        raise ProblemError(
            412, "bad_if_match", f'If-Match {given!r} is no ETag: write "policy-7", with the quotes'
        )
    now = "-" if present is None else f"{etag(present)} by {present.author}"
    raise ProblemError(
        412, "changed_meanwhile", f"{now} is in force, not {given}: look at it and ask again"
    )


@router.get("/engines/{engine_id}/policies")
def list_policies(
    engine_id: EngineId,
    service: TheService,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1_000,
    before_version: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
) -> list[PolicyConfig]:
    """Every policy version with its author, newest first; older than `before_version` to page."""
    service.runner(engine_id)
    found = service.store.policies(engine_id)
    if before_version is not None:
        found = [one for one in found if one.version < before_version]
    return found[:limit]


@router.get("/engines/{engine_id}/policy", responses=declared(409))
async def show_policy(engine_id: EngineId, service: TheService, response: Response) -> PolicyConfig:
    """The version in force, with its ETag."""
    return _tagged(_present(service.runner(engine_id)), response)


@router.put("/engines/{engine_id}/policy", responses=_CHANGES)
async def set_policy(
    engine_id: EngineId,
    body: PolicyRequest,
    service: TheService,
    caller: Operator,
    response: Response,
    if_match: IfMatch = None,
    dry_run: DryRun = False,
) -> PolicyConfig:
    """Run another policy from the next tick on; answers with the new version."""
    runner = service.runner(engine_id)
    version = wanted_version(if_match, runner.pilot.policy)
    made = await runner.desk.set_policy(
        body, caller.author(body.author), if_version=version, dry_run=dry_run
    )
    return _tagged(made, response)


@router.post("/engines/{engine_id}/policy/rollback", responses=_CHANGES)
async def roll_back(
    engine_id: EngineId,
    body: RollbackRequest,
    service: TheService,
    caller: Operator,
    response: Response,
    if_match: IfMatch = None,
    dry_run: DryRun = False,
) -> PolicyConfig:
    """Go back one policy, or to the version named; answers with the new version."""
    runner = service.runner(engine_id)
    version = wanted_version(if_match, runner.pilot.policy)
    made = await runner.desk.roll_back(
        body, caller.author(body.author), if_version=version, dry_run=dry_run
    )
    return _tagged(made, response)


@router.put("/engines/{engine_id}/stance", responses=_CHANGES)
async def set_stance(
    engine_id: EngineId,
    body: StanceRequest,
    service: TheService,
    caller: Operator,
    response: Response,
    if_match: IfMatch = None,
) -> PolicyConfig:
    """Let automation act, only compute, or rest; answers with the new policy version."""
    runner = service.runner(engine_id)
    version = wanted_version(if_match, runner.pilot.policy)
    made = await runner.desk.set_stance(body, caller.author(body.author), if_version=version)
    return _tagged(made, response)


@router.post(
    "/engines/{engine_id}/takeover", tags=["claims"], status_code=202, responses=declared(409, 413)
)
async def take_over(
    engine_id: EngineId, body: TakeoverRequest, service: TheService, caller: Operator
) -> TakeoverAnswer:
    """Take the claim of another control plane, whose name must be given; with the next command."""
    runner = service.runner(engine_id)
    tick = runner.status().tick
    seen = None if tick is None else tick.observation
    held_by = seen.claim_holder if isinstance(seen, Sample) else None
    await runner.desk.take_over(body, caller.author(body.author), held_by)
    return TakeoverAnswer(
        engine_id=engine_id, from_holder=body.holder, holder=service.settings.holder_name
    )


@router.put("/groups/{group}/policy", responses=declared(409, 413))
async def set_group_policy(
    group: Annotated[str, Path(min_length=1, max_length=100, description="The group's name.")],
    body: GroupPolicyRequest,
    service: TheService,
    caller: Operator,
    dry_run: DryRun = False,
) -> list[StopAnswer]:
    """Run one policy on every engine of a group; an engine that cannot is told by itself."""
    found: list[StopAnswer] = []
    for runner in service.roster.group(group):
        request = PolicyRequest.model_validate(body.model_dump())
        try:
            made = await runner.desk.set_policy(
                request, caller.author(body.author), dry_run=dry_run
            )
            found.append(StopAnswer(engine_id=runner.engine_id, policy=made))
        except ProblemError as error:
            found.append(StopAnswer(engine_id=runner.engine_id, problem=error.detail))
    return found


@router.post("/engines", tags=["engines"], status_code=201, responses=declared(409, 413))
async def add_engine(body: AddEngineRequest, service: TheService, caller: Operator) -> EngineStatus:
    """Look after one more engine, now and after each start."""
    engine = await service.roster.add(body, caller.author(body.author))
    return service.runner(engine.id).status()


@router.delete("/engines/{engine_id}", tags=["engines"], responses=declared(409, 413))
async def remove_engine(
    engine_id: EngineId, body: RemoveEngineRequest, service: TheService, caller: Operator
) -> EngineStatus:
    """Leave an engine alone that was added by request; what was recorded stays."""
    status = service.runner(engine_id).status()
    await service.roster.remove(engine_id, body, caller.author(body.author))
    return status


@router.post("/pause", responses=declared(409, 413))
async def pause(body: StopRequest, service: TheService, caller: Operator) -> list[StopAnswer]:
    """Let automation rest on every engine, or on those named; overrides go on."""
    return await _each(service, body, caller, resume=False)


@router.post("/resume", responses=declared(409, 413))
async def resume(body: StopRequest, service: TheService, caller: Operator) -> list[StopAnswer]:
    """Give each engine the stance back that it had before `POST /v1/pause`."""
    return await _each(service, body, caller, resume=True)


async def _each(
    service: Service, body: StopRequest, caller: Caller, *, resume: bool
) -> list[StopAnswer]:
    runners = [service.runner(name) for name in body.engines] or list(service.runners.values())
    author = caller.author(body.author)
    found: list[StopAnswer] = []
    for runner in runners:
        if body.group is not None and runner.settings.group != body.group:
            continue
        act = runner.desk.resume if resume else runner.desk.pause
        try:
            made = await act(body.reason, author)
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


def _tagged(policy: PolicyConfig, response: Response) -> PolicyConfig:
    response.headers["ETag"] = etag(policy)
    return policy
