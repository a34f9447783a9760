"""The feed of a replay: sends orders and reads what lies at the position.  Knows no widget.

The position is asked for, not the event stream followed: at a thousand times the speed a stream
leaves ticks out, and what was left out would look like a gap.  The trends are read whole wherever
the replay stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from textual.message import Message

from console.board import Board, apply, with_status
from console.replay_board import merged, seed_count, seen_from
from console.replay_messages import (
    NothingThatWay,
    ReplayMoved,
    ReplayOpened,
    ReplayTrouble,
    StripArrived,
)
from controlplane.client import ControlPlaneClient, ControlPlaneError, RefusedError
from controlplane.sessions_messages import ReplayRequest, ReplayState, StripAnswer
from store.records import Tick

PLAYING_S = 0.2
"""Between two looks at a replay that plays."""
RESTING_S = 2.0
"""The same at rest: somebody else may steer it through its API."""
RETRY_S = 1.0
NEAR_TICKS = 400
"""So far ahead, the ticks between are read; further or back, everything is read anew."""
DECISIONS = 200


class ReplayFeed:
    """Steers and reads one replay.

    Args:
        post: takes each message; must not block.
    """

    def __init__(self, client: ControlPlaneClient, post: Callable[[Message], object]) -> None:
        self._client = client
        self._post = post
        self._orders: list[ReplayRequest] = []
        self._cells = 0
        self._wake = asyncio.Event()
        self._strip: StripAnswer | None = None
        self._strip_wanted = False
        self._board: Board | None = None
        self._place = 0
        self._turning = True

    @property
    def idle(self) -> bool:
        """Whether everything that was ordered is done and posted."""
        return not (self._turning or self._orders or self._strip_wanted)

    def order(self, request: ReplayRequest) -> None:
        """Send an order soon."""
        self._orders.append(request)
        self._wake.set()

    def want_strip(self, cells: int = 0) -> None:
        """Read the time line again, for so many cells if given."""
        self._cells = cells or self._cells
        self._strip_wanted = True
        self._wake.set()

    async def run(self) -> None:
        """Follow for ever; ends only by cancellation."""
        opened = troubled = False
        while True:
            try:
                if not opened:
                    self._post(ReplayOpened(tuple(await self._client.session_markers())))
                    opened = True
                self._turning = True
                state = await self.turn()
            except ControlPlaneError as error:
                troubled = True
                self._turning = False
                self._post(ReplayTrouble(str(error)))
                await asyncio.sleep(RETRY_S)
                continue
            if troubled:
                troubled = False
                self._post(ReplayTrouble(""))
            self._turning = False
            with suppress(TimeoutError):
                async with asyncio.timeout(PLAYING_S if state.playing else RESTING_S):
                    await self._wake.wait()

    async def turn(self) -> ReplayState:
        """Send what was ordered, read where it stands and what is there; post both."""
        self._wake.clear()
        state: ReplayState | None = None
        orders, self._orders = merged(self._orders), []
        for order in orders:
            try:
                state = await self._client.order_replay(order)
            except RefusedError as refusal:
                self._post(NothingThatWay(str(refusal)))
                continue
            if not state.moved and order.jump is not None:
                way = "before" if order.back else "after"
                self._post(NothingThatWay(f"no {order.jump.value} {way} this observation"))
        if state is None:
            state = await self._client.replay()
        if self._strip_wanted and self._cells:
            self._strip_wanted = False
            if self._strip is None:
                self._board = None  # the ranges of the trends come with the time line
            self._strip = await self._client.session_strip(self._cells)
            self._post(StripArrived(self._strip))
        board = await self._seen(state)
        self._post(ReplayMoved(state, board))
        return state

    async def _seen(self, state: ReplayState) -> Board:
        """The engine at the position."""
        board, here = self._board, state.seq
        last = None if board is None or board.tick is None else board.tick.observation.seq
        if board is not None and last == here:
            return board
        far = state.place - self._place > NEAR_TICKS
        if board is None or last is None or here is None or last > here or far:
            board = await self._anew(state)
        else:
            ticks = await self._client.ticks(board.engine_id, NEAR_TICKS, after_id=last)
            for tick in ticks:
                board = await self._applied(board, tick)
        self._board, self._place = board, state.place
        return board

    async def _anew(self, state: ReplayState) -> Board:
        engine_id = state.session.engine_id
        status = await self._client.engine(engine_id)
        ticks = await self._client.ticks(engine_id, seed_count(status.poll_s))
        decisions = await self._client.decisions(engine_id, DECISIONS)
        switches = await self._client.switches(engine_id, DECISIONS)
        return seen_from(status, self._strip, ticks, decisions, switches)

    async def _applied(self, board: Board, tick: Tick) -> Board:
        version = 0 if board.policy is None else board.policy.version
        board = apply(board, tick)
        if tick.policy_version not in (0, version):
            board = with_status(board, await self._client.engine(board.engine_id))
        return board
