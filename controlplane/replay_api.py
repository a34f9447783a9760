"""The replay-only API: a recording with the paths and bodies of a control plane, read-only.

No engine client is imported, and nothing can be sent to an engine: every change of one is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request
from fastapi.responses import StreamingResponse
from fastapi.sse import EventSourceResponse, format_sse_event

from controlplane import problems
from controlplane.errors import ProblemError
from controlplane.gate import BodyLimit, HostGuard
from controlplane.hub import Subscription
from controlplane.messages import About, EngineStatus, Health, OverrideAnswer
from controlplane.problems import declared
from controlplane.replay_desk import SESSION_ID, ReplayDesk
from controlplane.replay_messages import Verification
from controlplane.replay_player import FASTEST, SLOWEST
from controlplane.sessions_messages import (
    ReplayRequest,
    ReplayState,
    SessionInfo,
    StripAnswer,
    TrackAnswer,
    WhatIfRequest,
)
from controlplane.version import VERSION
from controlplane.whatif_messages import WhatIf
from store.records import AuditEntry, Decision, EngineSwitch, Marker, Tick
from store.session_track import COLUMNS

HOLDER = "replay"
PING_S = 15.0
READ_ONLY = "this is a replay: nothing can be sent to an engine from here"
Limit = Annotated[int, Query(ge=1, le=10_000)]
SessionId = Annotated[int, Path(ge=1)]
_ERRORS = declared(400, 404, 421, 422, 500)


def create_replay_app(desk: ReplayDesk) -> FastAPI:
    """The application for one recording; it plays while the application lives."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:  # noqa: ARG001
        playing = asyncio.create_task(desk.run())
        try:
            yield
        finally:
            desk.hub.close()
            playing.cancel()
            with suppress(asyncio.CancelledError):
                await playing

    app = FastAPI(
        title="specdeck replay",
        version=VERSION,
        description="One recording, read-only, with a control plane's paths and bodies.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses=_ERRORS,
    )
    problems.install(app)
    app.add_middleware(BodyLimit)
    app.add_middleware(HostGuard, hosts=frozenset({"localhost", "127.0.0.1", "::1"}))
    _about(app, desk)
    _engine(app, desk)
    _session(app, desk)
    _refusals(app)
    return app


def _about(app: FastAPI, desk: ReplayDesk) -> None:
    @app.get("/v1")
    async def about() -> About:
        """Who answers: holder "replay", and nobody may change anything."""
        return About(
            version=VERSION,
            now_utc_ms=desk.status().now_utc_ms,
            holder=HOLDER,
            may_operate=False,
            override_max_s=0,
        )

    @app.get("/healthz")
    async def healthz() -> Health:
        """The process is up."""
        return Health(status="ok", version=VERSION)

    @app.get("/readyz")
    async def readyz() -> Health:
        """The recording is open."""
        return Health(status="ready", version=VERSION)

    @app.get("/v1/audit")
    async def audit() -> list[AuditEntry]:
        """A recording holds no audit."""
        return []


def _engine(app: FastAPI, desk: ReplayDesk) -> None:
    def check(engine_id: str) -> None:
        if engine_id != desk.engine_id:
            raise ProblemError(
                404,
                "unknown_engine",
                f"there is no engine {engine_id!r}; engines are: {desk.engine_id}",
            )

    @app.get("/v1/engines")
    def engines() -> list[EngineStatus]:
        """The recorded engine as it was at the position."""
        return [desk.status()]

    @app.get("/v1/engines/{engine_id}")
    def engine(engine_id: str) -> EngineStatus:
        """The same."""
        check(engine_id)
        return desk.status()

    @app.get("/v1/engines/{engine_id}/ticks")
    def ticks(engine_id: str, limit: Limit = 500, after_id: int | None = None) -> list[Tick]:
        """Ticks up to the position, oldest first."""
        check(engine_id)
        here = desk.tape.seqs[desk.state().place]
        if after_id is not None:
            return desk.session.ticks(after_id + 1, here, limit=limit)
        place = desk.tape.place_of(here)
        first = desk.tape.seqs[max(place - limit + 1, 0)]
        return desk.session.ticks(first, here, limit=limit)

    @app.get("/v1/engines/{engine_id}/decisions")
    def decisions(engine_id: str, limit: Limit = 100) -> list[Decision]:
        """Decisions up to the position, newest first."""
        check(engine_id)
        here = desk.tape.seqs[desk.state().place]
        found = [one for one in desk.session.decisions() if one.seq <= here]
        return found[::-1][:limit]

    @app.get("/v1/engines/{engine_id}/switches")
    def switches(engine_id: str, limit: Limit = 100) -> list[EngineSwitch]:
        """Engine switches up to the position, newest first."""
        check(engine_id)
        here = desk.status().now_utc_ms
        found = [one for one in desk.session.switches() if one.seen_utc_ms <= here]
        return found[::-1][:limit]

    @app.get("/v1/engines/{engine_id}/override")
    def override(engine_id: str) -> OverrideAnswer:
        """The override in force at the position."""
        check(engine_id)
        return OverrideAnswer(override=desk.override())

    @app.get("/v1/events", response_class=StreamingResponse)
    async def events() -> EventSourceResponse:
        """Ticks as the position passes them; an id is a sequence number, less after a seek back."""
        return EventSourceResponse(_live(desk), headers={"Cache-Control": "no-cache"})


