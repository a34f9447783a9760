"""What is known of the engine that is shown: the stream it comes by, and what a message changes.

Workers post messages; the handlers here are the only ones that change what is known.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from textual import on

from console.acting import Acting
from console.asked import Ask
from console.asking import Asker
from console.bell import Bell
from console.board import Board, apply, seeded, with_status
from console.clock import Clock
from console.feed import Feed
from console.lookups import Looked, Lookups
from console.messages import (
    EvidenceArrived,
    EvidenceWanted,
    HistoryArrived,
    LinkChanged,
    LookedUp,
    StatusArrived,
    TickArrived,
)
from console.options import Options
from console.places import BY_ID, Need
from console.scene import Link
from console.screens.details import Details
from controlplane.client import ControlPlaneClient, ControlPlaneError
from controlplane.messages import About, EngineStatus, Fleet
from store.observations import Sample

EVIDENCE_KEPT = 64
"""Observations whose ticks are kept at hand."""


class Following(Acting):
    """The application's part that follows one engine at a time."""

    def __init__(self, client: ControlPlaneClient, options: Options, clock: Clock | None) -> None:
        super().__init__(options)
        self.client = client
        self.clock = clock or Clock()
        self.link = Link()
        self.about: About | None = None
        self.engines: tuple[EngineStatus, ...] = ()
        self.board: Board | None = None
        self.looked = Lookups()
        self.asks: tuple[Ask, ...] = ()
        self.alarm_bell = Bell()
        self.ticks_told = 0
        """Ticks of this engine since it is followed."""
        self._feed: Feed | None = None
        self._asker: Asker | None = None
        self._reading: int | None = None

    def redraw_soon(self) -> None:
        """What is known has changed: display it."""
        raise NotImplementedError

    # Engines, and the workers that read.

    def follow(self, engine_id: str) -> None:
        """Show ``engine_id`` from now on."""
        self.board = self.blank_board(engine_id)
        self.ticks_told = 0
        self.alarm_bell.another_engine()
        self._reading = None
        self.looked = Lookups(fleet=self.looked.fleet, audit=self.looked.audit)
        self.start_feed(engine_id)
        self.ask_soon()
        self.redraw_soon()

    def blank_board(self, engine_id: str) -> Board:
        """A board that knows the engine and has seen no tick."""
        board = Board(engine_id)
        for status in self.engines:
            if status.engine.engine_id == engine_id:
                board = with_status(board, status)
        return board

    def start_feed(self, engine_id: str) -> None:
        """Read the engine's ticks in place of those of the engine before."""
        self._feed = Feed(self.client, engine_id, self.post_message, self.clock)
        self.run_worker(self._feed.run(), group="feed", exclusive=True)

    def start_asker(self) -> None:
        """Read what the screens need beside the stream."""
        self._asker = Asker(self.client, self.post_message, self.wanted)
        self.run_worker(self._asker.run(), group="asker", exclusive=True)

    def ask_soon(self, *needs: Need) -> None:
        """Read what is wanted now, not at the next turn."""
        if self._asker is not None:
            self._asker.soon(*needs)

    def acted(self) -> None:
        """What was changed is read again at once."""
        if self._feed is not None:
            self._feed.ask_status()
        self.ask_soon()
        self.redraw_soon()

    def wanted(self) -> tuple[str, frozenset[Need]]:
        """The engine that is shown and what the open screen reads beside its ticks."""
        engine_id = "" if self.board is None else self.board.engine_id
        return engine_id, BY_ID[self.current_mode].needs

    @property
    def engine_ids(self) -> tuple[str, ...]:
        """Every engine of the control plane, in its order."""
        rows = self.looked.rows
        if rows:
            return tuple(row.engine_id for row in rows)
        return tuple(status.engine.engine_id for status in self.engines)

    def action_engine(self, step: int) -> None:
        """Show the next engine, round the ends."""
        ids = self.engine_ids
        if self.board is not None and len(ids) > 1:
            place = ids.index(self.board.engine_id) if self.board.engine_id in ids else -step
            self.follow(ids[(place + step) % len(ids)])

    async def on_unmount(self) -> None:
        """Close the connections."""
        await self.client.aclose()

    def ring(self) -> None:
        """The terminal's bell, unless it was turned off."""
        if self.options.bell:
            self.bell()

    # What is known: changed by these handlers alone.

    @on(TickArrived)
    def _tick_arrived(self, message: TickArrived) -> None:
        board = self.board
        if board is None or message.tick.engine_id != board.engine_id:
            return
        self.board = apply(board, message.tick)
        self.ticks_told += 1
        seen, facts = message.tick.observation, board.facts
        boot_id = None if facts is None else facts.boot_id
        restarted = isinstance(seen, Sample) and seen.boot_id != boot_id
        version = 0 if board.policy is None else board.policy.version
        if (restarted or message.tick.policy_version != version) and self._feed is not None:
            self._feed.ask_status()
        self.follow_up()
        self.redraw_soon()

    @on(StatusArrived)
    def _status_arrived(self, message: StatusArrived) -> None:
        self.about = message.about
        new = {status.engine.engine_id: status for status in message.engines}
        known = {status.engine.engine_id: status for status in self.engines}
        self.engines = tuple((known | new).values())
        for status in message.engines:
            if self.board is not None and status.engine.engine_id == self.board.engine_id:
                self.board = with_status(self.board, status)
        self.redraw_soon()

    @on(HistoryArrived)
    def _history_arrived(self, message: HistoryArrived) -> None:
        # From scratch: the numbering starts again when a control plane gets another store.
        board = self.blank_board(message.engine_id)
        if self.board is not None and message.engine_id == self.board.engine_id:
            self.board = seeded(board, message.ticks, message.decisions, message.switches)
            self.redraw_soon()

    @on(LinkChanged)
    def _link_changed(self, message: LinkChanged) -> None:
        self.link = message.link
        self.redraw_soon()

    @on(LookedUp)
    def _looked_up(self, message: LookedUp) -> None:
        shown = "" if self.board is None else self.board.engine_id
        if message.need in (Need.COSTS, Need.POLICIES) and message.engine_id != shown:
            return
        before: Looked[object] = self.looked.of(message.need)
        if message.trouble:
            after = before.failed(message.trouble)
        else:
            after = Looked(message.value, self.clock.now_ms())
        self.looked = self.looked.told(message.need, after)
        if isinstance(message.value, Fleet):
            self.clock.set(message.value.now_utc_ms)
            if self.alarm_bell.due_elsewhere(message.value, shown):
                self.ring()
            self.follow_up()
        self.redraw_soon()

    @on(EvidenceArrived)
    def _evidence_arrived(self, message: EvidenceArrived) -> None:
        if self.board is None or message.engine_id != self.board.engine_id:
            return
        if self._reading == message.seq:
            self._reading = None
        kept = dict(self.looked.evidence)
        kept[message.seq] = Looked(message.tick, self.clock.now_ms(), message.trouble)
        while len(kept) > EVIDENCE_KEPT:
            kept.pop(next(iter(kept)))
        self.looked = replace(self.looked, evidence=kept)
        if isinstance(self.screen, Details):
            self.screen.show(replace(self.screen.scene, looked=self.looked))
        self.redraw_soon()

    @on(EvidenceWanted)
    def _evidence_wanted(self, message: EvidenceWanted) -> None:
        known = self.looked.evidence
        if self.board is None or message.seq in known or message.seq == self._reading:
            return
        self._reading = message.seq
        reading = self.read_evidence(self.board.engine_id, message.seq)
        self.run_worker(reading, group="evidence", exclusive=True)

    async def read_evidence(self, engine_id: str, seq: int) -> None:
        """Read and post the tick on one observation."""
        # A little patience: who scrolls through the list wants the last one only.
        await asyncio.sleep(0.1)
        try:
            found = await self.client.moment(engine_id, seq)
        except ControlPlaneError as error:
            self.post_message(EvidenceArrived(engine_id, seq, None, str(error)))
        else:
            self.post_message(EvidenceArrived(engine_id, seq, found[-1] if found else None))
