"""The calls of ``ControlPlaneClient`` for policy versions, stops of many engines, the audit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from controlplane.messages import (
    AddEngineRequest,
    EngineStatus,
    GroupPolicyRequest,
    PolicyRequest,
    RemoveEngineRequest,
    RollbackRequest,
    StopAnswer,
    StopRequest,
    TakeoverAnswer,
    TakeoverRequest,
)
from store.audit_chain import AuditCheck
from store.policies import PolicyConfig
from store.records import AuditEntry

_Model = TypeVar("_Model", bound=BaseModel)
_Item = TypeVar("_Item")


class PolicyCalls:
    """The version in force, a step back, a stop of many engines."""

    async def policy(self, engine_id: str) -> PolicyConfig:
        """The version in force."""
        return self._read(PolicyConfig, await self._request("GET", _path(engine_id)))

    async def try_policy(self, engine_id: str, request: PolicyRequest) -> PolicyConfig:
        """The version that ``set_policy`` would make; nothing changes."""
        answer = await self._request(
            "PUT", _path(engine_id), body=request, query={"dry_run": "true"}
        )
        return self._read(PolicyConfig, answer)

    async def roll_back(
        self, engine_id: str, request: RollbackRequest, *, dry_run: bool = False
    ) -> PolicyConfig:
        """Make a version that is like an earlier one."""
        answer = await self._request(
            "POST",
            f"{_path(engine_id)}/rollback",
            body=request,
            query={"dry_run": "true"} if dry_run else None,
        )
        return self._read(PolicyConfig, answer)

    async def pause(self, request: StopRequest) -> list[StopAnswer]:
        """Let automation rest on many engines."""
        return self._read_list(StopAnswer, await self._request("POST", "/v1/pause", body=request))

    async def resume(self, request: StopRequest) -> list[StopAnswer]:
        """Let it act again where ``pause`` stopped it."""
        return self._read_list(StopAnswer, await self._request("POST", "/v1/resume", body=request))

    async def add_engine(self, request: AddEngineRequest) -> EngineStatus:
        """Look after one more engine."""
        answer = await self._request("POST", "/v1/engines", body=request)
        return self._read(EngineStatus, answer)

    async def remove_engine(self, engine_id: str, request: RemoveEngineRequest) -> EngineStatus:
        """Leave an engine alone that was added by request."""
        path = f"/v1/engines/{quote(engine_id, safe='')}"
        return self._read(EngineStatus, await self._request("DELETE", path, body=request))

    async def set_group_policy(
        self, group: str, request: GroupPolicyRequest, *, dry_run: bool = False
    ) -> list[StopAnswer]:
        """Run one policy on every engine of a group."""
        answer = await self._request(
            "PUT",
            f"/v1/groups/{quote(group, safe='')}/policy",
            body=request,
            query={"dry_run": "true"} if dry_run else None,
        )
        return self._read_list(StopAnswer, answer)

    async def take_over(self, engine_id: str, request: TakeoverRequest) -> TakeoverAnswer:
        """Take the claim on an engine from another control plane."""
        path = f"/v1/engines/{quote(engine_id, safe='')}/takeover"
        return self._read(TakeoverAnswer, await self._request("POST", path, body=request))

    async def check_audit(self, expect: str = "") -> AuditCheck:
        """Whether the audit's hash chain is whole.

        Args:
            expect: a head noted earlier, or its beginning.
        """
        query = {"expect": expect} if expect else None
        answer = await self._request("GET", "/v1/audit/check", query=query, timeout_s=60.0)
        return self._read(AuditCheck, answer)

    async def audit_page(self, limit: int, before_id: int | None = None) -> list[AuditEntry]:
        """Audit rows, newest first; older than ``before_id`` to page."""
        query = {"limit": limit} | ({} if before_id is None else {"before_id": before_id})
        return self._read_list(AuditEntry, await self._request("GET", "/v1/audit", query=query))

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


def _path(engine_id: str) -> str:
    return f"/v1/engines/{quote(engine_id, safe='')}/policy"
