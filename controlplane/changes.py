"""What a request says beside its body when it changes something, as dependencies of routes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import Depends, Header, Query, Response

from controlplane.etags import check_match, policy_tag
from controlplane.problems import declared
from controlplane.routes_engines import EngineId, Operator, TheService
from controlplane.runner import Runner
from engine_patch.contract_words import Mode
from engine_patch.tier import OFF
from store.observations import Sample
from store.policies import PolicyConfig, Stance
from store.records import Reason, Tick

DryRun = Annotated[bool, Query(description="Check it and answer what would be; change nothing.")]
CHANGES = declared(404, 409, 412, 413)
"""Problems that a change of one engine may be answered with."""


UNDECIDED = frozenset({Reason.GRACE, Reason.RESTART, Reason.STALE, Reason.NOT_READY})
"""Verdicts of a time in which automation does not act yet."""


class Asked:
    """A change of one engine: whose it is, and whether it is meant."""

    def __init__(
        self,
        engine_id: EngineId,
        service: TheService,
        caller: Operator,
        response: Response,
        dry_run: DryRun = False,
    ) -> None:
        self.runner: Runner = service.runner(engine_id)
        self.service = service
        self.dry_run = dry_run
        self.response = response
        self._caller = caller

    def author(self, claimed: str) -> str:
        """The author to record."""
        return self._caller.author(claimed)

    def tagged(self, tag: str) -> None:
        """Answer with this ETag."""
        self.response.headers["ETag"] = tag


class Change(Asked):
    """A change that may name what it was made for."""

    def __init__(
        self,
        engine_id: EngineId,
        service: TheService,
        caller: Operator,
        response: Response,
        if_match: Annotated[
            str | None,
            Header(
                alias="If-Match",
                max_length=200,
                description="ETag of what this was made for; * for any.",
            ),
        ] = None,
        dry_run: DryRun = False,
    ) -> None:
        super().__init__(engine_id, service, caller, response, dry_run)
        self.if_match = if_match

    def version(self) -> int | None:
        """The policy version it was made for; None for any.

        Raises:
            ProblemError: 412, another one is in force.
        """
        if self.if_match is None or self.if_match.strip() == "*":
            return None
        present = self.runner.pilot.policy
        check_match(self.if_match, policy_tag(present), "" if present is None else present.author)
        return None if present is None else present.version


class Wait:
    """Whether to answer only when the engine does what the change asks for."""

    def __init__(
        self,
        asked: Annotated[Asked, Depends(Asked)],
        wait: Annotated[
            Literal["confirmed"] | None,
            Query(description="Answer when every observed rank confirms it, or with 202 in time."),
        ] = None,
        timeout: Annotated[
            float, Query(gt=0, le=60, description="Seconds to wait for the confirmation.")
        ] = 5.0,
    ) -> None:
        self.wanted = wait is not None and not asked.dry_run
        self.timeout_s = timeout
        self._asked = asked
        tick = asked.runner.status().tick
        self._since = 0 if tick is None else tick.observation.seq

    async def until(self, settled: Callable[[Tick], bool]) -> bool | None:
        """Wait for such a tick; None if that was not asked for, False if none came in time."""
        if not self.wanted:
            return None
        seq = self._since
        try:
            async with asyncio.timeout(self.timeout_s):
                while True:
                    tick = await self._asked.runner.next_tick(seq)
                    if settled(tick):
                        return True
                    seq = tick.observation.seq
        except TimeoutError:
            self.late()
            return False

    async def policy(self, made: PolicyConfig) -> PolicyConfig:
        """A new version as the answer, once ranks do what it asks for."""
        await self.until(lambda tick: tick.policy_version >= made.version and at_rest(tick))
        # A version that only would be has no tag: the one in force has.
        self._asked.tagged(policy_tag(self._asked.runner.pilot.policy))
        return made

    def late(self) -> None:
        """Answer that it is in force and was not confirmed in time."""
        self._asked.response.status_code = 202


def waited(model: type[Any]) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` of a route that may wait."""
    text = "In force, not confirmed in time."
    return {**CHANGES, 202: {"model": model, "description": text}}


def at_rest(tick: Tick) -> bool:
    """Whether every observed rank does what is asked of the engine, and nothing is about to be.

    True where nothing is asked of it: automation does not act, and no override is in force.
    """
    if not isinstance(tick.observation, Sample) or tick.pending is not None:
        return False
    if tick.stance is not Stance.ACTIVE and tick.override is None:
        return True
    verdict = tick.verdict
    if verdict.reason in UNDECIDED or verdict.tier not in (None, tick.confirmed):
        return False
    match tick.desired_mode:
        case None:
            return True
        case Mode.AUTO:
            return tick.observation.mode is Mode.AUTO
        case Mode.ON if tick.desired is None:
            return tick.confirmed not in (None, OFF)
        case _:
            return tick.confirmed is not None and tick.confirmed == tick.desired
