"""Routes of sessions and markers on a running control plane."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from fastapi.responses import FileResponse
from starlette.background import BackgroundTask

from controlplane.errors import ProblemError
from controlplane.paging import ROW_ID_MAX, BeforeId, Limit, ThePages
from controlplane.problems import declared
from controlplane.routes_engines import EngineId, Operator, TheService
from controlplane.security import reader
from controlplane.service import Service
from controlplane.sessions_messages import (
    MarkerRequest,
    SessionInfo,
    StartSession,
    StopSession,
)
from controlplane.version import VERSION
from store.db import Record
from store.errors import StoreError
from store.records import AuditEntry, Marker, SessionRecord, Tick
from store.session_export import export, range_of
from store.session_schema import SUFFIX
from store.tick_codec import tick_of

SessionId = Annotated[int, Path(ge=1, le=ROW_ID_MAX)]

router = APIRouter(
    prefix="/v1",
    tags=["sessions"],
    dependencies=[Depends(reader)],
    responses=declared(400, 401, 403, 421, 422, 500, 503),
)


@router.get("/sessions")
def list_sessions(
    service: TheService, pages: ThePages, limit: Limit = 1_000, before_id: BeforeId = None
) -> list[SessionInfo]:
    """Named sessions, newest first."""
    page = service.store.sessions(before_id=before_id, limit=limit)
    return [info(one) for one in pages.by_id(page, limit)]


@router.post("/sessions", responses=declared(404, 409, 413))
async def start_session(body: StartSession, service: TheService, caller: Operator) -> SessionInfo:
    """Give what is recorded from now on a name.  Recording itself is always on."""
    runner = service.runner(body.engine_id)
    known = await asyncio.to_thread(service.store.sessions)
    if any(one.name == body.name for one in known):
        raise ProblemError(409, "exists", f"there is a session {body.name!r}: choose another name")
    tick = runner.status().tick
    session = SessionRecord(
        engine_id=body.engine_id,
        name=body.name,
        started_utc_ms=service.clock.utc_ms(),
        first_seq=1 if tick is None else tick.observation.seq + 1,
        policy=runner.pilot.policy,
        facts=runner.pilot.facts,
    )
    runner.pilot.intake.checkpoint_soon()
    audit = _audit(service, caller.author(body.author), "session.start", body.engine_id, body.name)
    stored = await _write(service, [session, audit])
    assert isinstance(stored, SessionRecord)
    return info(stored)


@router.post("/sessions/{session_id}/stop", responses=declared(404, 409, 413))
async def stop_session(
    session_id: SessionId, body: StopSession, service: TheService, caller: Operator
) -> SessionInfo:
    """End a named session."""
    session = await asyncio.to_thread(_session, service, session_id)
    if session.ended_utc_ms is not None:
        raise ProblemError(409, "ended", f"session {session.name!r} has ended already")
    last = await asyncio.to_thread(service.store.last_seq, session.engine_id)
    update = {"ended_utc_ms": service.clock.utc_ms(), "last_seq": last}
    author = caller.author(body.author)
    audit = _audit(service, author, "session.stop", session.engine_id, session.name)
    stored = await _write(service, [session.model_copy(update=update), audit])
    assert isinstance(stored, SessionRecord)
    return info(stored)


@router.get("/sessions/{session_id}", responses=declared(404))
def show_session(session_id: SessionId, service: TheService) -> SessionInfo:
    """One session."""
    return info(_session(service, session_id))


@router.get("/sessions/{session_id}/ticks", responses=declared(404))
def list_session_ticks(
    session_id: SessionId,
    service: TheService,
    pages: ThePages,
    first_seq: Annotated[int, Query(ge=0, le=ROW_ID_MAX)] = 0,
    limit: Limit = 500,
) -> list[Tick]:
    """Its ticks from an observation on, oldest first.  Their row ids are 0."""
    session = _session(service, session_id)
    first = max(first_seq, session.first_seq)
    last = ROW_ID_MAX if session.last_seq is None else session.last_seq
    page = service.store.tick_texts(session.engine_id, first, last, limit)
    if page:
        pages.link(page, limit, first_seq=page[-1][0] + 1)
    return [
        tick_of(text, row_id=0, seq=seq, at_utc_ms=at_utc_ms, is_gap=is_gap)
        for seq, at_utc_ms, is_gap, text in page
        if text
    ]


@router.get(
    "/sessions/{session_id}/file", response_class=FileResponse, responses=declared(404, 409)
)
def session_file(session_id: SessionId, service: TheService, redact: bool = False) -> FileResponse:
    """The session as a file; `redact` takes names and URLs out of it."""
    session = _session(service, session_id)
    folder = tempfile.TemporaryDirectory(prefix="specdeck-")
    path = FilePath(folder.name) / f"{session.name}{SUFFIX}"
    try:
        wanted = range_of(service.store, session.name)
        export(service.store, wanted, path, redact=redact, version=VERSION)
    except StoreError as error:
        folder.cleanup()
        raise ProblemError(409, "not_exported", str(error)) from error
    return FileResponse(
        path,
        media_type="application/vnd.sqlite3",
        filename=path.name,
        background=BackgroundTask(folder.cleanup),
    )


@router.get("/engines/{engine_id}/markers", responses=declared(404))
def list_markers(
    engine_id: EngineId,
    service: TheService,
    pages: ThePages,
    limit: Limit = 1_000,
    before_id: BeforeId = None,
) -> list[Marker]:
    """Notes on an engine's time line, in order; the newest ones if there are more."""
    service.roster.check_known(engine_id)
    page = service.store.markers(engine_id, before_id=before_id, limit=limit)
    return pages.by_id(page, limit)


@router.post("/engines/{engine_id}/markers", responses=declared(404, 413))
async def add_marker(
    engine_id: EngineId, body: MarkerRequest, service: TheService, caller: Operator
) -> Marker:
    """Note a deploy, an incident, anything on the time line; made for webhooks too."""
    tick = service.runner(engine_id).status().tick
    author = caller.author(body.author)
    marker = Marker(
        engine_id=engine_id,
        at_utc_ms=service.clock.utc_ms(),
        seq=0 if tick is None else tick.observation.seq,
        kind=body.kind,
        author=author,
        text=body.text,
    )
    audit = _audit(service, author, "marker.add", engine_id, f"{body.kind}: {body.text}")
    stored = await _write(service, [marker, audit])
    assert isinstance(stored, Marker)
    return stored


def info(session: SessionRecord) -> SessionInfo:
    """A stored session as it is sent."""
    return SessionInfo(
        id=session.id,
        name=session.name,
        engine_id=session.engine_id,
        first_seq=session.first_seq,
        last_seq=session.last_seq,
        started_utc_ms=session.started_utc_ms,
        ended_utc_ms=session.ended_utc_ms,
        complete=session.ended_utc_ms is not None,
    )


def _session(service: Service, session_id: int) -> SessionRecord:
    found = next((one for one in service.store.sessions() if one.id == session_id), None)
    if found is None:
        raise ProblemError(404, "not_found", f"there is no session {session_id}")
    return found


def _audit(service: Service, actor: str, action: str, target: str, detail: str) -> AuditEntry:
    return AuditEntry(
        at_utc_ms=service.clock.utc_ms(), actor=actor, action=action, target=target, detail=detail
    )


async def _write(service: Service, records: list[Record]) -> Record:
    return (await asyncio.wrap_future(service.store.write(records)))[0]
