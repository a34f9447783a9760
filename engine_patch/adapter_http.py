"""The HTTP process: mounts ``/speculation``, reads the ranks' shared memory, sends commands.

The routes are put on SGLang's own application when its module has been imported, so that no process
imports an HTTP server because of us.
"""

from __future__ import annotations

import asyncio
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import sys
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from engine_patch import adapter_launch, hooks, published
from engine_patch.adapter_about import at_launch, capabilities, identity, unsupported
from engine_patch.adapter_sglang import setting
from engine_patch.contract import SpeculationState, Versions
from engine_patch.contract_commands import ReplicaAnswer, ReplicaRebuilt
from engine_patch.desk import ApplyTimeoutError, Desk
from engine_patch.front import Front
from engine_patch.observer import Observer
from engine_patch.published import Rank, RankLive
from engine_patch.routes import PATH, speculation_routes
from engine_patch.wire import REBUILD, Number, RankCommand, encode

log = logging.getLogger("specdeck")

SERVER_MODULE = "sglang.srt.entrypoints.http_server"
_NO_JOURNAL = 2**63
"""As ``since``: numbers only."""
APPLY_TIMEOUT_S = 1.5
"""How long a command may wait for the schedulers; below the control plane's own time-out."""


class Engine:
    """The backend of the routes.

    Args:
        observer: the ranks' shared memory.
        manager: gives SGLang's tokenizer manager.
        started_ns: CLOCK_MONOTONIC at the start of the engine.
        tested: whether the engine suite runs on this SGLang.
    """

    def __init__(
        self,
        observer: Observer,
        manager: Callable[[], Any],
        *,
        started_ns: int,
        plugin_version: str,
        tested: bool,
    ) -> None:
        self.observer = observer
        self._manager = manager
        self._started_ns = started_ns
        self._tested = tested
        self._under_way: set[asyncio.Task[list[bool]]] = set()
        self.versions = Versions(
            engine="sglang",
            engine_version=hooks.engine_version(),
            plugin_version=plugin_version,
            torch=_version("torch"),
            flashinfer=_version("flashinfer-python"),
        )

    def snapshot(self, front: Front, since: int) -> SpeculationState:
        """See ``routes.Backend``."""
        ranks = self.observer.ranks(since)
        facts = ranks[0].facts if ranks else None
        return published.assemble(
            front,
            ranks,
            since,
            identity=identity(facts, adapter_launch.asked()),
            versions=self.versions,
            capabilities=capabilities(
                facts,
                front.unsupported,
                published.faults(ranks),
                self._tested,
                self.versions,
                keep_reason=next((r.live.keep_reason for r in ranks if r.live is not None), ""),
            ),
            tiers=facts.tiers if facts else (),
            uptime_s=(time.monotonic_ns() - self._started_ns) / 1e9,
        )

    async def apply(self, command: RankCommand) -> tuple[ReplicaAnswer, ...]:
        """See ``routes.Backend``."""
        ranks = self.observer.ranks(_NO_JOURNAL)
        planned = ranks[0].facts.planned if ranks else ()
        taken = await self._broadcast(encode(command, planned))
        return answers(taken, self.observer.ranks(_NO_JOURNAL), command)

    async def rebuild(self) -> tuple[ReplicaRebuilt, ...]:
        """See ``routes.Rebuilder``."""
        before = _first(self.observer.ranks(_NO_JOURNAL))
        taken = await self._broadcast(REBUILD)
        after = _first(self.observer.ranks(_NO_JOURNAL))
        return tuple(
            ReplicaRebuilt(
                dp_rank=dp_rank,
                rebuilt=after[dp_rank].rebuilt_requests - before[dp_rank].rebuilt_requests
                if dp_rank in after and dp_rank in before
                else 0,
                message=""
                if applied
                else (dp_rank in after and after[dp_rank].refused) or "the scheduler refused it",
            )
            for dp_rank, applied in enumerate(taken)
        )

    async def _broadcast(self, numbers: dict[str, Number]) -> list[bool]:
        """Send numbers to every rank; a yes or no from each DP replica.

        Raises:
            ApplyTimeoutError: some replica did not answer in time.
        """
        from sglang.srt.managers.io_struct import SetInternalStateReq

        request = SetInternalStateReq(server_args=numbers)
        # Never cancelled: SGLang pairs answers with requests by their order alone, so a request
        # that was given up would hand its late answer to the next one.
        task = asyncio.ensure_future(self._manager().set_internal_state(request))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        done, _ = await asyncio.wait({task}, timeout=APPLY_TIMEOUT_S)
        if not done:
            raise ApplyTimeoutError(
                f"the schedulers did not answer within {APPLY_TIMEOUT_S:g} s; the command is in "
                "their queue and may still be applied: read GET /speculation"
            )
        taken: list[bool] = task.result()
        return taken


