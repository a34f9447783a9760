"""Problem details (RFC 9457) for every failure of the REST API."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from controlplane.errors import ProblemError
from controlplane.messages import Problem
from store.errors import StoreError

MEDIA_TYPE = "application/problem+json"
_CODES = {400: "bad_request", 413: "too_large"}
log = logging.getLogger("specdeck.api")


def answer(
    status: int, code: str, detail: str, headers: Mapping[str, str] | None = None
) -> Response:
    """The response for one problem."""
    problem = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, code=code)
    return Response(
        problem.model_dump_json(), status_code=status, media_type=MEDIA_TYPE, headers=headers
    )


def declared(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` of a route for OpenAPI."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": schema}},
        }
        for status in statuses
    }


def _validation(error: RequestValidationError) -> Response:
    details = error.errors()
    if any(detail["type"] == "json_invalid" for detail in details):
        what = details[0].get("ctx", {}).get("error", "")
        return answer(400, "bad_json", f"the body is no JSON: {what}")
    lines = []
    for detail in details:
        place = ".".join(str(part) for part in detail["loc"])
        message = str(detail["msg"]).removeprefix("Value error, ")
        if detail["type"] == "model_attributes_type":
            message = "must be a JSON object, sent with Content-Type: application/json"
        lines.append(f"{place}: {message}")
    return answer(422, "invalid", "; ".join(lines))


def install(app: FastAPI) -> None:
    """Answer every failure of ``app`` as problem details and declare their schema."""

    @app.exception_handler(ProblemError)
    async def on_problem(request: Request, error: ProblemError) -> Response:  # noqa: ARG001
        return answer(error.status, error.code, error.detail, error.headers)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, error: RequestValidationError) -> Response:  # noqa: ARG001
        return _validation(error)

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        detail = str(error.detail)
        if error.status_code == 404:
            detail = f"there is no {request.url.path}; /docs lists what there is"
        code = _CODES.get(error.status_code) or HTTPStatus(error.status_code).name.lower()
        return answer(error.status_code, code, detail, error.headers)

    @app.exception_handler(StoreError)
    async def on_store(request: Request, error: StoreError) -> Response:  # noqa: ARG001
        return answer(503, "store_failed", str(error), {"Retry-After": "5"})

    @app.exception_handler(Exception)
    async def on_bug(request: Request, error: Exception) -> Response:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return answer(
            500, "internal", "the control plane failed on this request; its log says where"
        )
