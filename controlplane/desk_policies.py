"""What people decide about one engine's policy: versions, stances, a step back, a stop."""

from __future__ import annotations

import asyncio
from typing import Any

from controlplane.errors import ProblemError
from controlplane.messages import PolicyRequest, RollbackRequest, StanceRequest
from controlplane.overrides import check_commandable, check_tiers
from controlplane.surroundings import Clerk
from store.policies import RULES, PolicyConfig, Stance

POLICY_PARTS = (
    "policy",
    "command_timeout_s",
    "retries",
    "lease_s",
    "stale_after_s",
    "delegate",
    "windows",
)
"""What a rollback takes over from an earlier version."""


def same_policy(one: PolicyConfig, other: PolicyConfig) -> bool:
    """Whether two versions differ in nothing but stance, author and reason."""
    return all(getattr(one, name) == getattr(other, name) for name in POLICY_PARTS)


class PolicyDesk(Clerk):
    """Makes policy versions."""

    async def set_stance(
        self,
        request: StanceRequest,
        author: str,
        *,
        if_version: int | None = None,
        dry_run: bool = False,
    ) -> PolicyConfig:
        """Make a policy version with another stance.

        Raises:
            ProblemError: the engine was not reached yet, it is read-only and should become active,
                another version is in force than ``if_version``, or the store cannot be written.
        """
        async with self._turn:
            present = self._present(if_version, active=request.stance is Stance.ACTIVE)
            if present.stance is request.stance:
                return present
            detail = f"{request.stance}: {request.reason}".rstrip(": ")
            changes = {"stance": request.stance, "reason": request.reason, "paused_from": None}
            return await self._version(
                present, changes, author, "stance.set", detail, dry_run=dry_run
            )

    async def set_policy(
        self,
        request: PolicyRequest,
        author: str,
        *,
        if_version: int | None = None,
        dry_run: bool = False,
    ) -> PolicyConfig:
        """Make a policy version with another policy, and another stance if one is named.

        Args:
            dry_run: check and answer with the version that it would be; nothing changes.

        Raises:
            ProblemError: the engine was not reached yet, is read-only and should become active,
                another version is in force than the request was made for, it names tiers that
                were not built, or the store cannot be written.
        """
        async with self._turn:
            wanted = request.if_version if if_version is None else if_version
            present = self._present(wanted, active=request.stance is Stance.ACTIVE)
            check_tiers(self._engine_id, request.policy, self._pilot.facts)
            stance = request.stance or present.stance
            changes = {
                "stance": stance,
                "policy": request.policy,
                "reason": request.reason,
                "rules": RULES,
                "paused_from": present.paused_from if request.stance is None else None,
                "windows": present.windows if request.windows is None else request.windows,
                "delegate": present.delegate if request.delegate is None else request.delegate,
            }
            detail = f"version {present.version + 1}, {stance}: {request.reason}".rstrip(": ")
            return await self._version(
                present, changes, author, "policy.set", detail, dry_run=dry_run
            )

    async def roll_back(
        self,
        request: RollbackRequest,
        author: str,
        *,
        if_version: int | None = None,
        dry_run: bool = False,
    ) -> PolicyConfig:
        """Make a version that is like an earlier one: the last that had another policy, or the one
        that is named.  The stance stays.

        Raises:
            ProblemError: 409, there is no such version or none before it; else as ``set_policy``.
        """
        async with self._turn:
            present = self._present(if_version, active=False)
            read = self._around.store.policies
            history = await asyncio.to_thread(read, self._engine_id)
            earlier = [one for one in history if one.version < present.version]
            if request.version is None:
                earlier = [one for one in earlier if not same_policy(one, present)]
            else:
                earlier = [one for one in earlier if one.version == request.version]
            if not earlier:
                raise ProblemError(
                    409,
                    "no_such_version",
                    f"engine {self._engine_id} has no earlier policy version to go back to"
                    if request.version is None
                    else f"engine {self._engine_id} has no version {request.version} before "
                    f"{present.version}; specdeck policy history lists them",
                )
            back = earlier[0]
            check_tiers(self._engine_id, back.policy, self._pilot.facts)
            reason = f"back to version {back.version}: {request.reason}".rstrip(": ")
            changes = {name: getattr(back, name) for name in POLICY_PARTS}
            return await self._version(
                present,
                changes | {"reason": reason, "rules": RULES},
                author,
                "policy.rollback",
                f"version {present.version + 1}: {reason}",
                dry_run=dry_run,
            )

    async def pause(self, reason: str, author: str, *, dry_run: bool = False) -> PolicyConfig:
        """Let automation rest, as part of a stop of many engines; remembers the stance."""
        async with self._turn:
            present = self._present(None, active=False)
            if present.stance is Stance.PAUSED:
                return present
            changes = {"stance": Stance.PAUSED, "paused_from": present.stance, "reason": reason}
            return await self._version(
                present, changes, author, "fleet.pause", reason, dry_run=dry_run
            )

    async def resume(self, reason: str, author: str, *, dry_run: bool = False) -> PolicyConfig:
        """Go back to the stance before ``pause``; an engine paused otherwise stays so."""
        async with self._turn:
            present = self._present(None, active=False)
            if present.paused_from is None:
                return present
            changes = {"stance": present.paused_from, "paused_from": None, "reason": reason}
            return await self._version(
                present, changes, author, "fleet.resume", reason, dry_run=dry_run
            )

    def _present(self, if_version: int | None, *, active: bool) -> PolicyConfig:
        """The version in force, if it may be changed."""
        present = self._pilot.policy
        if present is None or active:
            check_commandable(self._engine_id, self._pilot.facts)
        assert present is not None, "an engine whose facts are known has a policy"
        if if_version not in (None, present.version):
            raise ProblemError(
                409,
                "changed_meanwhile",
                f"policy version {present.version} by {present.author} is in force, not "
                f"{if_version}: look at it and ask again",
            )
        return present

    async def _version(
        self,
        present: PolicyConfig,
        changes: dict[str, Any],
        author: str,
        action: str,
        detail: str,
        *,
        dry_run: bool = False,
    ) -> PolicyConfig:
        """Store the next version and run it."""
        changed = present.model_copy(
            update=changes
            | {
                "version": present.version + 1,
                "author": author,
                "created_utc_ms": self._around.clock.utc_ms(),
            }
        )
        if dry_run:
            return changed
        await self._keep([changed, self._audit(author, action, detail)])
        self._pilot.set_policy(changed)
        self._wake()
        return changed
