"""What people decide about one engine: overrides and claims, stored before they take effect."""

from __future__ import annotations

from contextlib import suppress

from controlplane.desk_policies import PolicyDesk
from controlplane.errors import ProblemError
from controlplane.etags import check_match, override_tag
from controlplane.messages import (
    ExtendRequest,
    OverrideRequest,
    ReleaseRequest,
    TakeoverRequest,
)
from controlplane.overrides import check_commandable, extended, make_override
from store.errors import StoreRefused
from store.records import Override


class Desk(PolicyDesk):
    """Grants, extends and ends overrides; makes policy versions; takes claims over."""

    async def set_override(
        self,
        request: OverrideRequest,
        author: str,
        *,
        if_match: str | None = None,
        dry_run: bool = False,
    ) -> Override:
        """Store and apply an override; it replaces one in force.

        Args:
            if_match: ETag of what it was made for.
            dry_run: check and answer with the override that it would be; nothing changes.

        Raises:
            ProblemError: it cannot be granted, another one is in force than it was made for, or
                the store cannot be written; nothing changed.
        """
        async with self._turn:
            self._check(if_match)
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

    async def extend_override(
        self,
        request: ExtendRequest,
        author: str,
        *,
        if_match: str | None = None,
        dry_run: bool = False,
    ) -> Override:
        """Give the override in force a later end.

        Raises:
            ProblemError: there is none, it would run too long, or the store cannot be written.
        """
        async with self._turn:
            self._check(if_match)
            clock, override = self._around.clock, self._in_force()
            longer = extended(
                override,
                request,
                left_s=self._pilot.left_s(clock.mono_ms()),
                now_utc_ms=clock.utc_ms(),
                longest_s=self._around.override_max_s,
            )
            if dry_run:
                return longer
            detail = f"{request.extra_s:g} s more: {request.reason}".rstrip(": ")
            await self._keep([longer, self._audit(author, "override.extend", detail)])
            if self._in_force().id != override.id:
                raise ProblemError(
                    409, "no_override", "the override ran out meanwhile: set a new one"
                )
            self._put_in_force(longer)
            return longer

    async def release_override(
        self,
        request: ReleaseRequest,
        author: str,
        *,
        if_match: str | None = None,
        dry_run: bool = False,
    ) -> None:
        """End the override in force.

        Raises:
            ProblemError: there is none, or the store cannot be written.
        """
        async with self._turn:
            self._check(if_match)
            override = self._in_force()
            if dry_run:
                return
            ended = self._ended(override, f"released by {author}")
            await self._keep([ended, self._audit(author, "override.release", request.reason)])
            self._put_in_force(None)

    async def take_over(
        self,
        request: TakeoverRequest,
        author: str,
        held_by: str | None,
        *,
        dry_run: bool = False,
    ) -> None:
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
            if dry_run:
                return
            detail = f"from {held_by}: {request.reason}"
            await self._keep([self._audit(author, "claim.takeover", detail)])
            self._pilot.take_over(held_by)
            self._wake()

    def _check(self, if_match: str | None) -> None:
        present = self._pilot.override
        check_match(if_match, override_tag(present), "" if present is None else present.author)

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
