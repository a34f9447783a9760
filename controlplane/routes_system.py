"""Routes about the control plane itself: health, metrics, documentation, who am I."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, Response

from controlplane import docs_page
from controlplane.errors import ProblemError
from controlplane.messages import About, Health
from controlplane.metrics_page import CONTENT_TYPE, Page
from controlplane.problems import declared
from controlplane.routes_engines import TheService
from controlplane.security import Caller, reader
from controlplane.version import VERSION

router = APIRouter(responses=declared(421, 500))


def page_of(request: Request) -> Page:
    """The metrics page of this application."""
    page: Page = request.app.state.metrics_page
    return page


@router.get("/v1", tags=["about"], responses=declared(401))
async def about(service: TheService, caller: Annotated[Caller, Depends(reader)]) -> About:
    """Who answers, and what the caller may do."""
    return About(
        version=VERSION,
        now_utc_ms=service.clock.utc_ms(),
        holder=service.settings.holder_name,
        may_operate=caller.may_operate,
        override_max_s=service.settings.override_max_s,
        alarms=service.alarms(),
    )


@router.get("/healthz", tags=["about"])
async def healthz() -> Health:
    """The process is up."""
    return Health(status="ok", version=VERSION)


@router.get("/readyz", tags=["about"], responses=declared(503))
async def readyz(service: TheService) -> Health:
    """The store can be written and every engine's loop is alive."""
    troubles = service.troubles()
    if troubles:
        raise ProblemError(503, "not_ready", "; ".join(troubles))
    return Health(status="ready", version=VERSION)


@router.get(
    "/metrics",
    tags=["about"],
    response_class=PlainTextResponse,
    responses=declared(401),
    dependencies=[Depends(reader)],
)
async def metrics(page: Annotated[Page, Depends(page_of)]) -> Response:
    """Prometheus text."""
    return Response(page.text(), media_type=CONTENT_TYPE)


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> HTMLResponse:
    """This API as a page that loads nothing from elsewhere."""
    return HTMLResponse(docs_page.render(request.app.openapi()))
