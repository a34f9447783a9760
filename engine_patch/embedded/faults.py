"""Faults on demand: what the fault port can make an embedded engine do.

The port is a second server on loopback, never opened unless asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from engine_patch.routes import PATH
from engine_patch.tier import Frozen

SERVER_INFO = "/server_info"


class FaultOrder(Frozen):
    """Body of ``POST /faults``; only what is named changes, ``clear`` first.

    Args:
        hang: seconds during which every request on the main port waits.
        lie: commands are answered as applied, and nothing changes.
        rank_refuses: this TP rank of every replica keeps the tier it has now; null heals it.
        restart: everything in flight fails, counters start at 0, a new boot id.
        hang_info: seconds during which ``/server_info`` alone waits.
        drip: milliseconds between two bytes of every answer's body; 0 heals it.
        slow: milliseconds added to every answer.
        error: this many answers become 500.
        drop_speculation: ``/speculation`` does not exist (plugin absent).
        refused: ``/speculation`` answers 503 with this sentence (plugin refused); "" heals it.
        protocol: the protocol number ``GET /speculation`` claims; null heals it.
        freeze_sample: ``/speculation`` repeats its numbers, and they age.
        kv_pressure: KV slots held by nobody.
        accept: mean accept length of the chain of three from now on.
        clear: heal everything.
    """

    hang: float | None = Field(default=None, ge=0, le=600)
    hang_info: float | None = Field(default=None, ge=0, le=600)
    drip: float | None = Field(default=None, ge=0, le=60_000)
    lie: bool | None = None
    rank_refuses: int | None = Field(default=None, ge=0)
    restart: bool | None = None
    slow: float | None = Field(default=None, ge=0, le=60_000)
    error: int | None = Field(default=None, ge=0)
    drop_speculation: bool | None = None
    refused: str | None = None
    protocol: int | None = Field(default=None, ge=0)
    freeze_sample: bool | None = None
    kv_pressure: int | None = Field(default=None, ge=0)
    accept: float | None = Field(default=None, ge=1.0, le=4.0)
    clear: bool | None = None


class Faults:
    """The faults in force."""

    def __init__(self) -> None:
        self.closing = asyncio.Event()
        self.clear()

    def clear(self) -> None:
        """Heal everything that is kept here."""
        self.hang_until: float | None = None
        self.info_until: float | None = None
        self.drip_ms = 0.0
        self.lie = False
        self.rank_refuses: int | None = None
        self.slow_ms = 0.0
        self.errors = 0
        self.drop_speculation = False
        self.refused = ""
        self.protocol: int | None = None
        self.freeze_sample = False
        self.kv_pressure = 0

    def take(self, order: FaultOrder) -> None:
        """Apply what an order names; restart, KV and acceptance are the host's to apply."""
        if order.clear:
            self.clear()
        if order.hang is not None:
            self.hang_until = asyncio.get_running_loop().time() + order.hang
        if order.hang_info is not None:
            self.info_until = asyncio.get_running_loop().time() + order.hang_info
        if order.drip is not None:
            self.drip_ms = order.drip
        named = order.model_fields_set
        if order.lie is not None:
            self.lie = order.lie
        if "rank_refuses" in named:
            self.rank_refuses = order.rank_refuses
        if order.slow is not None:
            self.slow_ms = order.slow
        if order.error is not None:
            self.errors = order.error
        if order.drop_speculation is not None:
            self.drop_speculation = order.drop_speculation
        if order.refused is not None:
            self.refused = order.refused
        if "protocol" in named:
            self.protocol = order.protocol
        if order.freeze_sample is not None:
            self.freeze_sample = order.freeze_sample
        if order.kv_pressure is not None:
            self.kv_pressure = order.kv_pressure

    def in_force(self) -> dict[str, Any]:
        """What ``GET /faults`` shows."""
        return {
            "hang_left_s": _left_s(self.hang_until),
            "hang_info_left_s": _left_s(self.info_until),
            "drip_ms": self.drip_ms,
            "lie": self.lie,
            "rank_refuses": self.rank_refuses,
            "slow_ms": self.slow_ms,
            "errors_left": self.errors,
            "drop_speculation": self.drop_speculation,
            "refused": self.refused,
            "protocol": self.protocol,
            "freeze_sample": self.freeze_sample,
            "kv_pressure": self.kv_pressure,
        }

    async def wait(self, path: str) -> None:
        """Hang and slowness; ends at once when the server closes."""
        if self.slow_ms:
            await self.pause(self.slow_ms / 1000)
        while not self.closing.is_set():
            left = _left_s(self.hang_until) or 0.0
            if path == SERVER_INFO:
                left = max(left, _left_s(self.info_until) or 0.0)
            if left <= 0:
                return
            # In short naps, so that a later order can end or lengthen it.
            await self.pause(min(left, 0.05))

    async def pause(self, seconds: float) -> None:
        """Wait so long, or until the server closes."""
        try:
            await asyncio.wait_for(self.closing.wait(), seconds)
        except TimeoutError:
            return

    def answer_instead(self, path: str) -> Response | None:
        """The answer a fault gives in place of the real one."""
        if self.errors > 0:
            self.errors -= 1
            return JSONResponse({"error": {"message": "fault port: error"}}, 500)
        if path == PATH and self.drop_speculation:
            return PlainTextResponse("Not Found", 404)
        if path == PATH and self.refused:
            return JSONResponse({"plugin": "refused", "message": self.refused}, 503)
        return None


def _left_s(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - asyncio.get_running_loop().time())


class Surface:
    """ASGI middleware: faults, and the header that says that times are simulated."""

    def __init__(self, app: ASGIApp, faults: Faults, table: str) -> None:
        self._app = app
        self._faults = faults
        self._header = (b"x-specdeck-simulated", table.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        faults = self._faults

        async def marked(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], self._header]
            elif faults.drip_ms and message["type"] == "http.response.body":
                body = message.get("body", b"")
                for at in range(len(body)):
                    await send({**message, "body": body[at : at + 1], "more_body": True})
                    await faults.pause(faults.drip_ms / 1000)
                message = {**message, "body": b""}
            await send(message)

        await faults.wait(scope["path"])
        instead = faults.answer_instead(scope["path"])
        await (instead or self._app)(scope, receive, marked)


def fault_app(
    faults: Callable[[], Faults], take: Callable[[FaultOrder], Awaitable[None]]
) -> Starlette:
    """The application of the fault port."""

    async def show(_request: Request) -> Response:
        return JSONResponse(faults().in_force())

    async def order(request: Request) -> Response:
        try:
            wanted = FaultOrder.model_validate_json(await request.body())
        except ValidationError as error:
            problems = [
                f"{'.'.join(map(str, item['loc']))}: {item['msg']}"
                for item in error.errors(include_url=False, include_input=False)
            ]
            return JSONResponse(
                {"message": "; ".join(problems), "allowed": list(FaultOrder.model_fields)}, 422
            )
        await take(wanted)
        return JSONResponse(faults().in_force())

    return Starlette(
        routes=[
            Route("/faults", show, methods=["GET"]),
            Route("/faults", order, methods=["POST"]),
        ]
    )
