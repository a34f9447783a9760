"""The live stream: server-sent events that resume without losing or repeating a tick."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query
from fastapi.responses import StreamingResponse
from fastapi.sse import EventSourceResponse, format_sse_event

from controlplane.errors import ProblemError
from controlplane.hub import Event, HubFullError, Subscription
from controlplane.paging import ROW_ID_MAX, RowId
from controlplane.problems import declared
from controlplane.routes_engines import TheService
from controlplane.security import reader
from controlplane.service import Service

FIRST_PAGE, PAGE = 25, 200
"""Ticks read from the store at a time while a reader catches up: few at first, because most have
missed few, and one that hangs up again at once has cost little."""
PING_S = 15.0
"""Seconds of silence after which a comment shows that the stream lives."""
RETRY_MS = 1000
"""How soon a browser should come back."""

router = APIRouter(
    prefix="/v1",
    dependencies=[Depends(reader)],
    responses=declared(400, 401, 403, 404, 421, 422, 500, 503),
)


async def subscription(
    service: TheService,
    engine: Annotated[str | None, Query(max_length=64, description="One engine's id.")] = None,
) -> AsyncIterator[Subscription]:
    """Joins the hub before anything is read from the store, so that no tick falls between."""
    if engine is not None:
        service.runner(engine)
    try:
        joined = service.hub.subscribe(engine)
    except HubFullError as error:
        raise ProblemError(
            503, "too_many_streams", f"{error}; close one", {"Retry-After": "10"}
        ) from error
    with joined:
        yield joined


def last_seen(
    last_event_id: Annotated[
        RowId, Query(description="As the header, for clients without.")
    ] = None,
    header: Annotated[
        str | None,
        Header(alias="Last-Event-ID", max_length=32, description="Row id of the last tick seen."),
    ] = None,
) -> int | None:
    """The row id after which to go on; the header wins over the query."""
    if not header:
        return last_event_id
    if not header.isascii() or not header.isdecimal() or int(header) > ROW_ID_MAX:
        raise ProblemError(422, "invalid", "Last-Event-ID must be the id of an earlier event")
    return int(header)


@router.get(
    "/events",
    tags=["events"],
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "Ticks for ever."}},
)
async def events(
    service: TheService,
    joined: Annotated[Subscription, Depends(subscription)],
    last: Annotated[int | None, Depends(last_seen)],
    engine: Annotated[str | None, Query(max_length=64)] = None,
) -> EventSourceResponse:
    """Every tick from now on, or from `Last-Event-ID` on: `event: tick`, `id:` its row id."""
    # Not by FastAPI's own pump (a generator route with this response class): it ends in a
    # traceback when a reader hangs up while events are still to come.
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return EventSourceResponse(stream(service, joined, last, engine), headers=headers)


async def stream(
    service: Service, joined: Subscription, last: int | None, engine: str | None
) -> AsyncIterator[bytes]:
    """The stream's bytes: what was missed, then what comes."""
    # A first byte at once: without it a client cannot tell a quiet stream from a dead one.
    yield format_sse_event(comment="specdeck", retry=RETRY_MS)
    if last is not None:
        limit = FIRST_PAGE
        while not joined.dropped:
            # In one piece: each write to a reader that has just hung up is a line in the log.
            seen, page = await asyncio.to_thread(read_page, service, engine, last, limit)
            if not page:
                break
            last, limit = seen, min(2 * limit, PAGE)
            yield page
    async for batch in joined.batches(PING_S):
        if not batch:
            yield format_sse_event(comment="ping")
        elif new := [event.frame for event in batch if event.follows(last)]:
            yield b"".join(new)


def read_page(service: Service, engine: str | None, last: int, limit: int) -> tuple[int, bytes]:
    """The stored ticks that follow row ``last`` as events, oldest first, and their last row."""
    if engine is None:
        ticks = service.store.ticks_after(last, limit)
    else:
        ticks = service.store.ticks(engine, after_id=last, limit=limit)
    frames = [Event(tick.id, tick.engine_id, tick.model_dump_json()).frame for tick in ticks]
    return (ticks[-1].id if ticks else last), b"".join(frames)
