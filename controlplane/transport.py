"""HTTP to one engine: its connection pool, its keys, its limits, its faults in words."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, urlsplit

from controlplane.http_pool import (
    HttpPool,
    HungUpError,
    NoConnectionError,
    NotHttpError,
    SlowConnectionError,
    TooLongError,
)
from controlplane.one_request import OneRequest
from controlplane.polled import EngineError
from store.observations import GapReason

MOST_BYTES = 16 * 1024 * 1024
"""Largest answer that is read; a scrape of eight DP replicas stays below 1 MB."""
LEFT_TIMES = 5
"""A request that was given up is left alone for this many time-outs, at least ``LEFT_LEAST_S``."""
LEFT_LEAST_S = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it came.

    Args:
        simulated: table of an engine that says its times are simulated, None on a real one.
    """

    status: int
    body: bytes
    simulated: str | None = None


class EngineHttp:
    """Requests to one engine.

    Redirects are not followed and proxies of the environment are not used: a key must reach the
    engine that was named and nobody else.

    Args:
        url: base URL.
        api_key, admin_key: sent as Bearer tokens with reads and with commands.
        timeout_s: seconds to connect.

    Raises:
        ValueError: the URL is none, or a key cannot be sent.
    """

    def __init__(
        self, url: str, *, api_key: str | None, admin_key: str | None, timeout_s: float
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("an engine's url is written http://HOST:PORT")
        tls = parts.scheme == "https"
        port = parts.port or (443 if tls else 80)
        self.where = f"{parts.hostname}:{port}"
        self._prefix = quote(parts.path.rstrip("/"), safe="/%:@!$&'()*+,;=~-._")
        # Packing a scrape costs the engine more than loopback or a rack network gains.
        self._fixed = (
            f" HTTP/1.1\r\nhost: {_authority(parts.hostname, port)}\r\nuser-agent: specdeck\r\n"
            "accept: */*\r\naccept-encoding: identity\r\n"
        )
        self._reading = _bearer(api_key)
        self._commanding = _bearer(admin_key or api_key)
        self._timeout_s = timeout_s
        self._left_s = max(LEFT_LEAST_S, LEFT_TIMES * timeout_s)
        self._lines: dict[str, OneRequest[Answer]] = {}
        self._pool = HttpPool(
            parts.hostname,
            port,
            tls=_trusted() if tls else None,
            connect_s=timeout_s,
            most_bytes=MOST_BYTES,
        )

    async def get(self, path: str, timeout_s: float, *, since: int | None = None) -> Answer:
        """Read an endpoint; at most one request to it is out at a time.

        Raises:
            EngineError: no answer, or none that can be read.
        """
        query = "" if since is None else f"?since={since}"
        request = f"GET {self._prefix}{path}{query}{self._fixed}{self._reading}\r\n".encode()
        left_s = max(self._left_s, timeout_s)
        return await self._ask("GET", path, request, timeout_s, left_s)

    async def put(self, path: str, body: bytes, timeout_s: float) -> Answer:
        """Send a command, once.

        Raises:
            EngineError: no answer, or none that can be read.
        """
        head = (
            f"PUT {self._prefix}{path}{self._fixed}{self._commanding}"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        # A command that nobody waits for any more must not reach the engine late.
        return await self._ask("PUT", path, head.encode() + body, timeout_s, timeout_s)

    async def aclose(self) -> None:
        """Give up what is outstanding and close the connections."""
        for line in self._lines.values():
            await line.close()
        await self._pool.aclose()

    async def _ask(
        self, method: str, path: str, request: bytes, timeout_s: float, left_s: float
    ) -> Answer:
        name = f"{method} {path}"
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = OneRequest()
        try:
            return await line.ask(lambda: self._send(method, request, left_s), timeout_s)
        except TimeoutError:
            raise EngineError(
                GapReason.TIMEOUT, f"{self.where} did not answer {name} within {timeout_s:g} s"
            ) from None
        except SlowConnectionError:
            raise EngineError(
                GapReason.TIMEOUT, f"no connection to {self.where} within {self._timeout_s:g} s"
            ) from None
        except NoConnectionError as error:
            raise EngineError(
                GapReason.UNREACHABLE,
                f"cannot connect to {self.where} ({error}): is the engine up and its url right?",
            ) from None
        except HungUpError:
            raise EngineError(
                GapReason.UNREACHABLE, f"{self.where} hung up on {name}: did it stop?"
            ) from None
        except NotHttpError as error:
            raise EngineError(
                GapReason.BAD_ANSWER, f"{self.where} does not answer {name} in HTTP: {error}"
            ) from None
        except TooLongError:
            raise EngineError(
                GapReason.BAD_ANSWER,
                f"{self.where} answers {path} with more than {MOST_BYTES // 1024 // 1024} MB: is "
                "its url right?",
            ) from None

    async def _send(self, method: str, request: bytes, left_s: float) -> Answer:
        async with asyncio.timeout(left_s):
            try:
                reply = await self._pool.exchange(request)
            except HungUpError:
                # A kept connection the engine had closed already looks like this; once more tells.
                if method != "GET":
                    raise
                reply = await self._pool.exchange(request, anew=True)
        simulated = reply.headers.get(b"x-specdeck-simulated")
        return Answer(
            reply.status, reply.body, None if simulated is None else simulated.decode("latin-1")
        )


def _authority(host: str, port: int) -> str:
    name = host if host.isascii() else host.encode("idna").decode()
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def _bearer(key: str | None) -> str:
    """The header that carries a key, with its line's end."""
    if not key:
        return ""
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ValueError("an engine's key holds a character no HTTP header can carry")
    return f"authorization: Bearer {key}\r\n"


@lru_cache(maxsize=1)
def _trusted() -> ssl.SSLContext:
    """One set of trusted certificates for all engines; loading it costs tens of milliseconds."""
    return ssl.create_default_context()
