"""Runs the API on a socket: clear start errors, and a stop that cuts no stream."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from controlplane.hub import Hub

KEPT_S = 75
"""Seconds an idle connection stays open.  Whoever sends over it must give it up earlier, or a
request can meet its end; httpx keeps connections for 5 s, nginx for 60.
"""
STUCK_TICKS = 100
"""Server ticks of 0.1 s that a connection may refuse to take bytes before it is cut."""


class CannotListenError(Exception):
    """The address cannot be bound; the message says why and what to do."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises:
        CannotListenError: the port is taken, not allowed, or the address is not this machine's.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CannotListenError(f"cannot listen on {host}: {error.strerror or error}") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(2048)
    except OSError as error:
        sock.close()
        raise CannotListenError(_why(host, port, error)) from error
    sock.setblocking(False)
    return sock


def _why(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is taken: is another control plane running? Choose another "
            "with --port"
        )
    if error.errno == errno.EACCES:
        return f"port {port} needs privileges: choose one above 1023 with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is no address of this machine: set listen.host to one that is"
    return f"cannot listen on {host}:{port}: {error.strerror}"


class Server(uvicorn.Server):
    """Uvicorn that ends the event streams before it waits for connections to end."""

    def __init__(self, config: uvicorn.Config, hub: Hub, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._hub = hub
        self._on_ready = on_ready
        self._stuck: dict[H11Protocol, int] = {}

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say that requests are answered."""
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the hub, let streams end by themselves, cut those whose reader takes nothing."""
        self._hub.close()
        for connection in self._paused():
            connection.transport.abort()
        await super().shutdown(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Cut connections that take no bytes: without it they would be kept for ever."""
        paused = self._paused()
        self._stuck = {one: self._stuck.get(one, 0) + 1 for one in paused}
        for connection, ticks in self._stuck.items():
            if ticks >= STUCK_TICKS:
                connection.transport.abort()
        return await super().on_tick(counter)

    def _paused(self) -> list[H11Protocol]:
        return [
            one
            for one in self.server_state.connections
            if isinstance(one, H11Protocol) and one.flow.write_paused
        ]

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM ask for a stop; the process then ends with the command's own code."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        try:
            for number in signals:
                loop.add_signal_handler(number, self.handle_exit, number, None)
        except (RuntimeError, ValueError, NotImplementedError):
            # Not the main thread: whoever runs us there sets should_exit.
            yield
            return
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)


@dataclass(frozen=True)
class Certificate:
    """PEM files of the HTTPS server: certificate chain and private key."""

    chain: Path
    key: Path

    def check(self) -> None:
        """Refuse files that cannot be used, before anything starts.

        Raises:
            CannotListenError: a file cannot be read, or the two do not belong together.
        """
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            # An empty passphrase, so that nothing asks for one on the terminal.
            context.load_cert_chain(self.chain, self.key, password="")
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise CannotListenError(
                f"listen.tls_cert {self.chain} and listen.tls_key {self.key} cannot be used: "
                f"{str(reason).replace('_', ' ').lower()}"
            ) from error


def make_server(
    app: FastAPI,
    hub: Hub,
    *,
    on_ready: Callable[[], None] = lambda: None,
    grace_s: int = 2,
    certificate: Certificate | None = None,
) -> Server:
    """A server for ``app``; run it with ``await server.serve(sockets=[bind(...)])``.

    Args:
        on_ready: called once requests are answered.
        grace_s: seconds that requests get to end when the server stops.
        certificate: serve HTTPS with it; None serves HTTP.
    """
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=grace_s,
        timeout_keep_alive=KEPT_S,
        ssl_certfile=None if certificate is None else certificate.chain,
        ssl_keyfile=None if certificate is None else certificate.key,
    )
    return Server(config, hub, on_ready)
