"""Typed client of the control plane's REST API: the only one, for console, CLI and scripts.

Needs httpx, and httpx-sse for the event stream; nothing of the server.  Answers of a newer server
are read too: keys that this build does not know are ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel

from controlplane.client_answers import Answers
from controlplane.client_benchmarks import BenchmarkCalls
from controlplane.client_calls import (
    ControlPlaneError,
    NotConfirmedError,
    RefusedError,
    UnauthorisedError,
    UnreachableError,
    engine_path,
)
from controlplane.client_fleet import FleetCalls
from controlplane.client_policies import PolicyCalls
from controlplane.messages import About, EngineStatus
from controlplane.sessions_client import SessionCalls
from store.records import AuditEntry, Decision, EngineSwitch, Tick

__all__ = [
    "DEFAULT_URL",
    "ControlPlaneClient",
    "ControlPlaneError",
    "NotConfirmedError",
    "RefusedError",
    "UnauthorisedError",
    "UnreachableError",
]

DEFAULT_URL = "http://127.0.0.1:7311"
RETRY_FIRST_S = 0.25
RETRY_MAX_S = 5.0
STREAM_SILENCE_S = 40.0
"""Seconds without a byte, pings of every 15 s included, after which a stream counts as dead."""


class ControlPlaneClient(Answers, BenchmarkCalls, FleetCalls, PolicyCalls, SessionCalls):
    """Talks to one control plane; an async context manager.

    Args:
        url: base URL, for example http://127.0.0.1:7311.
        token: bearer token, None on loopback.
        timeout_s: seconds a request may take; the event stream has its own limit.
    """

    def __init__(
        self, url: str = DEFAULT_URL, token: str | None = None, *, timeout_s: float = 5.0
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ControlPlaneError(f"{url!r} is no URL: write http://HOST:PORT")
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # A proxy set for the internet must not be asked for this machine.
        own = parts.hostname in ("localhost", "127.0.0.1", "::1")
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            timeout=timeout_s,
            trust_env=not own,
            # Reading the trusted authorities takes longer than the first answer; without TLS, and
            # without a proxy that may have it, none is needed.
            verify=parts.scheme == "https" or not own,
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def about(self) -> About:
        """Who answers, and what this token may do."""
        return self._read(About, await self._request("GET", "/v1"))

    async def engines(self, *, retired: bool = False) -> list[EngineStatus]:
        """Every engine with its newest tick; or those that are looked after no more."""
        query = {"retired": "true"} if retired else None
        answer = await self._request("GET", "/v1/engines", query=query)
        return self._read_list(EngineStatus, answer)

    async def engine(self, engine_id: str) -> EngineStatus:
        """One engine with its newest tick."""
        return self._read(EngineStatus, await self._request("GET", engine_path(engine_id)))

    async def ticks(
        self, engine_id: str, limit: int = 500, after_id: int | None = None
    ) -> list[Tick]:
        """The newest ticks, or the first ones after a row id; oldest first."""
        query = {"limit": limit} | ({} if after_id is None else {"after_id": after_id})
        answer = await self._request("GET", engine_path(engine_id, "ticks"), query=query)
        return self._read_list(Tick, answer)

    async def decisions(
        self, engine_id: str, limit: int = 100, before_id: int | None = None
    ) -> list[Decision]:
        """The newest decisions, newest first; older than ``before_id`` to page."""
        path = engine_path(engine_id, "decisions")
        return self._read_list(Decision, await self._page(path, limit, before_id))

    async def switches(
        self, engine_id: str, limit: int = 100, before_id: int | None = None
    ) -> list[EngineSwitch]:
        """The newest changes the engine made, newest first; older than ``before_id`` to page."""
        path = engine_path(engine_id, "switches")
        return self._read_list(EngineSwitch, await self._page(path, limit, before_id))

    async def audit(self, limit: int = 100, before_id: int | None = None) -> list[AuditEntry]:
        """Audit rows, newest first; older than ``before_id`` to page."""
        return self._read_list(AuditEntry, await self._page("/v1/audit", limit, before_id))

    async def _page(self, path: str, limit: int, before_id: int | None) -> bytes:
        query = {"limit": limit} | ({} if before_id is None else {"before_id": before_id})
        return await self._request("GET", path, query=query)

    async def events(
        self,
        engine_id: str | None = None,
        last_event_id: int | None = None,
        *,
        on_link: Callable[[ControlPlaneError | None], None] | None = None,
    ) -> AsyncGenerator[Tick, None]:
        """Ticks as they are stored, for ever; comes back by itself without losing any.

        Args:
            engine_id: one engine; None for all.
            last_event_id: row id of the last tick seen; None starts with the next one.
            on_link: told the error when the stream is lost, and None when it is back.

        A tick with id 0 is not stored yet; it comes again with its id once it is.

        Raises:
            UnauthorisedError, RefusedError: coming back would not help.
        """
        query = {} if engine_id is None else {"engine": engine_id}
        wait_s = RETRY_FIRST_S
        while True:
            try:
                async with aclosing(self._stream(query, last_event_id, on_link)) as stream:
                    async for tick in stream:
                        wait_s = RETRY_FIRST_S
                        last_event_id = tick.id or last_event_id
                        yield tick
                trouble = UnreachableError(f"{self.url} ended the event stream")
            except UnreachableError as error:
                trouble = error
            if on_link is not None:
                on_link(trouble)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, RETRY_MAX_S)

    async def _stream(
        self,
        query: Mapping[str, Any],
        last_event_id: int | None,
        on_link: Callable[[ControlPlaneError | None], None] | None,
    ) -> AsyncGenerator[Tick, None]:
        # Imported here because requests alone need it not.
        import httpx_sse

        headers = {} if last_event_id is None else {"Last-Event-ID": str(last_event_id)}
        limits = httpx.Timeout(self._timeout_s, read=STREAM_SILENCE_S)
        try:
            async with httpx_sse.aconnect_sse(
                self._http, "GET", "/v1/events", params=query, headers=headers, timeout=limits
            ) as source:
                if source.response.status_code != 200:
                    await source.response.aread()
                    self._raise_for(source.response)
                if on_link is not None:
                    on_link(None)
                async with aclosing(source.aiter_sse()) as events:
                    async for event in events:
                        if event.event == "tick":
                            yield self._read(Tick, event.data)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        except httpx_sse.SSEError as error:
            raise UnreachableError(f"{self.url} sends no event stream: {error}") from error

    async def _server_sent(self, path: str) -> AsyncGenerator[tuple[str, str], None]:
        """The (event, data) pairs of a stream that ends."""
        import httpx_sse

        limits = httpx.Timeout(self._timeout_s, read=STREAM_SILENCE_S)
        try:
            async with httpx_sse.aconnect_sse(self._http, "GET", path, timeout=limits) as source:
                if source.response.status_code != 200:
                    await source.response.aread()
                    self._raise_for(source.response)
                async with aclosing(source.aiter_sse()) as events:
                    async for event in events:
                        yield event.event, event.data
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        except httpx_sse.SSEError as error:
            raise UnreachableError(f"{self.url} sends no event stream: {error}") from error

    async def _request(
        self,
        method: str,
        path: str,
        *,
        body: BaseModel | None = None,
        query: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> bytes:
        return (await self._send(method, path, body, query, timeout_s)).content

    async def _change(
        self,
        method: str,
        path: str,
        body: BaseModel,
        *,
        dry_run: bool = False,
        wait_s: float | None = None,
        if_match: str | None = None,
    ) -> tuple[bytes, bool]:
        query: dict[str, Any] = {"dry_run": "true"} if dry_run else {}
        if wait_s is not None:
            query |= {"wait": "confirmed", "timeout": wait_s}
        timeout_s = self._timeout_s + (wait_s or 0.0)
        headers = {} if if_match is None else {"If-Match": if_match}
        response = await self._send(method, path, body, query, timeout_s, headers)
        late = wait_s is not None and not dry_run and response.status_code == 202
        return response.content, late

    async def _send(
        self,
        method: str,
        path: str,
        body: BaseModel | None,
        query: Mapping[str, Any] | None,
        timeout_s: float | None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        kind = {} if body is None else {"Content-Type": "application/json"}
        try:
            response = await self._http.request(
                method,
                path,
                content=None if body is None else body.model_dump_json(),
                headers={**kind, **(headers or {})},
                params=query,
                timeout=self._timeout_s if timeout_s is None else timeout_s,
            )
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if response.status_code >= 300:
            self._raise_for(response)
        return response
