"""HTTP to one engine: its connection pool, its keys, its limits, its faults in words.

aiohttp, because one process polls hundreds of engines: a request costs it a tenth of what it costs
a client written in Python alone (``docs/operations.md``).
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

import aiohttp

from controlplane.one_request import OneRequest
from controlplane.polled import EngineError
from store.observations import GapReason

MOST_BYTES = 16 * 1024 * 1024
"""Largest answer that is read; a scrape of eight DP replicas stays below 1 MB."""
LEFT_TIMES = 5
"""A request that was given up is left alone for this many time-outs, at least ``LEFT_LEAST_S``."""
LEFT_LEAST_S = 10.0
KEPT_S = 4.0
"""Seconds an idle connection is kept.  SGLang closes one after 5 (``SGLANG_TIMEOUT_KEEP_ALIVE``),
and a command sent just then is lost: on a GPU a benchmark lost a request so."""
_HEADERS = {
    "user-agent": "specdeck",
    # Packing a scrape costs the engine more than loopback or a rack network gains.
    "accept-encoding": "identity",
}


class _TooLongError(Exception):
    """The body is longer than it may be."""


class _CommandLostError(aiohttp.ClientError):
    """The connection ended under a command."""


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
        self.where = f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
        self._base = url.rstrip("/")
        self._reading = _bearer(api_key)
        self._commanding = _bearer(admin_key or api_key)
        self._timeout_s = timeout_s
        self._left_s = max(LEFT_LEAST_S, LEFT_TIMES * timeout_s)
        self._lines: dict[str, OneRequest[Answer]] = {}
        self._tls = _trusted() if parts.scheme == "https" else None
        self._session: aiohttp.ClientSession | None = None

    async def get(self, path: str, timeout_s: float, *, since: int | None = None) -> Answer:
        """Read an endpoint; at most one request to it is out at a time.

        Raises:
            EngineError: no answer, or none that can be read.
        """
        where = path if since is None else f"{path}?since={since}"
        left_s = max(self._left_s, timeout_s)
        return await self._ask("GET", path, where, None, timeout_s, left_s)

    async def put(self, path: str, body: bytes, timeout_s: float) -> Answer:
        """Send a command, once.

        Raises:
            EngineError: no answer, or none that can be read.
        """
        # A command that nobody waits for any more must not reach the engine late.
        return await self._ask("PUT", path, path, body, timeout_s, timeout_s)

    async def aclose(self) -> None:
        """Give up what is outstanding and close the connections."""
        for line in self._lines.values():
            await line.close()
        if self._session is not None:
            await self._session.close()

    async def _ask(
        self,
        method: str,
        path: str,
        where: str,
        body: bytes | None,
        timeout_s: float,
        left_s: float,
    ) -> Answer:
        name = f"{method} {path}"
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = OneRequest()
        try:
            return await line.ask(lambda: self._send(method, where, body, left_s), timeout_s)
        except aiohttp.ConnectionTimeoutError:
            raise EngineError(
                GapReason.TIMEOUT, f"no connection to {self.where} within {self._timeout_s:g} s"
            ) from None
        except TimeoutError:
            raise EngineError(
                GapReason.TIMEOUT, f"{self.where} did not answer {name} within {timeout_s:g} s"
            ) from None
        except (aiohttp.ClientConnectorError, aiohttp.InvalidURL, UnicodeError) as error:
            raise EngineError(
                GapReason.UNREACHABLE,
                f"cannot connect to {self.where} ({_why(error)}): is the engine up and its url "
                "right?",
            ) from None
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, _CommandLostError):
            raise self._hung_up(name) from None
        except aiohttp.ClientPayloadError:
            raise EngineError(
                GapReason.UNREACHABLE, f"{self.where} broke off its answer to {name}: did it stop?"
            ) from None
        except (aiohttp.ClientResponseError, aiohttp.http.HttpProcessingError) as error:
            raise self._no_http(name, error) from None
        except aiohttp.ClientError as error:
            # Only the kind: the text of some faults quotes the request, keys and all.
            raise EngineError(
                GapReason.UNREACHABLE,
                f"the connection to {self.where} broke ({type(error).__name__})",
            ) from None
        except _TooLongError:
            raise EngineError(
                GapReason.BAD_ANSWER,
                f"{self.where} answers {path} with more than {MOST_BYTES // 1024 // 1024} MB: is "
                "its url right?",
            ) from None

    async def _send(self, method: str, where: str, body: bytes | None, left_s: float) -> Answer:
        if self._session is None:  # not before there is a loop
            self._session = self._opened()
        command = body is not None
        headers = dict(self._commanding if command else self._reading)
        if command:
            headers["content-type"] = "application/json"
        async with (
            asyncio.timeout(left_s),
            self._session.request(
                method,
                self._base + where,
                data=body,
                headers=headers,
                allow_redirects=False,
                middlewares=(_once,) if command else (),
            ) as response,
        ):
            if not 200 <= response.status <= 599:
                raise aiohttp.http.HttpProcessingError(message=f"status {response.status}")
            got = bytearray()
            if (response.content_length or 0) > MOST_BYTES:
                raise _TooLongError
            async for chunk in response.content.iter_any():
                got += chunk
                if len(got) > MOST_BYTES:
                    raise _TooLongError
            return Answer(response.status, bytes(got), response.headers.get("x-specdeck-simulated"))

    def _opened(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=8, ssl=self._tls or True, keepalive_timeout=KEPT_S)
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=_HEADERS,
            timeout=aiohttp.ClientTimeout(
                total=None, connect=self._timeout_s, sock_connect=self._timeout_s
            ),
        )

    def _hung_up(self, name: str) -> EngineError:
        return EngineError(GapReason.UNREACHABLE, f"{self.where} hung up on {name}: did it stop?")

    def _no_http(self, name: str, error: BaseException) -> EngineError:
        said = " ".join(str(getattr(error, "message", "") or error).split())[:120]
        return EngineError(
            GapReason.BAD_ANSWER, f"{self.where} does not answer {name} in HTTP: {said}"
        )


async def _once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Send a command once: aiohttp repeats a PUT over a new connection if a kept one ended."""
    try:
        return await handler(request)
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
        raise
    except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
        raise _CommandLostError from error


def _why(error: Exception) -> str:
    found = getattr(error, "os_error", None) or getattr(error, "certificate_error", None) or error
    if isinstance(found, ssl.SSLError):
        return str(getattr(found, "verify_message", "") or found.reason or found)
    return str(getattr(found, "strerror", None) or found)


def _bearer(key: str | None) -> dict[str, str]:
    """The header that carries a key."""
    if not key:
        return {}
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ValueError("an engine's key holds a character no HTTP header can carry")
    return {"authorization": f"Bearer {key}"}


@lru_cache(maxsize=1)
def _trusted() -> ssl.SSLContext:
    """One set of trusted certificates for all engines; loading it costs tens of milliseconds."""
    return ssl.create_default_context()
