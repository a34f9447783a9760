"""The commanding side of an engine: who may command, in which order, and for how long.  Pure.

One ``Front`` lives in the engine's HTTP process.  It checks a command against claim, order and what
was built, and turns it into a ``RankCommand`` for the ranks; time is an argument in milliseconds of
any monotonic clock.  Ranks never see a clock: the lease is kept here and its end travels to them
like a command.
"""

from __future__ import annotations

from typing import Self

from pydantic import Field

from engine_patch.contract import PROTOCOL, PROTOCOL_MIN, Claim, Lease
from engine_patch.contract_commands import CommandAnswer, Refusal, ReplicaAnswer, SpeculationCommand
from engine_patch.contract_words import Mode, OffFlavour, OnLeaseEnd, RefusalCode, SwitchReason
from engine_patch.tier import OFF, Frozen, Thresholds, TierName
from engine_patch.wire import RankCommand


class Duplicate(Frozen):
    """The command was taken before; the earlier answer is given again."""

    answer: CommandAnswer


class Accepted(Frozen):
    """The command may go to the ranks; ``front`` is in force once they took it."""

    front: Front
    command: RankCommand


class Front(Frozen):
    """What is in force at one engine start.

    Args:
        boot_id: of this start.
        tiers: the built tiers, in the order of the wire indices.
        largest_batch: largest batch per tier, where the tier has a limit of its own.
        flavours: off flavours that can be asked for.
        unsupported: why nothing can be switched on this engine, "" if it can.
        epoch, generation: order of the last taken command, (0, 0) before the first.
        taken: the last taken command, and what was answered; None while the ranks owe an answer.
        lease_until_ms: end of the lease on the caller's monotonic clock.
    """

    boot_id: str
    tiers: tuple[TierName, ...] = Field(min_length=1)
    launch_tier: TierName
    largest_batch: dict[TierName, int] = Field(default_factory=dict)
    flavours: tuple[OffFlavour, ...] = ()
    unsupported: str = ""
    mode: Mode
    tier: TierName | None = None
    thresholds: Thresholds | None = None
    off_flavour: OffFlavour | None = None
    epoch: int = 0
    generation: int = 0
    holder: str | None = None
    lease_s: float | None = None
    lease_until_ms: float | None = None
    on_lease_end: OnLeaseEnd = OnLeaseEnd.AUTO
    taken: SpeculationCommand | None = None
    answer: CommandAnswer | None = None

    @classmethod
    def at_launch(
        cls,
        boot_id: str,
        tiers: tuple[TierName, ...],
        launch_tier: TierName,
        *,
        largest_batch: dict[TierName, int] | None = None,
        flavours: tuple[OffFlavour, ...] = (),
        unsupported: str = "",
    ) -> Self:
        """The state of an engine that nobody has commanded yet: it runs its launch tier."""
        return cls(
            boot_id=boot_id,
            tiers=tiers,
            launch_tier=launch_tier,
            largest_batch=largest_batch or {},
            flavours=flavours,
            unsupported=unsupported,
            mode=Mode.OFF if launch_tier == OFF else Mode.ON,
            tier=launch_tier,
        )

    def claim(self, now_ms: float) -> Claim | None:
        """Who holds the engine now."""
        if self.holder is None:
            return None
        return Claim(holder=self.holder, epoch=self.epoch, remaining_s=self._left(now_ms))

    def lease(self, now_ms: float) -> Lease | None:
        """The running lease."""
        left = self._left(now_ms)
        if left is None or self.lease_s is None:
            return None
        return Lease(lease_s=self.lease_s, remaining_s=left, on_lease_end=self.on_lease_end)

    def _left(self, now_ms: float) -> float | None:
        if self.lease_until_ms is None:
            return None
        return max(0.0, (self.lease_until_ms - now_ms) / 1000)

    def refuse(
        self, code: RefusalCode, message: str, now_ms: float, *, allowed: tuple[str, ...] = ()
    ) -> Refusal:
        """A refusal that says who holds the engine and which order is in force."""
        return Refusal(
            code=code,
            message=message,
            allowed=allowed,
            claim=self.claim(now_ms),
            epoch=self.epoch,
            generation=self.generation,
        )

    def accept(self, command: SpeculationCommand, now_ms: float) -> Accepted | Duplicate | Refusal:
        """Check a command.  On a refusal nothing moves."""
        refusal = self._refuse_order(command, now_ms) or self._refuse_body(command, now_ms)
        if refusal is not None:
            return refusal
        if command == self.taken:
            if self.answer is not None:
                return Duplicate(answer=self.answer.model_copy(update={"duplicate": True}))
            # The ranks did not answer the first time: the same command goes out again.
            return Accepted(front=self, command=self._to_ranks(command))
        epoch = command.epoch
        if self._foreign(command):
            epoch = max(epoch, self.epoch) + 1
        front = self.model_copy(
            update={
                "mode": command.mode,
                "tier": OFF if command.mode is Mode.OFF else command.shape_name(),
                "thresholds": command.thresholds or self.thresholds,
                "off_flavour": command.off_flavour or self.off_flavour,
                "epoch": epoch,
                "generation": command.generation,
                "holder": command.holder,
                "lease_s": command.lease_s,
                "lease_until_ms": None
                if command.lease_s is None
                else now_ms + command.lease_s * 1000,
                "on_lease_end": command.on_lease_end,
                "taken": command,
                "answer": None,
            }
        )
        return Accepted(front=front, command=front._to_ranks(command))

    def answered(self, replicas: tuple[ReplicaAnswer, ...], now_ms: float) -> Front:
        """Remember what the replicas said to the taken command."""
        answer = CommandAnswer(
            protocol=PROTOCOL,
            boot_id=self.boot_id,
            epoch=self.epoch,
            generation=self.generation,
            mode=self.mode,
            tier=self.tier,
            replicas=replicas,
            claim=self.claim(now_ms),
            lease=self.lease(now_ms),
        )
        return self.model_copy(update={"answer": answer})

    def lease_ended(self, now_ms: float) -> tuple[Front, RankCommand | None] | None:
        """What happens if the lease is over by now; None while it runs or if there is none.

        The claim falls with the lease.  ``auto`` without accepted thresholds means ``launch``.
        """
        if self.lease_until_ms is None or now_ms < self.lease_until_ms:
            return None
        freed: dict[str, object] = {"holder": None, "lease_s": None, "lease_until_ms": None}
        if self.on_lease_end is OnLeaseEnd.HOLD:
            return self.model_copy(update=freed), None
        if self.on_lease_end is OnLeaseEnd.AUTO and self.thresholds is not None:
            mode, tier = Mode.AUTO, None
        else:
            mode, tier = (Mode.OFF if self.launch_tier == OFF else Mode.ON), self.launch_tier
        front = self.model_copy(update=freed | {"mode": mode, "tier": tier})
        command = RankCommand(
            mode=mode,
            tier=tier,
            epoch=self.epoch,
            generation=self.generation,
            reason=SwitchReason.LEASE_END,
        )
        return front, command

    def _foreign(self, command: SpeculationCommand) -> bool:
        return self.holder is not None and self.holder != command.holder

    def _to_ranks(self, command: SpeculationCommand) -> RankCommand:
        return RankCommand(
            mode=command.mode,
            tier=OFF if command.mode is Mode.OFF else command.shape_name(),
            thresholds=command.thresholds,
            off_flavour=command.off_flavour,
            epoch=self.epoch,
            generation=self.generation,
        )

    def _refuse_order(self, command: SpeculationCommand, now_ms: float) -> Refusal | None:
        if not PROTOCOL_MIN <= command.protocol <= PROTOCOL:
            return self.refuse(
                RefusalCode.PROTOCOL,
                f"this engine serves protocols {PROTOCOL_MIN} to {PROTOCOL}, "
                f"not {command.protocol}: upgrade the older side",
                now_ms,
            )
        if command == self.taken:
            return None
        if self._foreign(command) and not command.takeover:
            left = self._left(now_ms)
            until = "until it is taken over" if left is None else f"for {left:.1f} s more"
            return self.refuse(
                RefusalCode.FOREIGN_CLAIM,
                f"{self.holder} holds this engine {until}; wait, or send takeover: true",
                now_ms,
            )
        given, now = (command.epoch, command.generation), (self.epoch, self.generation)
        if command.takeover and self._foreign(command):
            stale = command.epoch < self.epoch
        else:
            stale = given < now or now == given == (0, 0)
        if stale:
            return self.refuse(
                RefusalCode.STALE_ORDER,
                f"order (epoch {given[0]}, generation {given[1]}) is not above the one in force "
                f"(epoch {now[0]}, generation {now[1]}): read GET /speculation and count on",
                now_ms,
            )
        if given == now and not self._foreign(command):
            return self.refuse(
                RefusalCode.OTHER_BODY,
                f"epoch {given[0]}, generation {given[1]} was used for another command: "
                "raise the generation",
                now_ms,
            )
        return None

    def _refuse_body(self, command: SpeculationCommand, now_ms: float) -> Refusal | None:
        if self.unsupported:
            return self.refuse(RefusalCode.UNSUPPORTED, self.unsupported, now_ms)
        wanted = OFF if command.mode is Mode.OFF else command.shape_name()
        named = ([wanted] if wanted else []) + list(
            command.thresholds.tiers if command.thresholds else ()
        )
        for name in named:
            if name not in self.tiers:
                return self.refuse(
                    RefusalCode.UNKNOWN_TIER,
                    f"tier {name} was not built at start; built are {', '.join(self.tiers)}",
                    now_ms,
                    allowed=self.tiers,
                )
        if command.mode is Mode.ON and all(name == OFF for name in self.tiers):
            return self.refuse(
                RefusalCode.UNKNOWN_TIER, "no speculating tier was built at start", now_ms
            )
        if command.mode is Mode.AUTO and command.thresholds is None and self.thresholds is None:
            return self.refuse(
                RefusalCode.NO_THRESHOLDS,
                "mode 'auto' needs thresholds: send them with this command",
                now_ms,
            )
        if command.off_flavour is not None and command.off_flavour not in self.flavours:
            return self.refuse(
                RefusalCode.UNSUPPORTED,
                f"off flavour {command.off_flavour} is not available here",
                now_ms,
                allowed=tuple(self.flavours),
            )
        return self._refuse_limits(command.thresholds, now_ms)

    def _refuse_limits(self, order: Thresholds | None, now_ms: float) -> Refusal | None:
        if order is None:
            return None
        for tier, boundary in zip(order.tiers, order.boundaries, strict=False):
            limit = self.largest_batch.get(tier)
            if limit is not None and boundary.up_at > limit + 1:
                return self.refuse(
                    RefusalCode.INVALID,
                    f"tier {tier} serves batches up to {limit}, so its up_at may be at most "
                    f"{limit + 1}, not {boundary.up_at}",
                    now_ms,
                )
        return None


Accepted.model_rebuild()
