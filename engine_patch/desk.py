"""Where commands are taken: one after the other, to every rank, with the end of their lease."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from engine_patch.contract import PROTOCOL, SpeculationState
from engine_patch.contract_commands import (
    CommandAnswer,
    RebuildAnswer,
    Refusal,
    ReplicaAnswer,
    ReplicaRebuilt,
    SpeculationCommand,
)
from engine_patch.contract_words import RefusalCode
from engine_patch.front import Accepted, Duplicate, Front
from engine_patch.wire import RankCommand

log = logging.getLogger("specdeck")


LEASE_RETRY_S = 1.0
"""How long until the end of a lease is repeated to ranks that did not take it."""


class ApplyTimeoutError(Exception):
    """The ranks did not answer a command in time; whether they took it is not known."""


class Backend(Protocol):
    """What the routes need from an engine."""

    def snapshot(self, front: Front, since: int) -> SpeculationState:
        """Assemble the state from what the ranks publish; never waits for a scheduler.

        Args:
            since: journal entries with a higher number are wanted.
        """
        ...

    async def apply(self, command: RankCommand) -> tuple[ReplicaAnswer, ...]:
        """Carry a command to every rank; one answer per DP replica.

        Raises:
            ApplyTimeoutError: some replica did not answer.
        """
        ...


@runtime_checkable
class Rebuilder(Protocol):
    """An engine whose requests may have a hole in the drafter's KV, and can be made whole."""

    async def rebuild(self) -> tuple[ReplicaRebuilt, ...]:
        """Retract and resume; one answer per DP replica.

        Raises:
            ApplyTimeoutError: some replica did not answer.
        """
        ...


