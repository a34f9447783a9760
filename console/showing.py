"""The picture: of the present, held, or of a moment of the past; and what can be taken from it.

Nothing here changes anything outside the console.
"""

from __future__ import annotations

from dataclasses import replace

from textual.screen import Screen

from console.board import seeded
from console.clock import Clock
from console.feed import HISTORY_DECISIONS
from console.following import Following
from console.formatting import ASCII, UNICODE
from console.links import Moment, written
from console.options import Options
from console.scene import Scene
from console.screens.export import Export, What
from console.screens.place import Place
from controlplane.client import ControlPlaneClient, ControlPlaneError
from store.records import Decision

MOMENT_TICKS = 300
"""Ticks read up to a moment of the past: what the trends show."""


class Showing(Following):
    """The application's part that displays what is known."""

    def __init__(self, client: ControlPlaneClient, options: Options, clock: Clock | None) -> None:
        super().__init__(client, options, clock)
        self._frozen: Scene | None = None
        self._held_since = 0
        self._dirty = False
        self._possible: tuple[str, ...] = ()

    def follow(self, engine_id: str) -> None:
        """Show ``engine_id`` from now on, at present."""
        self._frozen, self._held_since = None, 0
        super().follow(engine_id)

    @property
    def place(self) -> Screen[object]:
        """The screen under all dialogs."""
        return self.screen_stack[0]

    def scene(self) -> Scene:
        """The present scene, not the frozen one."""
        assert self.board is not None
        return Scene(
            board=self.board,
            now_ms=self.clock.now_ms(),
            link=self.link,
            zone=self.options.zone,
            glyphs=ASCII if self.options.ascii else UNICODE,
            readonly=self.readonly,
            engines=self.engine_ids,
            place=self.current_mode,
            looked=self.looked,
            asks=self.asks,
        )

    def redraw_soon(self) -> None:
        """Redraw once all waiting messages are handled: a flood of ticks is one picture."""
        if not self._dirty:
            self._dirty = True
            self.call_later(self.redraw)

    def redraw(self) -> None:
        """Display the present, or how far the frozen picture is behind it."""
        self._dirty = False
        # While it ends, there is no screen left.
        place = self.place if self.board is not None and self.screen_stack else None
        if not isinstance(place, Place) or not place.ready:
            return
        now = self.scene()
        if self.alarm_bell.due(now):
            self.ring()
        shown = now
        if self._frozen is not None:
            behind = max(now.now_ms - self._frozen.now_ms, 0)
            shown = replace(
                self._frozen,
                frozen=True,
                behind_ms=behind,
                missed=self.ticks_told - self._held_since,
                link=now.link,
                place=now.place,
                looked=now.looked,
            )
        place.show(shown)
        possible = tuple(sorted(a for a in (*self.CHANGES, "freeze") if not self.refusal(a)))
        if possible != self._possible:
            self._possible = possible
            place.refresh_bindings()

    # What can be taken from it.

    def action_copy(self) -> None:
        """Copy what is selected, as text."""
        place = self.place
        text = place.copied() if isinstance(place, Place) and place.ready else None
        if not text:
            self.say("nothing is selected: the mouse copies any text with ctrl+c", severe=True)
            return
        self.copy_to_clipboard(text)
        self.say(f"copied {len(text.splitlines())} lines, if this terminal allows it (OSC 52)")

    def action_link(self) -> None:
        """Copy a link to this moment."""
        board = self.board if self._frozen is None else self._frozen.board
        place = self.place
        if board is None or not (isinstance(place, Place) and place.ready):
            return
        seq, at_ms = place.moment(), None
        if seq is None and board.tick is not None:
            seq = board.tick.observation.seq
        if board.tick is not None and seq == board.tick.observation.seq:
            at_ms = board.tick.observation.at_utc_ms
        for entry in board.log:
            if isinstance(entry.event, Decision) and entry.event.seq == seq:
                at_ms = entry.event.at_utc_ms
        moment = Moment(self.client.url, board.engine_id, seq, self.current_mode)
        self.copy_to_clipboard(written(moment, at_ms))
        self.say(f"copied: specdeck open '{written(moment, at_ms)}'")

    def action_export(self) -> None:
        """Ask where to export what is on the screen."""
        place = self.place
        what = What(place.exports()) if isinstance(place, Place) and place.ready else What.TICKS
        dialog = Export(self.client, self.shown, self.options.author, what)

        def closed(acted: bool | None) -> None:
            if acted:
                self.say(f"written: {dialog.written}")

        self.push_screen(dialog, closed)

    def shown(self) -> Scene:
        """The scene that is on the screen: the frozen one while it is held."""
        return self.scene() if self._frozen is None else replace(self._frozen, frozen=True)

    async def show_moment(self, engine_id: str, seq: int) -> None:
        """Hold the picture at observation ``seq``."""
        try:
            ticks = await self.client.moment(engine_id, seq, MOMENT_TICKS)
            decisions = await self.client.decisions(engine_id, HISTORY_DECISIONS)
            switches = await self.client.switches(engine_id, HISTORY_DECISIONS)
        except ControlPlaneError as error:
            self.say(f"this moment cannot be read: {error}", severe=True)
            return
        if not ticks or ticks[-1].observation.seq != seq:
            self.say(f"observation {seq} is not stored any more: this is the present", severe=True)
            return
        at_ms = ticks[-1].observation.at_utc_ms
        board = seeded(
            self.blank_board(engine_id),
            ticks,
            [one for one in decisions if one.at_utc_ms <= at_ms],
            [one for one in switches if one.seen_utc_ms <= at_ms],
        )
        past = f"observation {seq}"
        self._frozen = replace(self.scene(), board=board, now_ms=at_ms, past=past)
        if isinstance(self.place, Place) and self.place.ready:
            self.place.point_to(seq)
        self.redraw()

    def action_freeze(self) -> None:
        """Hold the picture, not the loop; a second time lets it go on."""
        self._frozen = None if self._frozen is not None else self.scene()
        self._held_since = self.ticks_told
        self.redraw()
