"""One start ("boot") of an embedded engine: its replicas, its command desk, its state answer."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import replace

from engine_patch.contract import SpeculationState
from engine_patch.contract_commands import ReplicaAnswer
from engine_patch.desk import Desk
from engine_patch.embedded.core import Engine
from engine_patch.embedded.faults import Faults
from engine_patch.embedded.pacer import Lag, Pacer
from engine_patch.embedded.requests import Request
from engine_patch.embedded.state import Moment, Options, StateAnswer
from engine_patch.front import Front
from engine_patch.wire import RankCommand


class Answer:
    """What a caller waits for: ``left`` when the request is through, ``news`` while streaming."""

    __slots__ = ("left", "news")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.left: asyncio.Future[None] = loop.create_future()
        self.news = asyncio.Event()


class Host:
    """Replicas on wall time, with one command desk.  Implements ``routes.Backend``.

    Args:
        faults: shared between boots.
    """

    def __init__(self, options: Options, faults: Faults) -> None:
        self.options = options
        self.faults = faults
        self.boot_id = uuid.uuid4().hex
        self.started_s = time.monotonic()
        self.started_utc_ms = int(time.time() * 1000)
        config = options.config
        self.engines = [
            Engine(replace(config, dp_rank=rank), options.seed + rank) for rank in range(options.dp)
        ]
        self.lag = Lag()
        self.pacer = Pacer(self.engines, self.now_ms, self._left, self._progressed)
        self.state = StateAnswer(options, self.engines, faults, self.boot_id, self.started_utc_ms)
        front = Front.at_launch(
            self.boot_id,
            config.tiers,
            config.launch_tier,
            largest_batch=dict.fromkeys(config.tiers, config.max_running_requests),
            flavours=self.state.flavours,
            unsupported="this server was started without speculation" if config.plain else "",
        )
        self.desk = Desk(front, self, _mono_ms, admin_key=options.admin_key)
        self._next_replica = 0
        self.set_kv_pressure(faults.kv_pressure)

    def now_ms(self) -> float:
        """Virtual now: milliseconds of wall time since the start."""
        return (time.monotonic() - self.started_s) * 1000

    def wall_s(self, virtual_ms: float) -> float:
        """Unix seconds of a virtual time."""
        return (self.started_utc_ms + virtual_ms) / 1000

    # ---- requests --------------------------------------------------------------------------------

    def submit(
        self, prompt: int, output: int, *, ignore_eos: bool, part: int
    ) -> tuple[Request, Answer]:
        """Hand a request to the next replica in turn.

        Raises:
            ValueError: it could never run.
        """
        engine = self.engines[self._next_replica]
        answer = Answer(asyncio.get_running_loop())
        request = Request(
            prompt,
            output,
            arrival_ms=self.now_ms(),
            ignore_eos=ignore_eos,
            part=part,
            tag=answer,
        )
        engine.submit(request)
        self._next_replica = (self._next_replica + 1) % len(self.engines)
        self.pacer.submitted()
        return request, answer

    def answering(self, request: Request) -> None:
        """The answer of a request is about to leave: measure how late."""
        now = self.now_ms()
        finish = request.finish_ms if request.finish_ms is not None else now
        self.lag.answered(now - finish, finish - request.arrival_ms, now)

    def _left(self, request: Request) -> None:
        answer: Answer = request.tag
        answer.news.set()
        if not answer.left.done():
            answer.left.set_result(None)

    def _progressed(self, request: Request) -> None:
        answer: Answer = request.tag
        answer.news.set()

    # ---- routes.Backend --------------------------------------------------------------------------

    async def apply(self, command: RankCommand) -> tuple[ReplicaAnswer, ...]:
        """Carry a command to every replica."""
        self.pacer.catch_up()
        if self.faults.lie:
            return tuple(
                ReplicaAnswer(dp_rank=rank, applied=True, tier=command.tier)
                for rank in range(len(self.engines))
            )
        answers = tuple(engine.command(command) for engine in self.engines)
        self.pacer.submitted()
        return answers

    def snapshot(self, front: Front, since: int) -> SpeculationState:
        """The whole state, as of now."""
        now = self.pacer.catch_up()
        lag, valid = self.lag.judge(now, self.pacer.overdue_ms())
        return self.state.answer(front, since, Moment(now, lag, valid))

    # ---- faults ----------------------------------------------------------------------------------

    def set_kv_pressure(self, slots: int) -> None:
        """Hold KV slots on every replica."""
        for engine in self.engines:
            engine.hold(slots)
        self.pacer.submitted()

    def set_accept_length(self, accept_length: float) -> None:
        """Change the acceptance of every replica from the next step on."""
        for engine in self.engines:
            engine.set_accept_length(accept_length)
        self.state.set_accept_length(accept_length)

    def close(self, why: str) -> None:
        """End this boot: everything in flight fails with ``why``."""
        self.pacer.close()
        self.desk.close()
        for engine in self.engines:
            for request in engine.abort_all(why):
                self._left(request)


def _mono_ms() -> float:
    return time.monotonic() * 1000
