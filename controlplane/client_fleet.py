"""The calls of ``ControlPlaneClient`` for many engines, costs and single moments."""

from __future__ import annotations

from controlplane.client_calls import Calls, engine_path
from controlplane.messages import Costs, Fleet, SourceStatus
from store.policies import PolicyConfig
from store.records import Tick
from store.rules import FleetRule


class FleetCalls(Calls):
    """All engines in short, policy versions, costs, moments."""

    async def fleet(self) -> Fleet:
        """Every engine in one row."""
        return self._read(Fleet, await self._request("GET", "/v1/fleet"))

    async def policies(self, engine_id: str) -> list[PolicyConfig]:
        """Every policy version of one engine, newest first."""
        path = engine_path(engine_id, "policies")
        return self._read_list(PolicyConfig, await self._request("GET", path))

    async def sources(self) -> list[SourceStatus]:
        """The file and the routers that name engines."""
        return self._read_list(SourceStatus, await self._request("GET", "/v1/sources"))

    async def rules(self) -> list[FleetRule]:
        """Stops and policies that hold for engines to come."""
        return self._read_list(FleetRule, await self._request("GET", "/v1/rules"))

    async def costs(self, engine_id: str) -> Costs:
        """The step-cost table that automation reckons with."""
        path = engine_path(engine_id, "costs")
        return self._read(Costs, await self._request("GET", path))

    async def moment(self, engine_id: str, seq: int, limit: int = 1) -> list[Tick]:
        """The tick on observation ``seq`` and those just before it, oldest first; ids are 0."""
        path = engine_path(engine_id, "moment")
        query = {"seq": seq, "limit": limit}
        return self._read_list(Tick, await self._request("GET", path, query=query))