class Desk:
    """Serialises commands, keeps the front and its lease.

    Args:
        front: the state at launch.
        backend: the engine.
        now_ms: a monotonic clock in milliseconds.
        admin_key: without one, commands are taken from loopback only.
    """

    def __init__(
        self,
        front: Front,
        backend: Backend,
        now_ms: Callable[[], float],
        *,
        admin_key: str | None = None,
    ) -> None:
        self.front = front
        self.backend = backend
        self._now_ms = now_ms
        self._admin_key = admin_key
        self._turn = asyncio.Lock()
        self._lease: asyncio.Task[None] | None = None

    def state(self, since: int) -> SpeculationState:
        """What ``GET`` answers."""
        now = self._now_ms()
        state = self.backend.snapshot(self.front, since)
        return state.model_copy(
            update={"claim": self.front.claim(now), "lease": self.front.lease(now)}
        )

    async def take(self, command: SpeculationCommand) -> CommandAnswer | Refusal:
        """Check a command, carry it to the ranks and say what they did."""
        async with self._turn:
            taken = self.front.accept(command, self._now_ms())
            if isinstance(taken, Duplicate):
                return taken.answer
            if isinstance(taken, Refusal):
                return taken
            return await self._carry(taken)

    async def rebuild(self) -> RebuildAnswer | Refusal:
        """Let the ranks make requests whole that lived through a cold off."""
        async with self._turn:
            if not isinstance(self.backend, Rebuilder):
                return self.front.refuse(
                    RefusalCode.UNSUPPORTED, "this engine keeps no drafter KV", self._now_ms()
                )
            try:
                replicas = await self.backend.rebuild()
            except ApplyTimeoutError as error:
                return self.front.refuse(RefusalCode.TIMEOUT, str(error), self._now_ms())
        refused = [replica.message for replica in replicas if replica.message]
        if refused and len(refused) == len(replicas):
            return self.front.refuse(RefusalCode.UNSUPPORTED, refused[0], self._now_ms())
        return RebuildAnswer(
            protocol=PROTOCOL, boot_id=self.front.boot_id, replicas=tuple(replicas)
        )

    async def _carry(self, taken: Accepted) -> CommandAnswer | Refusal:
        try:
            replicas = await self.backend.apply(taken.command)
        except ApplyTimeoutError as error:
            # The order counts as used: the ranks may have taken it.  The same command may be
            # repeated; what they run is seen in GET.
            self.front = taken.front
            self._watch_lease()
            return self.front.refuse(RefusalCode.TIMEOUT, str(error), self._now_ms())
        refused = [replica for replica in replicas if not replica.applied]
        if len(refused) == len(replicas):
            return self._refused(refused)
        self.front = taken.front.answered(replicas, self._now_ms())
        self._watch_lease()
        answer = self.front.answer
        if refused or answer is None:
            names = ", ".join(str(replica.dp_rank) for replica in refused)
            return self.front.refuse(
                RefusalCode.DISAGREE,
                f"DP replicas {names} did not take the command: {refused[0].message}; "
                "the others did",
                self._now_ms(),
            )
        return answer

    def _refused(self, replicas: list[ReplicaAnswer]) -> Refusal:
        message = replicas[0].message if replicas else "no replica answered"
        short = message.startswith(RefusalCode.KV_SHORT)
        code = RefusalCode.KV_SHORT if short else RefusalCode.UNSUPPORTED
        refusal = self.front.refuse(code, message, self._now_ms())
        first = replicas[0] if replicas else None
        if first is None or not short:
            return refusal
        return refusal.model_copy(
            update={"needed_slots": first.needed_slots, "free_slots": first.free_slots}
        )

    def _watch_lease(self) -> None:
        if self._lease is not None:
            self._lease.cancel()
            self._lease = None
        until = self.front.lease_until_ms
        if until is not None:
            self._lease = asyncio.create_task(self._wait_lease(until))

    async def _wait_lease(self, until_ms: float) -> None:
        # In rounds: a timer may fire early (uvloop counts whole milliseconds).
        left_ms = until_ms - self._now_ms()
        while left_ms > 0:
            await asyncio.sleep(left_ms / 1000)
            left_ms = until_ms - self._now_ms()
        async with self._turn:
            ended = self.front.lease_ended(self._now_ms())
            if ended is None or self.front.lease_until_ms != until_ms:
                return
            self.front, command = ended
            trouble = "" if command is None else await self._fall_back(command)
        if trouble:
            log.warning("the end of the lease did not take effect and is repeated: %s", trouble)
        # Between two tries the turn is free: an order that is taken meanwhile ends this task.
        while command is not None and trouble:
            await asyncio.sleep(LEASE_RETRY_S)
            async with self._turn:
                trouble = await self._fall_back(command)

    async def _fall_back(self, command: RankCommand) -> str:
        """Carry the end of a lease to the ranks; why some replica did not take it, "" if all did.

        A scheduler that hangs, or has too few KV slots for now, must still fall back later.
        """
        try:
            replicas = await self.backend.apply(command)
        except Exception as error:  # of any kind: nobody else would ask again
            log.debug("the end of the lease did not reach the ranks", exc_info=True)
            return f"{type(error).__name__}: {error}"
        return next((one.message or "refused" for one in replicas if not one.applied), "")

    def close(self) -> None:
        """Stop the lease timer."""
        if self._lease is not None:
            self._lease.cancel()

    def forbids(self, host: str | None, authorization: str | None) -> Refusal | None:
        """Why this caller may not command, None if he may."""
        if self._admin_key is not None:
            scheme, _, given = (authorization or "").partition(" ")
            right = hmac.compare_digest(given.strip().encode(), self._admin_key.encode())
            if right and scheme.lower() == "bearer":
                return None
            message = "this engine takes commands with its admin key: send it as a Bearer token"
        elif _is_loopback(host):
            return None
        else:
            message = (
                "without an admin key commands are taken from loopback only: "
                "start the server with --admin-api-key"
            )
        return Refusal(code=RefusalCode.FORBIDDEN, message=message)


def _is_loopback(host: str | None) -> bool:
    if host is None:  # a Unix socket
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
