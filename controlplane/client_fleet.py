"""The calls of ``ControlPlaneClient`` for many engines, costs and single moments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from controlplane.messages import Costs, Fleet, SourceStatus
from store.policies import PolicyConfig
from store.records import Tick

_Model = TypeVar("_Model", bound=BaseModel)
_Item = TypeVar("_Item")


class FleetCalls:
    """All engines in short, policy versions, costs, moments."""

    async def fleet(self) -> Fleet:
        """Every engine in one row."""
        return self._read(Fleet, await self._request("GET", "/v1/fleet"))

    async def policies(self, engine_id: str) -> list[PolicyConfig]:
        """Every policy version of one engine, newest first."""
        path = f"/v1/engines/{quote(engine_id, safe='')}/policies"
        return self._read_list(PolicyConfig, await self._request("GET", path))

    async def sources(self) -> list[SourceStatus]:
        """The file and the routers that name engines."""
        return self._read_list(SourceStatus, await self._request("GET", "/v1/sources"))

    async def costs(self, engine_id: str) -> Costs:
        """The step-cost table that automation reckons with."""
        path = f"/v1/engines/{quote(engine_id, safe='')}/costs"
        return self._read(Costs, await self._request("GET", path))

    async def moment(self, engine_id: str, seq: int, limit: int = 1) -> list[Tick]:
        """The tick on observation ``seq`` and those just before it, oldest first; ids are 0."""
        path = f"/v1/engines/{quote(engine_id, safe='')}/moment"
        query = {"seq": seq, "limit": limit}
        return self._read_list(Tick, await self._request("GET", path, query=query))

    async def _request(
        self,
        method: str,
        path: str,
        *,
        body: BaseModel | None = None,
        query: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> bytes:
        raise NotImplementedError

    def _read(self, model: type[_Model], content: bytes | str) -> _Model:
        raise NotImplementedError

    def _read_list(self, item: type[_Item], content: bytes) -> list[_Item]:
        raise NotImplementedError
