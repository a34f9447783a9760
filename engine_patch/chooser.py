"""The deciding side of an engine: which tier the next decode batch runs.  Pure.

One ``Chooser`` lives in each rank.  It decides from counts that are the same on all ranks of a
replica (batch size, accepted drafts, steps) and never from a clock, so ranks agree without talking.
A change happens only at the head of a decode batch.

SGLang's own adaptive policy re-reads the batch size without memory and flaps (2,000 switches in
2,000 rounds at a batch alternating 56/57, our measurement); this one has two thresholds per
boundary, a dwell in decode steps, and a growing wait after a retreat for poor acceptance.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from engine_patch.accept_window import Window
from engine_patch.contract import JournalEntry
from engine_patch.contract_commands import ReplicaAnswer
from engine_patch.contract_words import Mode, OffFlavour, SwitchReason
from engine_patch.tier import OFF, Thresholds, TierName, TierShape
from engine_patch.wire import RankCommand

JOURNAL_LENGTH = 512
"""Entries kept; a reader that falls further behind sees a hole in the numbering."""
FLOOR_REQUESTS = 64
"""Request-steps a window needs before it is compared with the accept-length floor."""
RETRY_STEPS = 512
"""Decode steps before a tier left for poor acceptance may be tried again; doubles each time."""
RETRY_STEPS_MOST = 65536


@dataclass(slots=True)
class _Retreat:
    """A tier left for poor acceptance: when it may be tried again, and how long the wait was."""

    until_step: int
    wait: int


class Chooser:
    """Chooses the tier of each decode batch of one rank.

    Args:
        tiers: the built tiers.
        launch_tier: the tier that runs before the first command.
        largest_batch: batch sizes above it are never given to that tier in ``auto``.
        page_size: KV page size, for the reserve.
        reserve_follows: whether the KV reserve follows the active tier on this engine.
        dp_rank: replica number written into the journal.
    """

    def __init__(
        self,
        tiers: Sequence[TierName],
        launch_tier: TierName,
        *,
        largest_batch: Mapping[TierName, int] | None = None,
        page_size: int = 1,
        reserve_follows: bool = False,
        dp_rank: int = 0,
    ) -> None:
        if launch_tier not in tiers:
            raise ValueError(f"launch tier {launch_tier} is not among the built {tuple(tiers)}")
        self.tiers = tuple(tiers)
        self.tier = launch_tier
        self.launch_tier = launch_tier
        self.last_speculating = (
            launch_tier
            if launch_tier != OFF
            else next((tier for tier in tiers if tier != OFF), launch_tier)
        )
        self.mode = Mode.OFF if launch_tier == OFF else Mode.ON
        self.wanted: TierName = launch_tier
        self.thresholds: Thresholds | None = None
        self.off_flavour: OffFlavour | None = None
        self.epoch = self.generation = 0
        self.step = 0
        self.verify_steps = 0
        self.switches = 0
        self.journal: deque[JournalEntry] = deque(maxlen=JOURNAL_LENGTH)
        self.window = Window(launch_tier)
        self._largest = dict(largest_batch or {})
        self._reserves = {tier: TierShape.parse(tier).reserve(page_size) for tier in tiers}
        self._reserve_follows = reserve_follows
        self._dp_rank = dp_rank
        self._reason = SwitchReason.COMMAND
        self._since_switch = 0
        self._retreats: dict[TierName, _Retreat] = {}

    def reserve_of(self, tier: TierName) -> int:
        """KV slots held back per running request while this tier is active."""
        return self._reserves[tier]

    def command(
        self, command: RankCommand, *, running: int = 0, free_slots: int | None = None
    ) -> ReplicaAnswer:
        """Take a command; the tier changes at the head of the next decode batch.

        Args:
            running: requests in the running batch.
            free_slots: free plus evictable KV slots, None if unknown.  Where the reserve follows
                the tier, a command that needs more is refused and nothing moves.
        """
        wanted = self._wanted(command)
        short = self._short(wanted, running, free_slots)
        if short is not None:
            needed, free = short
            return self._answer(
                applied=False,
                message=f"kv_short: tier {wanted} needs {needed} more KV slots, {free} are free",
            ).model_copy(update={"needed_slots": needed, "free_slots": free})
        self.mode = command.mode
        self.wanted = wanted
        self.thresholds = command.thresholds or self.thresholds
        self.off_flavour = command.off_flavour or self.off_flavour
        self.epoch, self.generation = command.epoch, command.generation
        self._reason = command.reason
        if command.mode is Mode.AUTO:
            # A person or policy just chose: the engine may follow the load at once.
            self._since_switch = self._dwell()
        return self._answer(applied=True)

    def next_tier(self, batch: int, *, free_slots: Callable[[], int] | None = None) -> TierName:
        """The tier of the decode batch that is about to start; counts it as a step.

        Args:
            batch: running requests in it, at least 1.
            free_slots: reads the free plus evictable KV slots, which must be the same on all
                ranks; asked only where the reserve follows the tier and ``auto`` would move to a
                tier that needs more.  Such a move waits until they suffice.
        """
        self.step += 1
        self._since_switch += 1
        if self.mode is Mode.AUTO:
            self._auto(batch, free_slots)
        elif self.wanted != self.tier:
            self._switch(self.wanted, self._reason, batch)
        if self.tier != OFF:
            self.verify_steps += 1
        return self.tier

    def settle_idle(self) -> TierName:
        """Apply a commanded tier while nothing runs, so that an idle engine obeys at once.

        In ``auto`` nothing happens: a moment of emptiness between two waves of requests is no load
        to follow, and following it would flap.
        """
        if self.mode is not Mode.AUTO and self.wanted != self.tier:
            self._switch(self.wanted, self._reason, 0)
        return self.tier

    def verified(self, tier: TierName, accepted: Sequence[int]) -> None:
        """Take the result of a verify step.

        Args:
            tier: the tier that produced it; with overlap this may be an earlier one, whose results
                do not belong into the present window.
            accepted: accepted drafts of each request, bonus not counted.
        """
        if tier == self.tier and tier != OFF and accepted:
            self.window.add(accepted)

    def journal_since(self, seq: int) -> tuple[JournalEntry, ...]:
        """Entries with a higher number, oldest first."""
        return tuple(entry for entry in self.journal if entry.seq > seq)

    @property
    def journal_first(self) -> int:
        """Smallest number still kept; 1 while nothing was dropped."""
        return self.journal[0].seq if self.journal else self.switches + 1

    def _answer(self, *, applied: bool, message: str = "") -> ReplicaAnswer:
        tier = None if self.mode is Mode.AUTO else self.wanted
        return ReplicaAnswer(dp_rank=self._dp_rank, applied=applied, tier=tier, message=message)

    def _wanted(self, command: RankCommand) -> TierName:
        if command.mode is Mode.OFF:
            return OFF
        if command.mode is Mode.ON:
            return command.tier or self.last_speculating
        return self.tier

    def _short(
        self, wanted: TierName, running: int, free_slots: int | None
    ) -> tuple[int, int] | None:
        """KV slots that a tier needs and that are free; None if they suffice."""
        if not self._reserve_follows or free_slots is None:
            return None
        needed = running * (self._reserves[wanted] - self._reserves[self.tier])
        return None if needed <= free_slots else (needed, free_slots)

    def _no_slots(self, wanted: TierName, batch: int, free_slots: Callable[[], int] | None) -> bool:
        if not self._reserve_follows or free_slots is None:
            return False
        if self._reserves[wanted] <= self._reserves[self.tier]:
            return False
        return self._short(wanted, batch, free_slots()) is not None

    def _dwell(self) -> int:
        return self.thresholds.min_dwell_steps if self.thresholds else 0

    def _auto(self, batch: int, free_slots: Callable[[], int] | None = None) -> None:
        order = self.thresholds
        if order is None:
            return
        present = order.tiers.index(self.tier) if self.tier in order.tiers else None
        target = self._by_load(order, present, batch)
        forced = batch > self._largest.get(self.tier, batch)
        if present is not None and not forced:
            if self._since_switch < order.min_dwell_steps:
                return
            if target <= present and self._too_poor(order, present):
                self._retreat_from(self.tier)
                self._switch(order.tiers[present + 1], SwitchReason.ACCEPT_FLOOR, batch)
                return
            if target < present:
                target = self._past_retreats(order, target, present)
        if forced:
            while target < len(order.tiers) - 1 and batch > self._largest.get(
                order.tiers[target], batch
            ):
                target += 1
        if order.tiers[target] != self.tier and not self._no_slots(
            order.tiers[target], batch, free_slots
        ):
            busier = present is None or target > present
            reason = SwitchReason.BATCH_UP if busier else SwitchReason.BATCH_DOWN
            self._switch(order.tiers[target], reason, batch)

    @staticmethod
    def _by_load(order: Thresholds, present: int | None, batch: int) -> int:
        place = 0 if present is None else present
        while place < len(order.boundaries) and batch >= order.boundaries[place].up_at:
            place += 1
        while place > 0 and batch <= order.boundaries[place - 1].down_at:
            place -= 1
        return place

    def _too_poor(self, order: Thresholds, present: int) -> bool:
        floor = order.min_accept_length.get(self.tier)
        length = self.window.length
        if floor is None or length is None or self.window.requests < FLOOR_REQUESTS:
            return False
        if length >= floor:
            self._retreats.pop(self.tier, None)
            return False
        return present + 1 < len(order.tiers)

    def _retreat_from(self, tier: TierName) -> None:
        before = self._retreats.get(tier)
        wait = RETRY_STEPS if before is None else min(2 * before.wait, RETRY_STEPS_MOST)
        self._retreats[tier] = _Retreat(until_step=self.step + wait, wait=wait)

    def _past_retreats(self, order: Thresholds, target: int, present: int) -> int:
        while target < present:
            retreat = self._retreats.get(order.tiers[target])
            if retreat is None or self.step >= retreat.until_step:
                return target
            target += 1
        return target

    def _switch(self, tier: TierName, reason: SwitchReason, batch: int) -> None:
        before, self.tier = self.tier, tier
        self.switches += 1
        returned = self._reserves[before] - self._reserves[tier] if self._reserve_follows else 0
        self.journal.append(
            JournalEntry(
                dp_rank=self._dp_rank,
                seq=self.switches,
                from_tier=before,
                to_tier=tier,
                reason=reason,
                step=self.step,
                batch=batch,
                accept_length=self.window.length,
                epoch=self.epoch,
                generation=self.generation,
                reserve_returned=returned,
            )
        )
        if tier != OFF:
            self.last_speculating = tier
        self.wanted = tier
        self.window = Window(tier)
        self._since_switch = 0
