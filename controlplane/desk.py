"""What people decide about one engine: overrides and stances, stored before they take effect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from controlplane.clock import SystemClock
from controlplane.errors import ProblemError
from controlplane.hub import Hub
from controlplane.messages import (
    ExtendRequest,
    OverrideRequest,
    PolicyRequest,
    ReleaseRequest,
    RollbackRequest,
    StanceRequest,
    TakeoverRequest,
)
from controlplane.overrides import check_commandable, check_tiers, extended, make_override
from controlplane.pilot import Pilot
from controlplane.webhooks import Webhooks
from store.db import Record, Store
from store.errors import StoreError, StoreRefused
from store.policies import RULES, PolicyConfig, Stance
from store.records import AuditEntry, Override

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


@dataclass(frozen=True)
class Surroundings:
    """What everything that looks after engines shares."""

    store: Store
    hub: Hub
    clock: SystemClock
    holder: str
    override_max_s: float
    scrape_every_s: float
    webhooks: Webhooks | None = None


class Desk:
    """Takes decisions of people for one engine, one at a time.

    Args:
        wake: called when the engine's loop should not wait for its next poll.
    """

    def __init__(
        self,
        engine_id: str,
        pilot: Pilot,
        around: Surroundings,
        wake: Callable[[], None],
    ) -> None:
        self._engine_id = engine_id
        self._pilot = pilot
        self._around = around
        self._wake = wake
        self._turn = asyncio.Lock()

    async def set_override(
        self, request: OverrideRequest, author: str, *, dry_run: bool = False
    ) -> Override:
        """Store and apply an override; it replaces one in force.

        Args:
            dry_run: check and answer with the override that it would be; nothing changes.

        Raises:
            ProblemError: it cannot be granted, or the store cannot be written; nothing changed.
        """
        async with self._turn:
            made = make_override(
                request,
                engine_id=self._engine_id,
                facts=self._pilot.facts,
                thresholds=self._pilot.thresholds,
                author=author,
                now_utc_ms=self._around.clock.utc_ms(),
                longest_s=self._around.override_max_s,
            )
            if dry_run:
                return made
            wanted = made.mode if made.tier is None else f"{made.mode} {made.tier}"
            detail = f"{wanted} for {request.length_s:g} s, guards {made.guards}: {made.reason}"
            stored = await self._keep([made, self._audit(author, "override.set", detail)])
            override = stored[0]
            assert isinstance(override, Override)
            replaced = self._pilot.override
            self._put_in_force(override)
            if replaced is not None:
                # It may have run out meanwhile; then it is recorded as ended already.
                with suppress(StoreRefused):
                    await self._write([self._ended(replaced, f"replaced by {override.id}")])
            return override

    async def extend_override(self, request: ExtendRequest, author: str) -> Override:
        """Give the override in force a later end.

        Raises:
            ProblemError: there is none, it would run too long, or the store cannot be written.
        """
        async with self._turn:
            clock, override = self._around.clock, self._in_force()
            longer = extended(
                override,
                request,
                left_s=self._pilot.left_s(clock.mono_ms()),
                now_utc_ms=clock.utc_ms(),
                longest_s=self._around.override_max_s,
            )
            detail = f"{request.extra_s:g} s more: {request.reason}".rstrip(": ")
            await self._keep([longer, self._audit(author, "override.extend", detail)])
            if self._in_force().id != override.id:
                raise ProblemError(
                    409, "no_override", "the override ran out meanwhile: set a new one"
                )
            self._put_in_force(longer)
            return longer

    async def release_override(self, request: ReleaseRequest, author: str) -> None:
        """End the override in force.

        Raises:
            ProblemError: there is none, or the store cannot be written.
        """
        async with self._turn:
            override = self._in_force()
            ended = self._ended(override, f"released by {author}")
            await self._keep([ended, self._audit(author, "override.release", request.reason)])
            self._put_in_force(None)

    async def set_stance(
        self, request: StanceRequest, author: str, *, if_version: int | None = None
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
            return await self._version(present, changes, author, "stance.set", detail)

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

    async def pause(self, reason: str, author: str) -> PolicyConfig:
        """Let automation rest, as part of a stop of many engines; remembers the stance."""
        async with self._turn:
            present = self._present(None, active=False)
            if present.stance is Stance.PAUSED:
                return present
            changes = {"stance": Stance.PAUSED, "paused_from": present.stance, "reason": reason}
            return await self._version(present, changes, author, "fleet.pause", reason)

    async def resume(self, reason: str, author: str) -> PolicyConfig:
        """Go back to the stance before ``pause``; an engine paused otherwise stays so."""
        async with self._turn:
            present = self._present(None, active=False)
            if present.paused_from is None:
                return present
            changes = {"stance": present.paused_from, "paused_from": None, "reason": reason}
            return await self._version(present, changes, author, "fleet.resume", reason)

    async def take_over(self, request: TakeoverRequest, author: str, held_by: str | None) -> None:
        """Take the engine's claim from another holder with the next command.

        Args:
            held_by: who holds it by the newest tick.

        Raises:
            ProblemError: 409, nobody else holds it, or another one than was confirmed.
        """
        async with self._turn:
            check_commandable(self._engine_id, self._pilot.facts)
            if held_by is None or held_by == self._around.holder:
                raise ProblemError(
                    409,
                    "no_foreign_claim",
                    f"nobody else holds engine {self._engine_id}: there is nothing to take over",
                )
            if held_by != request.holder:
                raise ProblemError(
                    409,
                    "other_holder",
                    f"engine {self._engine_id} is held by {held_by!r}, not {request.holder!r}: "
                    "confirm with the name of the one that loses it",
                )
            detail = f"from {held_by}: {request.reason}"
            await self._keep([self._audit(author, "claim.takeover", detail)])
            self._pilot.take_over(held_by)
            self._wake()

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

    def _in_force(self) -> Override:
        override = self._pilot.override
        if override is None:
            raise ProblemError(409, "no_override", f"no override is in force on {self._engine_id}")
        return override

    def _ended(self, override: Override, by: str) -> Override:
        now = self._around.clock.utc_ms()
        return override.model_copy(update={"ended_utc_ms": now, "ended_by": by})

    def _put_in_force(self, override: Override | None) -> None:
        clock = self._around.clock
        self._pilot.put_in_force(override, clock.utc_ms(), clock.mono_ms(), clock.clock_id)
        self._wake()

    def _audit(self, actor: str, action: str, detail: str) -> AuditEntry:
        return AuditEntry(
            at_utc_ms=self._around.clock.utc_ms(),
            actor=actor,
            action=action,
            target=self._engine_id,
            detail=detail,
        )

    async def _write(self, records: Sequence[Record]) -> list[Record]:
        return await asyncio.wrap_future(self._around.store.write(records))

    async def _keep(self, records: Sequence[Record]) -> list[Record]:
        try:
            return await self._write(records)
        except StoreRefused as error:
            raise ProblemError(409, "changed_meanwhile", str(error)) from error
        except StoreError as error:
            raise ProblemError(
                503, "store_failed", f"nothing was changed, because it cannot be recorded: {error}"
            ) from error
