"""HTTP to one engine: its connection pool, its keys, its limits, its faults in words."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

import httpx

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
        self.where = f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
        self._reading = _bearer(api_key)
        self._commanding = _bearer(admin_key or api_key)
        self._left_s = max(LEFT_LEAST_S, LEFT_TIMES * timeout_s)
        self._lines: dict[str, OneRequest[Answer]] = {}
        self._client = httpx.AsyncClient(
            base_url=url.rstrip("/"),
            verify=_trusted() if parts.scheme == "https" else False,
            trust_env=False,
            follow_redirects=False,
            # Packing a scrape costs the engine more than loopback or a rack network gains.
            headers={"accept-encoding": "identity", "user-agent": "specdeck"},
            timeout=httpx.Timeout(None, connect=timeout_s, pool=timeout_s),
            limits=httpx.Limits(max_connections=8, max_keepalive_connections=4),
        )

    async def get(self, path: str, timeout_s: float, *, since: int | None = None) -> Answer:
        """Read an endpoint; at most one request to it is out at a time.

        Raises:
            EngineError: no answer, or none that can be read.
        """
        query = {} if since is None else {"since": since}
        request = self._client.build_request("GET", path, params=query, headers=self._reading)
        left_s = max(self._left_s, timeout_s)
        return await self._ask(f"GET {path}", request, timeout_s, left_s)

    async def put(self, path: str, body: bytes, timeout_s: float) -> Answer:
        """Send a command, once.

        Raises:
            EngineError: no answer, or none that can be read.
        """
        headers = {**self._commanding, "content-type": "application/json"}
        request = self._client.build_request("PUT", path, content=body, headers=headers)
        # A command that nobody waits for any more must not reach the engine late.
        return await self._ask(f"PUT {path}", request, timeout_s, timeout_s)

    async def aclose(self) -> None:
        """Give up what is outstanding and close the connections."""
        for line in self._lines.values():
            await line.close()
        await self._client.aclose()

    async def _ask(
        self, name: str, request: httpx.Request, timeout_s: float, left_s: float
    ) -> Answer:
        line = self._lines.setdefault(name, OneRequest())
        try:
            return await line.ask(lambda: self._send(request, left_s), timeout_s)
        except TimeoutError:
            raise EngineError(
                GapReason.TIMEOUT, f"{self.where} did not answer {name} within {timeout_s:g} s"
            ) from None
        except httpx.ConnectTimeout:
            raise EngineError(
                GapReason.TIMEOUT, f"no connection to {self.where} within {timeout_s:g} s"
            ) from None
        except httpx.ConnectError as error:
            raise EngineError(
                GapReason.UNREACHABLE,
                f"cannot connect to {self.where} ({error}): is the engine up and its url right?",
            ) from None
        except (httpx.RemoteProtocolError, httpx.DecodingError) as error:
            if _hung_up(error):
                raise EngineError(
                    GapReason.UNREACHABLE, f"{self.where} hung up on {name}: did it stop?"
                ) from None
            raise EngineError(
                GapReason.BAD_ANSWER, f"{self.where} does not answer {name} in HTTP: {error}"
            ) from None
        except httpx.TransportError as error:
            # Only the kind: the text of some faults quotes the request, keys and all.
            raise EngineError(
                GapReason.UNREACHABLE,
                f"the connection to {self.where} broke ({type(error).__name__})",
            ) from None

    async def _send(self, request: httpx.Request, left_s: float) -> Answer:
        async with asyncio.timeout(left_s):
            try:
                return await self._read(request)
            except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError) as error:
                # A kept connection the engine had closed already looks like this; once more tells.
                gone = not isinstance(error, httpx.RemoteProtocolError) or _hung_up(error)
                if request.method != "GET" or not gone:
                    raise
                return await self._read(request)

    async def _read(self, request: httpx.Request) -> Answer:
        response = await self._client.send(request, stream=True)
        try:
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MOST_BYTES:
                    raise EngineError(
                        GapReason.BAD_ANSWER,
                        f"{self.where} answers {request.url.path} with more than "
                        f"{MOST_BYTES // 1024 // 1024} MB: is its url right?",
                    )
        finally:
            await response.aclose()
        return Answer(
            response.status_code, bytes(body), response.headers.get("x-specdeck-simulated")
        )


def _hung_up(error: Exception) -> bool:
    return "disconnected" in str(error).lower()


def _bearer(key: str | None) -> dict[str, str]:
    if not key:
        return {}
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ValueError("an engine's key holds a character no HTTP header can carry")
    return {"authorization": f"Bearer {key}"}


@lru_cache(maxsize=1)
def _trusted() -> ssl.SSLContext:
    """One set of trusted certificates for all engines; loading it costs tens of milliseconds."""
    return ssl.create_default_context()
