"""The session and replay calls of ``ControlPlaneClient``.

Their records are loaded with the first call: a console that only watches starts without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.client_calls import Calls, engine_path
from store.records import Decision, Marker, Tick

if TYPE_CHECKING:
    from controlplane.replay_messages import Verification
    from controlplane.sessions_messages import (
        MarkerRequest,
        ReplayRequest,
        ReplayState,
        SessionInfo,
        StartSession,
        StopSession,
        StripAnswer,
        TrackAnswer,
        WhatIfRequest,
    )
    from controlplane.whatif_messages import WhatIf

LONG_S = 120.0
"""Seconds that an answer over a whole recording may take."""
VERIFY_S = 1800.0
"""The same for a verification, which runs every step again: a minute for a day, on a quiet core."""


class SessionCalls(Calls):
    """Name, list and download sessions; steer and ask a replay."""

    async def sessions(self) -> list[SessionInfo]:
        """All sessions, newest first; a replay has one."""
        from controlplane.sessions_messages import SessionInfo

        return self._read_list(SessionInfo, await self._request("GET", "/v1/sessions"))

    async def start_session(self, request: StartSession) -> SessionInfo:
        """Give what is recorded from now on a name."""
        from controlplane.sessions_messages import SessionInfo

        return self._read(SessionInfo, await self._request("POST", "/v1/sessions", body=request))

    async def stop_session(self, session_id: int, request: StopSession) -> SessionInfo:
        """End a named session."""
        from controlplane.sessions_messages import SessionInfo

        path = f"/v1/sessions/{session_id}/stop"
        return self._read(SessionInfo, await self._request("POST", path, body=request))

    async def session_file(self, session_id: int, *, redact: bool = False) -> bytes:
        """The session file."""
        query = {"redact": "true" if redact else "false"}
        path = f"/v1/sessions/{session_id}/file"
        return await self._request("GET", path, query=query, timeout_s=LONG_S)

    async def session_ticks(
        self, session_id: int, *, first_seq: int = 0, limit: int = 500
    ) -> list[Tick]:
        """Ticks of a session from an observation on."""
        query = {"first_seq": first_seq, "limit": limit}
        path = f"/v1/sessions/{session_id}/ticks"
        return self._read_list(Tick, await self._request("GET", path, query=query))

    async def session_decisions(self, session_id: int = 1) -> list[Decision]:
        """All decisions of a replayed session, in order."""
        path = f"/v1/sessions/{session_id}/decisions"
        return self._read_list(Decision, await self._request("GET", path))

    async def session_markers(self, session_id: int = 1) -> list[Marker]:
        """All markers of a replayed session, in order."""
        path = f"/v1/sessions/{session_id}/markers"
        return self._read_list(Marker, await self._request("GET", path))

    async def session_track(self, session_id: int = 1, *, every: int = 1) -> TrackAnswer:
        """The time line's columns."""
        from controlplane.sessions_messages import TrackAnswer

        path = f"/v1/sessions/{session_id}/track"
        answer = await self._request("GET", path, query={"every": every}, timeout_s=LONG_S)
        return self._read(TrackAnswer, answer)

    async def session_strip(self, cells: int, session_id: int = 1) -> StripAnswer:
        """The time line in so many cells."""
        from controlplane.sessions_messages import StripAnswer

        path = f"/v1/sessions/{session_id}/strip"
        answer = await self._request("GET", path, query={"cells": cells}, timeout_s=LONG_S)
        return self._read(StripAnswer, answer)

    async def add_marker(self, engine_id: str, request: MarkerRequest) -> Marker:
        """Note something on an engine's time line."""
        path = engine_path(engine_id, "markers")
        return self._read(Marker, await self._request("POST", path, body=request))

    async def replay(self) -> ReplayState:
        """Where a replay stands."""
        from controlplane.sessions_messages import ReplayState

        return self._read(ReplayState, await self._request("GET", "/v1/replay"))

    async def order_replay(self, request: ReplayRequest) -> ReplayState:
        """Play, pause, seek, jump."""
        from controlplane.sessions_messages import ReplayState

        return self._read(ReplayState, await self._request("PUT", "/v1/replay", body=request))

    async def verify_session(self, session_id: int = 1) -> Verification:
        """Run the recorded policy over the recorded observations and compare."""
        from controlplane.replay_messages import Verification

        path = f"/v1/sessions/{session_id}/verify"
        return self._read(Verification, await self._request("GET", path, timeout_s=VERIFY_S))

    async def what_if(self, request: WhatIfRequest, session_id: int = 1) -> WhatIf:
        """Ask another policy about a replayed session."""
        from controlplane.whatif_messages import WhatIf

        path = f"/v1/sessions/{session_id}/what-if"
        answer = await self._request("POST", path, body=request, timeout_s=LONG_S)
        return self._read(WhatIf, answer)

    async def forget_what_if(self, session_id: int = 1) -> ReplayState:
        """Take the last what-if off a replay's time line."""
        from controlplane.sessions_messages import ReplayState

        path = f"/v1/sessions/{session_id}/what-if"
        return self._read(ReplayState, await self._request("DELETE", path))
