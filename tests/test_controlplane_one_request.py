"""At most one request at a time to one endpoint."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.one_request import OneRequest


class Engine:
    """Answers when told to; counts what is outstanding."""

    def __init__(self) -> None:
        self.asked = 0
        self.out = 0
        self.most_out = 0
        self.release = asyncio.Event()

    async def answer(self) -> int:
        self.asked += 1
        mine = self.asked
        self.out += 1
        self.most_out = max(self.most_out, self.out)
        try:
            await self.release.wait()
        finally:
            self.out -= 1
        return mine


async def test_an_answer_in_time_is_handed_back() -> None:
    engine, line = Engine(), OneRequest[int]()
    engine.release.set()
    assert await line.ask(engine.answer, 1.0) == 1
    assert await line.ask(engine.answer, 1.0) == 2


async def test_a_hanging_engine_gets_no_second_request() -> None:
    engine, line = Engine(), OneRequest[int]()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await line.ask(engine.answer, 0.05)
    assert (engine.asked, engine.most_out) == (1, 1)
    await line.close()
    assert engine.out == 0


async def test_a_late_answer_is_thrown_away_and_asked_for_anew() -> None:
    engine, line = Engine(), OneRequest[int]()
    with pytest.raises(TimeoutError):
        await line.ask(engine.answer, 0.02)
    engine.release.set()
    assert await line.ask(engine.answer, 1.0) == 2


async def test_a_request_that_failed_while_left_frees_the_line() -> None:
    line = OneRequest[int]()

    async def fails_late() -> int:
        await asyncio.sleep(0.05)
        raise ConnectionResetError

    async def works() -> int:
        return 5

    with pytest.raises(TimeoutError):
        await line.ask(fails_late, 0.01)
    assert await line.ask(works, 1.0) == 5


async def test_askers_at_the_same_time_take_turns() -> None:
    engine, line = Engine(), OneRequest[int]()
    both = asyncio.gather(line.ask(engine.answer, 1.0), line.ask(engine.answer, 1.0))
    await asyncio.sleep(0.02)
    engine.release.set()
    assert sorted(await both) == [1, 2]
    assert engine.most_out == 1


async def test_an_asker_that_is_cancelled_leaves_the_line_usable() -> None:
    engine, line = Engine(), OneRequest[int]()
    asker = asyncio.create_task(line.ask(engine.answer, 5.0))
    await asyncio.sleep(0.01)
    asker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asker
    engine.release.set()
    assert await line.ask(engine.answer, 1.0) == 2