def _first(ranks: Sequence[Rank]) -> dict[int, RankLive]:
    """What the first rank of each DP replica published last."""
    return {r.facts.dp_rank: r.live for r in ranks if r.facts.tp_rank == 0 and r.live is not None}


def answers(
    taken: Sequence[bool], ranks: Sequence[Rank], command: RankCommand
) -> tuple[ReplicaAnswer, ...]:
    """One answer per DP replica; SGLang's broadcast brings a bare yes or no from each."""
    first = _first(ranks)
    said = []
    for dp_rank, applied in enumerate(taken):
        live = first.get(dp_rank)
        wanted = command.tier if live is None else live.wanted
        message = "" if applied else (live.refused if live else "") or "the scheduler refused it"
        said.append(
            ReplicaAnswer(
                dp_rank=dp_rank,
                applied=applied,
                tier=wanted if applied else None,
                message=message,
                needed_slots=None if applied or live is None else live.needed_slots,
                free_slots=None if applied or live is None else live.free_slots,
            )
        )
    return tuple(said)


class Counter:
    """Makes the desk at the first request: the ranks are complete before SGLang serves."""

    def __init__(self, boot_id: str, engine: Engine, admin_key: Callable[[], str | None]) -> None:
        self._boot_id = boot_id
        self._engine = engine
        self._admin_key = admin_key
        self._desk: Desk | None = None

    def __call__(self) -> Desk:
        """The desk; a provisional one as long as no rank publishes."""
        if self._desk is not None:
            return self._desk
        ranks = self._engine.observer.ranks()
        facts = ranks[0].facts if ranks else None
        front = at_launch(self._boot_id, facts, unsupported(facts, adapter_launch.asked()))
        desk = Desk(
            front, self._engine, lambda: time.monotonic() * 1000, admin_key=self._admin_key()
        )
        if facts is not None:
            self._desk = desk
        return desk


def mount(server: ModuleType, boot_id: str, engine: Engine) -> None:
    """Put the routes on SGLang's application."""
    from sglang.srt.utils.auth import AuthLevel

    def admin_key() -> str | None:
        return setting(_manager(server).server_args, "admin_api_key") or None

    for route in speculation_routes(Counter(boot_id, engine, admin_key)):
        if route.methods and route.methods & {"PUT", "POST"}:
            # As SGLang's own @auth_level does; its middleware asks the endpoint for it.
            setattr(route.endpoint, "_auth_level", AuthLevel.ADMIN_OPTIONAL)  # noqa: B010
        server.app.router.routes.append(route)


def _manager(server: ModuleType) -> Any:
    return server.get_global_state().tokenizer_manager


def engine_of(server: ModuleType, folder: Path, started_ns: int, plugin_version: str) -> Engine:
    """The backend for a server module."""
    return Engine(
        Observer(folder),
        lambda: _manager(server),
        started_ns=started_ns,
        plugin_version=plugin_version,
        tested=hooks.engine_version() in hooks.TESTED,
    )


def mount_refusal(server: ModuleType, message: str) -> None:
    """Let the control plane learn that the plugin is there and refused.

    Touches the application object alone, and gives up quietly if that is not what we think: on an
    SGLang we do not know nothing more is safe.
    """
    try:
        from starlette.requests import Request
        from starlette.responses import JSONResponse
        from starlette.routing import Route

        async def refused(_: Request) -> JSONResponse:
            return JSONResponse({"plugin": "refused", "message": message}, status_code=503)

        server.app.router.routes.append(Route(PATH, refused, methods=["GET"]))
    except Exception:  # SGLang serves on, whatever its application looks like
        log.debug("the refusal cannot be shown at %s", PATH, exc_info=True)


def when_imported(name: str, then: Callable[[ModuleType], None]) -> None:
    """Call ``then`` with a module once it is imported, at once if it already is."""
    module = sys.modules.get(name)
    if module is not None:
        then(module)
    else:
        sys.meta_path.insert(0, _Watcher(name, then))


class _Watcher(importlib.abc.MetaPathFinder):
    """Waits for one import, and takes itself off the path when it comes."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Import machinery: find the module like everybody, and add our step to its loading."""
        del path, target
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        load, then = spec.loader.exec_module, self._then

        def and_then(module: ModuleType) -> None:
            load(module)
            then(module)

        spec.loader.exec_module = and_then  # type: ignore[method-assign]
        return spec


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
