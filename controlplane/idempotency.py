"""Idempotency keys: a change that is sent again with the same key is answered, not made, again.

Kept in memory for a day, for the newest thousand keys: it is there for retries after a lost answer.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from dataclasses import dataclass
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controlplane.problems import answer

KEYS = 1000
KEEP_S = 86_400.0
LONGEST = 200
METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass
class _Kept:
    """One request's answer; ``messages`` is empty while it is being made."""

    request: bytes
    at_s: float
    messages: tuple[Message, ...] = ()


class Idempotency:
    """Middleware for the ``Idempotency-Key`` header of changes under ``/v1``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in METHODS:
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        given = headers.get(b"idempotency-key")
        if given is None or not scope["path"].startswith("/v1/"):
            await self._app(scope, receive, send)
            return
        key = given.decode("latin-1")
        if not 1 <= len(key) <= LONGEST:
            await _problem(422, "bad_key", f"an Idempotency-Key has 1 to {LONGEST} characters")(
                scope, receive, send
            )
            return
        body, replayed = await _read(receive)
        # Another caller's key is another key: nobody is answered with somebody else's answer.
        who = hashlib.sha256(headers.get(b"authorization", b"")).hexdigest()
        request = hashlib.sha256(
            f"{scope['method']} {scope['path']}?".encode() + scope["query_string"] + b"\n" + body
        ).digest()
        self._forget()
        place = (who, key)
        kept = self._kept.get(place)
        if kept is not None:
            await self._again(kept, request, key)(scope, receive, send)
            return
        self._kept[place] = _Kept(request, time.monotonic())
        messages: list[Message] = []

        async def noted(message: Message) -> None:
            messages.append(message)
            await send(message)

        try:
            await self._app(scope, replayed, noted)
        finally:
            status = messages[0]["status"] if messages else 500
            if status >= 500 or status in (401, 403, 429):
                # Nothing was decided: the same key may try again.
                self._kept.pop(place, None)
            elif place in self._kept:
                self._kept[place].messages = tuple(messages)

    def _again(self, kept: _Kept, request: bytes, key: str) -> ASGIApp:
        if kept.request != request:
            return _problem(
                422, "key_reused", f"Idempotency-Key {key!r} was used for another request"
            )
        if not kept.messages:
            return _problem(
                409,
                "in_progress",
                "the first request with this Idempotency-Key is not answered yet",
            )

        async def same(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
            for message in kept.messages:
                if message["type"] == "http.response.start":
                    headers = [*message["headers"], (b"idempotency-replayed", b"true")]
                    message = {**message, "headers": headers}
                await send(message)

        return same

    def _forget(self) -> None:
        now = time.monotonic()
        while self._kept:
            place, kept = next(iter(self._kept.items()))
            if len(self._kept) < KEYS and now - kept.at_s < KEEP_S:
                return
            del self._kept[place]


def _problem(status: int, code: str, detail: str) -> ASGIApp:
    return answer(HTTPStatus(status).value, code, detail)


async def _read(receive: Receive) -> tuple[bytes, Receive]:
    """The whole body, and a ``receive`` that hands it out again."""
    parts: list[Message] = []
    body = b""
    while True:
        message = await receive()
        parts.append(message)
        if message["type"] != "http.request":
            break
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break

    async def replay() -> Message:
        return parts.pop(0) if parts else await receive()

    return body, replay
