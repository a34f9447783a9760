"""The console application: state, display, workers.

Workers post messages; the handlers here are the only ones that change state; widgets render.
What can be changed is in ``console.acting``, what the palette offers in ``console.offers``.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.screen import Screen

from console.acting import Acting
from console.asked import Ask
from console.asking import Asker
from console.board import Board, apply, seeded, with_status
from console.clock import Clock
from console.feed import HISTORY_DECISIONS, Feed
from console.formatting import ASCII, UNICODE
from console.hangup import hung_up
from console.links import Moment, written
from console.lookups import Looked, Lookups
from console.messages import (
    EngineWanted,
    EvidenceArrived,
    EvidenceWanted,
    HistoryArrived,
    LinkChanged,
    LookedUp,
    PlaceReady,
    StatusArrived,
    TickArrived,
)
from console.offers import offers
from console.options import Options
from console.places import BY_ID, FIRST, PLACES, Entry, Need
from console.scene import Link, Scene, override_left_s
from console.screens.details import Details
from console.screens.export import Export, What
from console.screens.help import Help
from console.screens.place import Place
from console.theme import DARK, THEMES
from console.widgets.decision_log import DecisionLog
from console.widgets.tab_row import TabRow
from console.window import refit, terminal_size
from controlplane.client import ControlPlaneClient, ControlPlaneError
from controlplane.messages import About, EngineStatus, Fleet
from store.observations import Sample
from store.records import Decision

MOMENT_TICKS = 300
"""Ticks read up to a moment of the past: what the trends show."""
EXPIRY_BELL_S = 30.0
SETTLED_S = 4.0
"""Until then screens, style sheets and the first answers are there, most of them for good."""
EVIDENCE_KEPT = 64
"""Observations whose ticks are kept at hand."""

__all__ = ["Console", "Options"]


class Console(Acting):
    """One control plane, one engine at a time."""

    TITLE = "specdeck"
    CSS_PATH = Path(__file__).with_name("console.tcss")
    ENABLE_COMMAND_PALETTE = True
    DEFAULT_MODE: ClassVar[str] = FIRST
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "Help", id="help", tooltip="This page"),
        Binding("q", "quit", "Quit", id="quit", tooltip="Leave; the loop goes on"),
    ]

    def __init__(self, client: ControlPlaneClient, options: Options, clock: Clock | None = None):
        # Without colour the terminal's own are used, so that the filter can take them all out.
        super().__init__(ansi_color=options.no_color)
        self.client = client
        self.options = options
        self.clock = clock or Clock()
        self.link = Link()
        self.about: About | None = None
        self.engines: tuple[EngineStatus, ...] = ()
        self.board: Board | None = None
        self.looked = Lookups()
        self.asks: tuple[Ask, ...] = ()
        self._feed: Feed | None = None
        self._asker: Asker | None = None
        self._frozen: Scene | None = None
        self._missed = 0
        self._dirty = False
        self._possible: tuple[str, ...] = ()
        self._rung: set[str] = set()
        self._fleet_rung: set[str] = set()
        self._fleet_seen = False
        self._reading: int | None = None
        self._laid: tuple[str, Screen[object] | None] = ("", None)
        for entry in (one for one in PLACES if not one.pushed):
            self.add_mode(entry.id, partial(_place, entry))
        self.set_keymap(dict(options.keymap))

    def _leave_a_closed_terminal(self) -> None:
        if hung_up():
            self.exit(return_code=129)  # as a shell reports SIGHUP

    def _fill_the_terminal(self) -> None:
        refit(self, terminal_size())

    def on_mount(self) -> None:
        """Take our theme, and begin with the wanted engine and screen."""
        if not self.options.no_color:
            for theme in THEMES:
                self.register_theme(theme)
            self.theme = self.options.theme or DARK.name
        self.set_class(self.options.ascii, "-ascii-only")
        self.set_interval(1.0, self.redraw)
        if not self.is_headless and not self.is_web:
            self.set_interval(2.0, self._leave_a_closed_terminal)
            self.set_interval(1.0, self._fill_the_terminal)
            self.set_timer(SETTLED_S, _spare_what_stays)
        self.follow(self.options.engine_id or "")
        self.start_asker()
        self.call_later(self._begin)

    async def _begin(self) -> None:
        """The wanted screen and moment."""
        if self.options.place != FIRST:
            await self.action_place(self.options.place)
        if self.options.moment is not None and self.board is not None:
            reading = self.show_moment(self.board.engine_id, self.options.moment)
            self.run_worker(reading, group="moment", exclusive=True)

    # Engines and screens.

    def follow(self, engine_id: str) -> None:
        """Show ``engine_id`` from now on."""
        self.board = self.blank_board(engine_id)
        self._frozen, self._missed = None, 0
        self._rung.clear()
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

    @property
    def place(self) -> Screen[object]:
        """The screen under all dialogs."""
        return self.screen_stack[0]

    async def action_place(self, place: str) -> None:
        """Open a screen of the frame."""
        entry = BY_ID.get(place)
        laid, over = self._laid
        if over is not None and over is self.screen:
            if laid == place:
                return
            self.pop_screen()
            self.redraw()
        if entry is not None and entry.pushed:
            if not BY_ID[self.current_mode].engine:
                await self.action_place(FIRST)
            made = _named(entry)(self.client, self.scene, self.options.author)
            self._laid = place, made
            self.push_screen(made)
        elif entry is not None and place != self.current_mode:
            await self.switch_mode(place)
            self.ask_soon(*BY_ID[place].needs)
            self.redraw()

    @on(TabRow.Picked)
    async def _tab_picked(self, message: TabRow.Picked) -> None:
        await self.action_place(message.place)

    @on(PlaceReady)
    def _place_ready(self) -> None:
        self.redraw()

    @on(EngineWanted)
    async def _engine_wanted(self, message: EngineWanted) -> None:
        if self.board is None or self.board.engine_id != message.engine_id:
            self.follow(message.engine_id)
        await self.action_place(FIRST)

    def fleet_rows(self) -> tuple[str, ...]:
        """The engines that an action on many means: those that the fleet screen lists."""
        place = self.place
        meant = place.meant() if isinstance(place, Place) and place.ready else None
        return super().fleet_rows() if meant is None else meant

    async def on_unmount(self) -> None:
        """Close the connections."""
        await self.client.aclose()

    # State: changed by these handlers alone.

    @on(TickArrived)
    def _tick_arrived(self, message: TickArrived) -> None:
        board = self.board
        if board is None or message.tick.engine_id != board.engine_id:
            return
        self.board = apply(board, message.tick)
        self._missed += 1
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
            self._ring_fleet(message.value)
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

    # Display.

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
        self._ring(now)
        shown = now
        if self._frozen is not None:
            behind = max(now.now_ms - self._frozen.now_ms, 0)
            shown = replace(
                self._frozen,
                frozen=True,
                behind_ms=behind,
                missed=self._missed,
                link=now.link,
                place=now.place,
                looked=now.looked,
            )
        place.show(shown)
        possible = tuple(sorted(a for a in (*self.CHANGES, "freeze") if not self.refusal(a)))
        if possible != self._possible:
            self._possible = possible
            place.refresh_bindings()

    def _ring(self, scene: Scene) -> None:
        """The bell: once per alarm, and once for an override that ends within half a minute."""
        tick, left = scene.board.tick, override_left_s(scene)
        if tick is None:
            return
        due = {f"alarm {alarm.code} {alarm.since_utc_ms}" for alarm in tick.alarms}
        if tick.override is not None and left is not None and left < EXPIRY_BELL_S:
            due.add(f"override {tick.override.id} {tick.override.expires_utc_ms}")
        if due - self._rung:
            self.ring()
        self._rung = due

    def _ring_fleet(self, fleet: Fleet) -> None:
        """The same for the engines that are not shown."""
        shown = "" if self.board is None else self.board.engine_id
        due: set[str] = set()
        for row in fleet.rows:
            if row.engine_id == shown:
                continue
            due |= {f"{row.engine_id} {one.code} {one.since_utc_ms}" for one in row.alarms}
            left = row.override_left_s
            if left is not None and left < EXPIRY_BELL_S:
                due.add(f"{row.engine_id} override ends")
        # What stood already when the console came is on the screen, it needs no bell.
        if due - self._fleet_rung and self.looked.fleet.at_ms is not None and self._fleet_seen:
            self.ring()
        self._fleet_seen = True
        self._fleet_rung = due

    def ring(self) -> None:
        """The terminal's bell, unless it was turned off."""
        if self.options.bell:
            self.bell()

    # Actions that change nothing outside.

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
        self._missed = 0
        self.redraw()

    def action_engine(self, step: int) -> None:
        """Show the next engine, round the ends."""
        ids = self.engine_ids
        if self.board is not None and len(ids) > 1:
            place = ids.index(self.board.engine_id) if self.board.engine_id in ids else -step
            self.follow(ids[(place + step) % len(ids)])

    def action_help_quit(self) -> None:
        """Textual's own ctrl+c, a hint how to quit: with nothing to copy it means to leave."""
        self.exit()

    def action_command_palette(self) -> None:
        """Everything that is possible now, in words."""
        if not isinstance(self.screen, CommandPalette):
            # Textual's own text ends in an ellipsis, which --ascii cannot show.
            self.push_screen(CommandPalette(id="--command-palette", placeholder="Search"))

    def action_help(self) -> None:
        """Keys, live thresholds, signs."""
        self.push_screen(Help(self.scene(), self.key_rows()))

    def get_key_display(self, binding: Binding) -> str:
        """The key as it is shown; in words where the terminal has no signs for it."""
        shown = super().get_key_display(binding)
        return shown if shown.isascii() or not self.options.ascii else binding.key

    def key_rows(self) -> list[tuple[str, str, bool]]:
        """Every bound key of the open screen, what it does, whether it works now."""
        found: dict[str, tuple[bool, str, str, bool]] = {}
        for key, active in self.place.active_bindings.items():
            binding = active.binding
            known = found.get(binding.action)
            if binding.description and (known is None or (known[0] and binding.show)):
                shown = key if self.options.ascii else self.get_key_display(binding)
                words = binding.tooltip or binding.description
                found[binding.action] = (not binding.show, shown, words, active.enabled)
        # Python's sort keeps the order of equals: keys of the bar first, then the others.
        return [row[1:] for row in sorted(found.values(), key=lambda row: row[0])]

    @on(DecisionLog.Chosen)
    def _explain(self, message: DecisionLog.Chosen) -> None:
        self.push_screen(Details(self.scene(), message.entry))
        if isinstance(message.entry.event, Decision):
            self.post_message(EvidenceWanted(message.entry.event.seq))

    def get_system_commands(
        self,
        screen: Screen[object],
    ) -> Iterable[SystemCommand]:
        """Everything that is possible now, and nothing else."""
        if isinstance(screen, Place):
            yield from offers(self)
        yield SystemCommand("Theme", "Dark, light, high contrast", self.action_change_theme)
        yield SystemCommand("Screenshot", "Save this screen as SVG", self.save_picture)
        yield SystemCommand("Quit", "Leave the console; the loop goes on", self.action_quit)

    def save_picture(self) -> None:
        """Write the screen as SVG, or send it to the browser."""
        self.deliver_screenshot()


def _spare_what_stays() -> None:
    """Leave what is there by now out of later collections, which would hold up a key."""
    gc.collect()
    gc.freeze()


def _named(entry: Entry) -> Callable[..., Screen[object]]:
    """The class of a screen; its module is loaded now."""
    module, _, name = entry.where.partition(":")
    found: Callable[..., Screen[object]] = getattr(import_module(module), name)
    return found


def _place(entry: Entry) -> Place:
    """A screen of the frame."""
    made = _named(entry)()
    assert isinstance(made, Place), f"{entry.where} is no screen of the frame"
    return made
