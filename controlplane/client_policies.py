"""The calls of ``ControlPlaneClient`` that change things: overrides, policies, stops, engines."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from controlplane.client_calls import Calls, engine_path, not_confirmed
from controlplane.messages import (
    AddEngineRequest,
    EngineStatus,
    ExtendRequest,
    GroupPolicyRequest,
    OverrideAnswer,
    OverrideRequest,
    PolicyRequest,
    ReleaseRequest,
    RemoveEngineRequest,
    RollbackRequest,
    StanceRequest,
    StopAnswer,
    StopRequest,
    TakeoverAnswer,
    TakeoverRequest,
)
from store.audit_chain import AuditCheck
from store.policies import PolicyConfig
from store.records import Override


class PolicyCalls(Calls):
    """Overrides, the version in force, a step back, a stop of many engines, the audit.

    ``dry_run`` checks a change and answers what would be.  ``wait_s`` waits up to so many seconds
    until every observed rank does what was asked for, and raises ``NotConfirmedError`` if that
    takes longer: the change is in force all the same.  ``if_match`` is the ETag of what a change
    was made for.
    """

    async def override(self, engine_id: str) -> Override | None:
        """The override in force."""
        answer = await self._request("GET", engine_path(engine_id, "override"))
        return self._read(OverrideAnswer, answer).override

    async def set_override(
        self,
        engine_id: str,
        request: OverrideRequest,
        *,
        wait_s: float | None = None,
        if_match: str | None = None,
        dry_run: bool = False,
    ) -> Override | None:
        """Set an override; it replaces one in force."""
        path = engine_path(engine_id, "override")
        answer, late = await self._change(
            "PUT", path, request, wait_s=wait_s, if_match=if_match, dry_run=dry_run
        )
        read = self._read(OverrideAnswer, answer)
        if late:
            state = "in force" if read.override is not None else "over already"
            raise not_confirmed(engine_id, wait_s, f"the override is {state}")
        return read.override

    async def extend_override(
        self,
        engine_id: str,
        request: ExtendRequest,
        *,
        if_match: str | None = None,
        dry_run: bool = False,
    ) -> Override | None:
        """Add seconds to the end of the override in force."""
        path = engine_path(engine_id, "override", "extend")
        answer, _ = await self._change("POST", path, request, if_match=if_match, dry_run=dry_run)
        return self._read(OverrideAnswer, answer).override

    async def release_override(
        self,
        engine_id: str,
        request: ReleaseRequest,
        *,
        wait_s: float | None = None,
        if_match: str | None = None,
        dry_run: bool = False,
    ) -> Override | None:
        """End the override in force; None is in force afterwards."""
        path = engine_path(engine_id, "override")
        answer, late = await self._change(
            "DELETE", path, request, wait_s=wait_s, if_match=if_match, dry_run=dry_run
        )
        if late:
            raise not_confirmed(engine_id, wait_s, "the override is released")
        return self._read(OverrideAnswer, answer).override

    async def policy(self, engine_id: str) -> PolicyConfig:
        """The version in force."""
        path = engine_path(engine_id, "policy")
        return self._read(PolicyConfig, await self._request("GET", path))

    async def set_policy(
        self,
        engine_id: str,
        request: PolicyRequest,
        *,
        wait_s: float | None = None,
        dry_run: bool = False,
    ) -> PolicyConfig:
        """Run another policy from the next tick on."""
        path = engine_path(engine_id, "policy")
        return await self._version("PUT", path, engine_id, request, wait_s, dry_run=dry_run)

    async def try_policy(self, engine_id: str, request: PolicyRequest) -> PolicyConfig:
        """The version that ``set_policy`` would make; nothing changes."""
        return await self.set_policy(engine_id, request, dry_run=True)

    async def roll_back(
        self,
        engine_id: str,
        request: RollbackRequest,
        *,
        wait_s: float | None = None,
        if_match: str | None = None,
        dry_run: bool = False,
    ) -> PolicyConfig:
        """Make a version that is like an earlier one."""
        path = engine_path(engine_id, "policy", "rollback")
        return await self._version(
            "POST", path, engine_id, request, wait_s, if_match=if_match, dry_run=dry_run
        )

    async def set_stance(
        self,
        engine_id: str,
        request: StanceRequest,
        *,
        wait_s: float | None = None,
        if_match: str | None = None,
        dry_run: bool = False,
    ) -> PolicyConfig:
        """Make automation active, shadow or paused for one engine."""
        path = engine_path(engine_id, "stance")
        return await self._version(
            "PUT", path, engine_id, request, wait_s, if_match=if_match, dry_run=dry_run
        )

    async def pause(self, request: StopRequest, *, dry_run: bool = False) -> list[StopAnswer]:
        """Let automation rest on many engines."""
        answer, _ = await self._change("POST", "/v1/pause", request, dry_run=dry_run)
        return self._read_list(StopAnswer, answer)

    async def resume(self, request: StopRequest, *, dry_run: bool = False) -> list[StopAnswer]:
        """Let it act again where ``pause`` stopped it."""
        answer, _ = await self._change("POST", "/v1/resume", request, dry_run=dry_run)
        return self._read_list(StopAnswer, answer)

    async def add_engine(self, request: AddEngineRequest, *, dry_run: bool = False) -> EngineStatus:
        """Look after one more engine."""
        answer, _ = await self._change("POST", "/v1/engines", request, dry_run=dry_run)
        return self._read(EngineStatus, answer)

    async def remove_engine(
        self, engine_id: str, request: RemoveEngineRequest, *, dry_run: bool = False
    ) -> EngineStatus:
        """Leave an engine alone that was added by request."""
        path = engine_path(engine_id)
        answer, _ = await self._change("DELETE", path, request, dry_run=dry_run)
        return self._read(EngineStatus, answer)

    async def set_group_policy(
        self, group: str, request: GroupPolicyRequest, *, dry_run: bool = False
    ) -> list[StopAnswer]:
        """Run one policy on every engine of a group."""
        path = f"/v1/groups/{quote(group, safe='')}/policy"
        answer, _ = await self._change("PUT", path, request, dry_run=dry_run)
        return self._read_list(StopAnswer, answer)

    async def take_over(
        self,
        engine_id: str,
        request: TakeoverRequest,
        *,
        wait_s: float | None = None,
        dry_run: bool = False,
    ) -> TakeoverAnswer:
        """Take the claim on an engine from another control plane."""
        path = engine_path(engine_id, "takeover")
        answer, late = await self._change("POST", path, request, wait_s=wait_s, dry_run=dry_run)
        if late:
            raise not_confirmed(engine_id, wait_s, "the claim is asked for")
        return self._read(TakeoverAnswer, answer)

    async def check_audit(self, expect: str = "") -> AuditCheck:
        """Whether the audit's hash chain is whole.

        Args:
            expect: a head noted earlier, or its beginning.
        """
        query = {"expect": expect} if expect else None
        answer = await self._request("GET", "/v1/audit/check", query=query, timeout_s=60.0)
        return self._read(AuditCheck, answer)

    async def _version(
        self,
        method: str,
        path: str,
        engine_id: str,
        request: Any,
        wait_s: float | None,
        *,
        if_match: str | None = None,
        dry_run: bool,
    ) -> PolicyConfig:
        answer, late = await self._change(
            method, path, request, wait_s=wait_s, if_match=if_match, dry_run=dry_run
        )
        made = self._read(PolicyConfig, answer)
        if late:
            state = f"policy version {made.version} is in force"
            raise not_confirmed(engine_id, wait_s, state)
        return made
