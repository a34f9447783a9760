"""``GET`` and ``PUT /speculation``: the same code in the plugin and in the embedded engine.

Built on Starlette, which SGLang and the ``controlplane`` extra both bring; imported inside
functions so that the package itself needs pydantic only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError

from engine_patch.contract_commands import Refusal, SpeculationCommand
from engine_patch.contract_words import RefusalCode
from engine_patch.desk import Desk

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

PATH = "/speculation"
REBUILD_PATH = f"{PATH}/rebuild"
MOST_BYTES = 64 * 1024
"""Largest accepted body; a full command is below 4 kB."""

_STATUS = {
    RefusalCode.FORBIDDEN: 403,
    RefusalCode.STALE_ORDER: 409,
    RefusalCode.OTHER_BODY: 409,
    RefusalCode.FOREIGN_CLAIM: 409,
    RefusalCode.KV_SHORT: 409,
    RefusalCode.TIMEOUT: 503,
    RefusalCode.DISAGREE: 503,
}


def invalid(error: ValidationError) -> Refusal:
    """A refusal that names each wrong field."""
    parts = []
    for problem in error.errors(include_url=False, include_input=False, include_context=False):
        where = ".".join(str(part) for part in problem["loc"])
        parts.append(f"{where}: {problem['msg']}" if where else str(problem["msg"]))
    return Refusal(
        code=RefusalCode.INVALID,
        message="; ".join(parts),
        allowed=tuple(SpeculationCommand.model_fields),
    )


def _json(body: BaseModel, status: int = 200) -> Response:
    from starlette.responses import Response

    return Response(body.model_dump_json(), status, media_type="application/json")


def speculation_routes(desk: Callable[[], Desk]) -> list[Route]:
    """The routes, to be mounted on the engine's own HTTP server.

    Args:
        desk: gives the desk; called for each request, since a server may be built before it exists.
    """
    from starlette.requests import ClientDisconnect
    from starlette.routing import Route

    async def get(request: Request) -> Response:
        text = request.query_params.get("since", "0")
        if not text.isdecimal():
            return _json(
                Refusal(code=RefusalCode.INVALID, message="since must be a whole number >= 0"), 422
            )
        return _json(desk().state(int(text)))

    async def put(request: Request) -> Response:
        counter = desk()
        host = request.client.host if request.client else None
        refusal = counter.forbids(host, request.headers.get("authorization"))
        if refusal is not None:
            return _json(refusal, 403)
        try:
            body = await request.body()
        except ClientDisconnect:
            return _json(
                Refusal(code=RefusalCode.INVALID, message="the body did not arrive whole"), 422
            )
        if len(body) > MOST_BYTES:
            return _json(
                Refusal(code=RefusalCode.INVALID, message=f"body above {MOST_BYTES} bytes"), 422
            )
        try:
            command = SpeculationCommand.model_validate_json(body)
        except ValidationError as error:
            return _json(invalid(error), 422)
        answer = await counter.take(command)
        if isinstance(answer, Refusal):
            return _json(answer, _STATUS.get(answer.code, 422))
        return _json(answer)

    async def rebuild(request: Request) -> Response:
        counter = desk()
        host = request.client.host if request.client else None
        refusal = counter.forbids(host, request.headers.get("authorization"))
        if refusal is not None:
            return _json(refusal, 403)
        answer = await counter.rebuild()
        if isinstance(answer, Refusal):
            return _json(answer, _STATUS.get(answer.code, 422))
        return _json(answer)

    return [
        Route(PATH, get, methods=["GET"]),
        Route(PATH, put, methods=["PUT"]),
        Route(REBUILD_PATH, rebuild, methods=["POST"]),
    ]