def _session(app: FastAPI, desk: ReplayDesk) -> None:
    def check(session_id: int) -> None:
        if session_id != SESSION_ID:
            raise ProblemError(404, "not_found", f"a replay has one session, {SESSION_ID}")

    @app.get("/v1/replay")
    async def replay() -> ReplayState:
        """Where the replay stands."""
        return desk.state()

    @app.put("/v1/replay")
    async def order(body: ReplayRequest) -> ReplayState:
        """Play, pause, seek, jump, change the speed; it concerns this replay alone."""
        return desk.order(body)

    @app.get("/v1/sessions")
    async def sessions() -> list[SessionInfo]:
        """The recording."""
        return [desk.info()]

    @app.get("/v1/sessions/{session_id}")
    async def session(session_id: SessionId) -> SessionInfo:
        """The recording."""
        check(session_id)
        return desk.info()

    @app.get("/v1/sessions/{session_id}/ticks")
    def ticks(
        session_id: SessionId,
        first_seq: Annotated[int, Query(ge=0)] = 0,
        last_seq: Annotated[int | None, Query(ge=0)] = None,
        limit: Limit = 500,
    ) -> list[Tick]:
        """Ticks of a range of observations, oldest first, wherever the replay stands."""
        check(session_id)
        last = 2**63 - 1 if last_seq is None else last_seq
        return desk.session.ticks(first_seq, last, limit=limit)

    @app.get("/v1/sessions/{session_id}/decisions")
    def decisions(session_id: SessionId) -> list[Decision]:
        """All decisions, in order."""
        check(session_id)
        return desk.session.decisions()

    @app.get("/v1/sessions/{session_id}/markers")
    def markers(session_id: SessionId) -> list[Marker]:
        """All markers, in order."""
        check(session_id)
        return desk.session.markers()

    @app.get("/v1/sessions/{session_id}/track")
    def track(
        session_id: SessionId, every: Annotated[int, Query(ge=1, le=100_000)] = 1
    ) -> TrackAnswer:
        """The columns of the time line, each so-manieth tick."""
        check(session_id)
        return TrackAnswer(
            every=every, columns={name: desk.track[name][::every] for name in COLUMNS}
        )

    @app.get("/v1/sessions/{session_id}/strip")
    def strip(
        session_id: SessionId, cells: Annotated[int, Query(ge=1, le=2000)] = 60
    ) -> StripAnswer:
        """The time line in so many cells, made from all ticks: for drawing it."""
        check(session_id)
        return desk.strip(cells)

    @app.get("/v1/sessions/{session_id}/events", response_class=StreamingResponse)
    async def events(
        session_id: SessionId,
        speed: Annotated[float, Query(ge=SLOWEST, le=FASTEST)] = 1.0,
        first_seq: Annotated[int, Query(ge=0)] = 0,
    ) -> EventSourceResponse:
        """Every tick from ``first_seq`` on at a chosen speed, for this reader alone."""
        check(session_id)
        return EventSourceResponse(
            _paced(desk, speed, first_seq), headers={"Cache-Control": "no-cache"}
        )

    @app.get("/v1/sessions/{session_id}/verify")
    def verification(session_id: SessionId) -> Verification:
        """Run the recorded policy over the recorded observations and compare."""
        check(session_id)
        return desk.verify()

    @app.post("/v1/sessions/{session_id}/what-if")
    def what_if(session_id: SessionId, body: WhatIfRequest) -> WhatIf:
        """Ask another policy about the recording; it is kept nowhere."""
        check(session_id)
        return desk.what_if(body)

    @app.delete("/v1/sessions/{session_id}/what-if")
    async def forget_what_if(session_id: SessionId) -> ReplayState:
        """Take its marks off the time line."""
        check(session_id)
        desk.forget_what_if()
        return desk.state()


def _refusals(app: FastAPI) -> None:
    async def refuse(request: Request) -> Any:  # noqa: ARG001
        raise ProblemError(409, "replay", READ_ONLY)

    app.add_api_route(
        "/v1/{rest:path}",
        refuse,
        methods=["POST", "PUT", "DELETE", "PATCH"],
        include_in_schema=False,
    )


async def _live(desk: ReplayDesk) -> AsyncIterator[bytes]:
    joined: Subscription
    with desk.hub.subscribe() as joined:
        yield format_sse_event(comment="specdeck replay", retry=1000)
        tick = await asyncio.to_thread(desk.tick)
        if tick is not None:
            yield format_sse_event(event="tick", id=str(tick.id), data_str=tick.model_dump_json())
        async for event in joined.events(PING_S):
            if event is None:
                yield format_sse_event(comment="ping")
            else:
                yield format_sse_event(event="tick", id=str(event.id), data_str=event.data)


async def _paced(desk: ReplayDesk, speed: float, first_seq: int) -> AsyncIterator[bytes]:
    yield format_sse_event(comment="specdeck replay", retry=1000)
    tape, loop = desk.tape, asyncio.get_running_loop()
    place = tape.place_of(first_seq)
    while place < len(tape.seqs) and tape.seqs[place] < first_seq:
        place += 1
    begun, base = loop.time(), tape.times_ms[place] if place < len(tape.seqs) else 0
    while place < len(tape.seqs):
        last = min(place + 200, len(tape.seqs)) - 1
        page = await asyncio.to_thread(
            desk.session.ticks, tape.seqs[place], tape.seqs[last], limit=200
        )
        for tick in page:
            at = tape.times_ms[tape.place_of(tick.observation.seq)]
            wait = (at - base) / 1000 / speed - (loop.time() - begun)
            if wait > 0:
                await asyncio.sleep(wait)
            yield format_sse_event(event="tick", id=str(tick.id), data_str=tick.model_dump_json())
        place = last + 1
    yield format_sse_event(event="end", data_str="{}")
