"""The console in a browser: textual-serve behind a login.

textual-serve runs one console process per visitor and carries its screen over a websocket.  This
adds who may: a session cookie that no script can read, one control plane token and name per
visitor, and no page of another site may open or post anything.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp_jinja2
from aiohttp import web
from textual_serve.app_service import AppService
from textual_serve.server import Server, to_int

from console.web_visitors import SESSION_S, LoginError, Visitor, Visitors

COOKIE = "specdeck_session"
MOST_CONSOLES = 16
"""Consoles at a time; each is a process."""
PAGES = Path(__file__).with_name("web_pages")
OPEN = ("/login", "/page.css")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_RUN = "import sys; from console.cli import run; sys.exit(run(sys.argv[1:]))"
_SECRET = ("SPECDECK_TOKEN", "SPECDECK_TOKEN_FILE")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class VisitorService(AppService):
    """One visitor's console process, under his own token and name."""

    visitor: Visitor
    arguments: Sequence[str]

    def _build_environment(self, width: int = 80, height: int = 24) -> dict[str, str]:
        environment = super()._build_environment(width, height)
        for name in _SECRET:
            environment.pop(name, None)
        if self.visitor.token is not None:
            environment["SPECDECK_TOKEN"] = self.visitor.token
        return environment

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        # By its arguments, never through a shell: the name is whatever the visitor wrote.
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _RUN,
            *self.arguments,
            f"--author={self.visitor.name}",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._build_environment(width, height),
        )
        assert process.stdin is not None
        self._stdin = process.stdin
        return process


class WebServer(Server):
    """The pages, the login, and a console per visitor.

    Args:
        arguments: of ``specdeck console``, the control plane's URL among them.
        sock: where it listens.
        public_url: its address in browsers, "" for that of the socket.
    """

    def __init__(
        self, visitors: Visitors, arguments: Sequence[str], sock: socket.socket, public_url: str
    ) -> None:
        host, port = sock.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        super().__init__(
            "specdeck console",
            host,
            port,
            title="specdeck",
            public_url=(public_url or f"http://{shown}:{port}").rstrip("/"),
            templates_path=PAGES,
        )
        self._visitors = visitors
        self._arguments = tuple(arguments)
        self._sock = sock
        self._consoles = 0
        parts = urlsplit(self.public_url)
        self._hosts = {parts.netloc.lower(), f"127.0.0.1:{port}", f"localhost:{port}"}
        self._secure = parts.scheme == "https"

    async def run(self, ready: Callable[[str], None]) -> None:
        """Serve until SIGINT or SIGTERM.

        Args:
            ready: told the address once it answers.
        """
        runner = web.AppRunner(await self._make_app(), access_log=None)
        await runner.setup()
        await web.SockSite(runner, self._sock, shutdown_timeout=1.0).start()
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ended.set)
        ready(self.public_url)
        try:
            await ended.wait()
        finally:
            await runner.cleanup()

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()
        app.middlewares.append(self._guard)
        app.add_routes(
            [
                web.get("/login", self.show_login),
                web.post("/login", self.log_in),
                web.post("/logout", self.log_out),
                web.get("/page.css", self.style),
            ]
        )
        return app

    async def on_startup(self, app: web.Application) -> None:
        """Say nothing: the ready line is this command's own."""

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.headers.get("Host", "").lower() not in self._hosts:
            raise web.HTTPMisdirectedRequest(text="the Host header is not this server's\n")
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc.lower() not in self._hosts:
            raise web.HTTPForbidden(text="another site's page asked\n")
        known = self._visitors.find(request.cookies.get(COOKIE))
        free = request.path in OPEN or request.path.startswith("/static/")
        if known is None and not free:
            if request.path == "/":
                raise web.HTTPSeeOther("/login")
            raise web.HTTPUnauthorized(text="log in first\n")
        if request.path == "/ws" and origin is None:
            raise web.HTTPForbidden(text="a browser names its origin\n")
        response = await handler(request)
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    @aiohttp_jinja2.template("login.html")
    async def show_login(self, request: web.Request) -> dict[str, str]:  # noqa: ARG002
        """The login page."""
        return {"words": self._visitors.words, "trouble": "", "name": ""}

    async def log_in(self, request: web.Request) -> web.StreamResponse:
        """Check name and token, and begin a session."""
        form = await request.post()
        name, token = str(form.get("name", "")), str(form.get("token", ""))
        try:
            session = await self._visitors.log_in(name, token)
        except LoginError as error:
            context = {"words": self._visitors.words, "trouble": str(error), "name": name}
            return aiohttp_jinja2.render_template("login.html", request, context, status=403)
        response = web.Response(status=303, headers={"Location": "/"})
        response.set_cookie(
            COOKIE,
            session,
            max_age=int(SESSION_S),
            httponly=True,
            samesite="Strict",
            secure=self._secure,
        )
        return response

    async def log_out(self, request: web.Request) -> web.StreamResponse:
        """End the session."""
        self._visitors.log_out(request.cookies.get(COOKIE))
        response = web.Response(status=303, headers={"Location": "/login"})
        response.del_cookie(COOKIE)
        return response

    async def style(self, request: web.Request) -> web.StreamResponse:  # noqa: ARG002
        """The pages' style sheet."""
        text = await asyncio.to_thread((PAGES / "page.css").read_text, "utf-8")
        return web.Response(text=text, content_type="text/css")

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Run the visitor's console while the page is open."""
        visitor = self._visitors.find(request.cookies.get(COOKIE))
        if visitor is None:
            raise web.HTTPUnauthorized(text="log in first\n")
        if self._consoles >= MOST_CONSOLES:
            raise web.HTTPServiceUnavailable(text="too many consoles are open\n")
        websocket = web.WebSocketResponse(heartbeat=15)
        await websocket.prepare(request)

        async def close() -> None:
            await websocket.close()

        service = VisitorService(
            self.command,
            write_bytes=websocket.send_bytes,
            write_str=websocket.send_str,
            close=close,
            download_manager=self.download_manager,
        )
        service.visitor, service.arguments = visitor, self._arguments
        self._consoles += 1
        try:
            width = to_int(request.query.get("width", "80"), 80)
            height = to_int(request.query.get("height", "24"), 24)
            await service.start(min(max(width, 20), 500), min(max(height, 6), 200))
            await self._process_messages(websocket, service)
        finally:
            self._consoles -= 1
            await service.stop()
        return websocket
