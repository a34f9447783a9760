"""The REST and event API: a FastAPI application around a running service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from controlplane import (
    problems,
    routes_benchmarks,
    routes_engines,
    routes_events,
    routes_fleet,
    routes_overrides,
    routes_policies,
    routes_system,
    sessions_routes,
)
from controlplane.gate import BodyLimit, HostGuard, allowed_hosts
from controlplane.idempotency import Idempotency
from controlplane.messages import Problem
from controlplane.metrics_page import Page
from controlplane.security import Tokens
from controlplane.service import Service
from controlplane.settings import Settings
from controlplane.version import VERSION

DESCRIPTION = (
    "Control plane for speculative decoding: engines, ticks, decisions, overrides. Errors are "
    "application/problem+json. Ticks arrive live on GET /v1/events."
)


def create_app(service: Service, settings: Settings, tokens: Tokens | None = None) -> FastAPI:
    """The application; it starts and stops ``service`` with its lifespan.

    Args:
        tokens: the tokens that are accepted; read from the settings if not given.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:  # noqa: ARG001
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    app = FastAPI(
        title="specdeck control plane",
        version=VERSION,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    app.state.tokens = Tokens.read(settings.tokens) if tokens is None else tokens
    app.state.metrics_page = Page(service)
    problems.install(app)
    app.add_middleware(Idempotency)
    app.add_middleware(BodyLimit)
    app.add_middleware(HostGuard, hosts=allowed_hosts(settings))
    for routes in (
        routes_system,
        routes_engines,
        routes_overrides,
        routes_fleet,
        routes_policies,
        routes_benchmarks,
        routes_events,
        sessions_routes,
    ):
        app.include_router(routes.router)

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
            )
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            schemas["Problem"] = Problem.model_json_schema()
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
    return app
