"""Engines that SGLang's router names: asked now and then, and kept for a while when it forgets."""

from __future__ import annotations

from pydantic import ValidationError

from controlplane.clock import SystemClock
from controlplane.errors import SourceError
from controlplane.messages import SourceKind
from controlplane.polled import EngineError
from controlplane.router_workers import Workers, read_workers
from controlplane.security import secret
from controlplane.settings import EngineSettings, RouterSettings
from controlplane.settings_load import ConfigError
from controlplane.transport import Answer, EngineHttp

TIMEOUT_S = 5.0
PATHS = ("/workers", "/list_workers")
"""Of the Model Gateway and later routers, and of earlier ones."""


class RouterSource:
    """Asks one router for its workers.

    A worker that is missing from an answer stays for ``gone_after_s``: a router that has just been
    started knows none of them yet.
    """

    kind: SourceKind = "router"

    def __init__(self, router: RouterSettings, clock: SystemClock) -> None:
        self.name = f"router {router.url}"
        self.every_s = router.every_s
        self.skipped: tuple[str, ...] = ()
        self._router = router
        self._clock = clock
        self._http: EngineHttp | None = None
        self._key: str | None = None
        self._last: dict[str, tuple[EngineSettings, int]] = {}

    def knows(self, engine: EngineSettings) -> None:
        """An engine it named in an earlier process: missing from now on, until it is seen."""
        self._last[engine.url] = (engine, self._clock.mono_ms())

    async def look(self) -> tuple[EngineSettings, ...] | None:
        """The engines it names, and those it named until lately.

        Raises:
            SourceError: it does not answer, or not with workers.
        """
        workers = await self._ask()
        now, skipped = self._clock.mono_ms(), list(workers.skipped)
        for url in workers.urls:
            try:
                self._last[url] = (EngineSettings(url=url, **dict(self._router.engine)), now)
            except ValidationError as error:
                skipped.append(f"{url}: {error.errors()[0]['msg'].removeprefix('Value error, ')}")
        gone_ms = self._router.gone_after_s * 1000
        self._last = {
            url: known
            for url, known in self._last.items()
            if known[1] == now or now - known[1] < gone_ms
        }
        self.skipped = tuple(skipped)
        return tuple(engine for engine, _ in self._last.values())

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def _ask(self) -> Workers:
        http = await self._connection()
        answer: Answer | None = None
        for path in PATHS:
            try:
                answer = await http.get(path, TIMEOUT_S)
            except EngineError as error:
                # The words are those about an engine.
                raise SourceError(str(error).replace("the engine", "the router")) from error
            if answer.status not in (404, 405):
                break
        assert answer is not None
        if answer.status in (401, 403):
            raise SourceError(
                f"it answers {answer.status}: it wants its API key (api_key_file or api_key_env "
                "of this router)"
            )
        if answer.status != 200:
            raise SourceError(
                f"it answers {answer.status} to {' and '.join(PATHS)}: is its url that of a router?"
            )
        return read_workers(answer.body)

    async def _connection(self) -> EngineHttp:
        router = self._router
        try:
            key = secret(self.name, router.api_key_file, router.api_key_env)
            if self._http is None or key != self._key:
                await self.close()
                self._http = EngineHttp(
                    router.url, api_key=key, admin_key=None, timeout_s=TIMEOUT_S
                )
                self._key = key
        except (ConfigError, ValueError) as error:
            raise SourceError(str(error)) from error
        return self._http
