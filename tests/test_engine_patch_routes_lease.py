"""The end of a lease takes effect, whatever timers and ranks do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from engine_patch.contract import SpeculationState
from engine_patch.contract_commands import CommandAnswer, ReplicaAnswer, SpeculationCommand
from engine_patch.contract_words import Mode, OnLeaseEnd, SwitchReason
from engine_patch.desk import ApplyTimeoutError, Desk
from engine_patch.front import Front
from engine_patch.wire import RankCommand
from tests.controlplane_rig import until


class Ranks:
    """Notes the orders that reach the ranks, and answers them as told, then with yes."""

    def __init__(self, *answers: ReplicaAnswer | Exception) -> None:
        self.orders: list[RankCommand] = []
        self._answers: Iterator[ReplicaAnswer | Exception] = iter(answers)

    def snapshot(self, front: Front, since: int) -> SpeculationState:
        """Nobody asks here."""
        raise NotImplementedError

    async def apply(self, command: RankCommand) -> tuple[ReplicaAnswer, ...]:
        """See ``routes.Backend``."""
        self.orders.append(command)
        answer = next(self._answers, ReplicaAnswer(dp_rank=0, applied=True, tier=command.tier))
        if isinstance(answer, Exception):
            raise answer
        return (answer,)


YES = ReplicaAnswer(dp_rank=0, applied=True, tier="off")
NO = ReplicaAnswer(dp_rank=0, applied=False, message="kv_short: 8 slots are missing")


def _desk(ranks: Ranks, now_ms: Callable[[], float] = lambda: time.monotonic() * 1000) -> Desk:
    return Desk(Front.at_launch("b" * 32, ("off", "s3k1d4"), "s3k1d4"), ranks, now_ms)


def _off(generation: int, lease_s: float | None) -> SpeculationCommand:
    return SpeculationCommand(
        holder="suite",
        epoch=0,
        generation=generation,
        mode=Mode.OFF,
        lease_s=lease_s,
        on_lease_end=OnLeaseEnd.LAUNCH,
    )


async def _reaches(ranks: Ranks, number: int) -> None:
    await until(lambda: len(ranks.orders) >= number)


async def test_a_timer_that_fires_early_does_not_lose_the_end_of_a_lease() -> None:
    ranks = Ranks()
    # A clock that runs at nine tenths of the event loop's: each of its timers fires early.
    desk = _desk(ranks, lambda: time.monotonic() * 900)
    assert isinstance(await desk.take(_off(1, 0.2)), CommandAnswer)
    await _reaches(ranks, 2)
    assert (ranks.orders[1].reason, ranks.orders[1].tier) == (SwitchReason.LEASE_END, "s3k1d4")
    assert (desk.front.mode, desk.front.holder) == (Mode.ON, None)


@pytest.mark.parametrize(
    "trouble", [NO, ApplyTimeoutError("no answer"), RuntimeError("the broadcast broke")]
)
async def test_ranks_that_do_not_take_the_end_of_a_lease_hear_it_again(
    trouble: ReplicaAnswer | Exception,
) -> None:
    ranks = Ranks(YES, trouble, trouble)
    desk = _desk(ranks)
    await desk.take(_off(1, 0.05))
    await _reaches(ranks, 4)
    assert ranks.orders[1] == ranks.orders[2] == ranks.orders[3]
    await asyncio.sleep(1.5)
    assert len(ranks.orders) == 4


async def test_an_order_between_two_tries_is_taken_and_ends_the_repeating() -> None:
    ranks = Ranks(YES, NO)
    desk = _desk(ranks)
    await desk.take(_off(1, 0.05))
    await _reaches(ranks, 2)
    assert isinstance(await desk.take(_off(2, None)), CommandAnswer)
    await asyncio.sleep(1.5)
    assert [order.generation for order in ranks.orders] == [1, 1, 2]
    assert desk.front.mode is Mode.OFF
