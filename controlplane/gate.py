"""What is refused before any route sees it: foreign web pages and bodies that are too large."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controlplane import problems
from controlplane.settings import Settings, is_loopback

BODY_BYTES = 65_536
"""Largest request body; every body of this API is far smaller."""
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_TOO_LARGE = f"a body may have {BODY_BYTES} bytes at most"


class HostGuard:
    """Refuses requests that a foreign web page made a browser send.

    On loopback a page can name its own domain with an address of 127.0.0.1 (DNS rebinding); the
    Host header gives it away.  A page can also send a write across sites; its Origin does.

    Args:
        hosts: names that the Host header may carry; None to allow any (tokens protect then).
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check an HTTP request, pass everything else on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host = _host(headers.get("host", ""))
        if self._hosts is not None and host not in self._hosts:
            response = problems.answer(
                421,
                "foreign_host",
                f"this server is not {host or 'without a name'}: use the address it listens on, or "
                "add the name to listen.hosts",
            )
            await response(scope, receive, send)
            return
        origin = headers.get("origin")
        if origin and scope["method"] not in _SAFE and _host(urlsplit(origin).netloc) != host:
            response = problems.answer(
                403, "foreign_origin", "changes asked for by another site's page are refused"
            )
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _host(value: str) -> str:
    """The name in a Host header, without its port."""
    value = value.strip().lower()
    if value.startswith("["):
        return value.partition("]")[0].lstrip("[")
    return value.rpartition(":")[0] if ":" in value else value


def allowed_hosts(settings: Settings) -> frozenset[str] | None:
    """The names that may stand in the Host header; None where any may."""
    bound = settings.listen.host
    if not is_loopback(bound):
        return None
    own = {"localhost", "127.0.0.1", "::1", bound.strip("[]").lower()}
    return frozenset(own | {name.lower() for name in settings.listen.hosts})


class BodyLimit:
    """Refuses bodies above ``BODY_BYTES``, whether their length is announced or not."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count what an HTTP request sends, pass everything else on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdecimal() and int(announced) > BODY_BYTES:
            response = problems.answer(413, "too_large", _TOO_LARGE)
            await response(scope, receive, send)
            return
        taken = 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > BODY_BYTES:
                raise HTTPException(413, _TOO_LARGE)
            return message

        await self._app(scope, counted, send)
