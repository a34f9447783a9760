"""Idempotency keys: a change that is sent again with the same key is answered, not made, again.

Answers lie in the store (``store.kept_answers``), so they outlive a restart.  A key is stored
before the change is made: one that is found unanswered after a start has an outcome that nobody
knows, and is told so instead of being made a second time.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controlplane.problems import answer
from controlplane.security import Tokens
from controlplane.service import Service
from store.errors import StoreError
from store.idempotency import KeptAnswer, KeptState
from store.kept_answers import KEEP_MS

LONGEST = 200
METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})
UNDECIDED = frozenset({401, 403, 429})
"""Statuses beside 5xx that say that nothing was decided: the same key may try again."""
log = logging.getLogger("specdeck.api")


class Idempotency:
    """Middleware for the ``Idempotency-Key`` header of changes under ``/v1``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._making: dict[tuple[str, str], str] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a repeated change from the store, pass everything else on."""
        if scope["type"] != "http" or scope["method"] not in METHODS:
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        given = headers.get(b"idempotency-key")
        caller = _caller(scope, headers)
        if given is None or caller is None or not scope["path"].startswith("/v1/"):
            # A caller who may not change is refused by the route, and uses up no key.
            await self._app(scope, receive, send)
            return
        key = given.decode("latin-1")
        if not 1 <= len(key) <= LONGEST:
            text = f"an Idempotency-Key has 1 to {LONGEST} characters"
            await answer(422, "bad_key", text)(scope, receive, send)
            return
        try:
            body, replayed = await _read(receive)
        except HTTPException as error:
            await answer(error.status_code, "too_large", str(error.detail))(scope, receive, send)
            return
        asked = KeptAnswer(
            caller=caller,
            key=key,
            request=_digest(scope, headers, body),
            at_utc_ms=_service(scope).clock.utc_ms(),
        )
        place = (caller, key)
        if place in self._making:
            await _refusal(asked, self._making[place], KeptState.MAKING, alive=True)(
                scope, receive, send
            )
            return
        self._making[place] = asked.request
        try:
            await self._once(asked, scope, replayed, send)
        finally:
            del self._making[place]

    async def _once(self, asked: KeptAnswer, scope: Scope, receive: Receive, send: Send) -> None:
        """Make the change, unless it was made before."""
        service = _service(scope)
        try:
            kept = await asyncio.to_thread(service.store.kept_answer, asked.caller, asked.key)
            if kept is None or asked.at_utc_ms - kept.at_utc_ms > KEEP_MS:
                await _put(service, asked)
                kept = None
        except StoreError as error:
            text = f"nothing was changed, because the key cannot be recorded: {error}"
            await answer(503, "store_failed", text)(scope, receive, send)
            return
        if kept is not None:
            if kept.request == asked.request and kept.state is KeptState.ANSWERED:
                await _again(kept, send)
            else:
                await _refusal(asked, kept.request, kept.state)(scope, receive, send)
            return
        messages: list[Message] = []

        async def noted(message: Message) -> None:
            # Held back until it is stored: a client that saw an answer gets the same one again.
            messages.append(message)

        try:
            await self._app(scope, receive, noted)
        except BaseException:
            await _settled(service, asked.model_copy(update={"state": KeptState.DROPPED}))
            raise
        await _settled(service, _answered(asked, messages))
        for message in messages:
            await send(message)


def _answered(asked: KeptAnswer, messages: list[Message]) -> KeptAnswer:
    status = messages[0]["status"] if messages else 500
    if status >= 500 or status in UNDECIDED:
        return asked.model_copy(update={"state": KeptState.DROPPED})
    body = b"".join(message.get("body", b"") for message in messages[1:])
    return asked.model_copy(
        update={
            "state": KeptState.ANSWERED,
            "status": status,
            "headers": tuple(
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in messages[0]["headers"]
            ),
            "text": body.decode("utf-8", "replace"),
        }
    )


async def _again(kept: KeptAnswer, send: Send) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in kept.headers]
    headers.append((b"idempotency-replayed", b"true"))
    await send({"type": "http.response.start", "status": kept.status, "headers": headers})
    await send({"type": "http.response.body", "body": kept.text.encode()})


def _refusal(asked: KeptAnswer, request: str, state: KeptState, *, alive: bool = False) -> ASGIApp:
    """Why a change with a known key is not made."""
    if request != asked.request:
        text = f"Idempotency-Key {asked.key!r} was used for another request"
        return answer(422, "key_reused", text)
    assert state is not KeptState.DROPPED, "a dropped key is not stored"
    if alive:
        text = "the first request with this Idempotency-Key is not answered yet"
        return answer(409, "in_progress", text)
    return answer(
        409,
        "outcome_unknown",
        "the control plane stopped while it made the first request with this Idempotency-Key: look "
        "whether it took effect, and ask with another key if it did not",
    )


async def _settled(service: Service, kept: KeptAnswer) -> None:
    try:
        await _put(service, kept)
    except StoreError as error:
        log.error("the answer under an Idempotency-Key is not kept: %s", error)


async def _put(service: Service, kept: KeptAnswer) -> None:
    await asyncio.wrap_future(service.store.write([kept]))


def _service(scope: Scope) -> Service:
    service: Service = scope["app"].state.service
    return service


def _caller(scope: Scope, headers: Mapping[bytes, bytes]) -> str | None:
    """The name of the token that was sent, "" where none is needed; None if it may not change."""
    tokens: Tokens = scope["app"].state.tokens
    if not tokens:
        return ""
    scheme, _, value = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    found = tokens.find(value.strip()) if scheme.lower() == "bearer" else None
    return found.name if found is not None and found.may_operate else None


def _digest(scope: Scope, headers: Mapping[bytes, bytes], body: bytes) -> str:
    target = f"{scope['method']} {scope['path']}?".encode() + scope["query_string"]
    parts = (target, headers.get(b"if-match", b""), body)
    return hashlib.sha256(b"\n".join(parts)).hexdigest()


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
