"""The console application: how it begins, its screens, and what opens over them.

What can be changed is in ``console.acting``, what is known in ``console.following``, the picture
in ``console.showing``, what the palette offers in ``console.offers``.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from typing import ClassVar

from textual import on
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from console.clock import Clock
from console.messages import EngineWanted, EvidenceWanted, PlaceReady
from console.offers import offers
from console.options import Options
from console.places import BY_ID, FIRST, PLACES, Entry
from console.screens.details import Details
from console.screens.help import Help
from console.screens.place import Place
from console.showing import Showing
from console.widgets.decision_log import DecisionLog
from console.widgets.tab_row import TabRow
from console.window import refit, terminal_size
from controlplane.client import ControlPlaneClient
from store.records import Decision

SETTLED_S = 4.0
"""Until then screens, style sheets and the first answers are there, most of them for good."""

__all__ = ["Console", "Options"]


class Console(Showing):
    """One control plane, one engine at a time."""

    TITLE = "specdeck"
    DEFAULT_MODE: ClassVar[str] = FIRST
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "Help", id="help", tooltip="This page"),
        Binding("q", "quit", "Quit", id="quit", tooltip="Leave; the loop goes on"),
    ]

    def __init__(self, client: ControlPlaneClient, options: Options, clock: Clock | None = None):
        super().__init__(client, options, clock)
        self._laid: tuple[str, Screen[object] | None] = ("", None)
        for entry in (one for one in PLACES if not one.pushed):
            self.add_mode(entry.id, partial(_place, entry))

    def on_mount(self) -> None:
        """Begin with the wanted engine and screen."""
        self.dress()
        self.set_interval(1.0, self.redraw)
        if self.in_terminal:
            self.set_interval(1.0, self._fill_the_terminal)
            self.set_timer(SETTLED_S, _spare_what_stays)
        self.follow(self.options.engine_id or "")
        self.start_asker()
        self.call_later(self._begin)

    def _fill_the_terminal(self) -> None:
        refit(self, terminal_size())

    async def _begin(self) -> None:
        """The wanted screen and moment."""
        if self.options.place != FIRST:
            await self.action_place(self.options.place)
        if self.options.moment is not None and self.board is not None:
            reading = self.show_moment(self.board.engine_id, self.options.moment)
            self.run_worker(reading, group="moment", exclusive=True)

    # Screens.

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

    # What opens over them.

    def action_help(self) -> None:
        """Keys, live thresholds, signs."""
        self.push_screen(Help(self.scene(), self.key_rows()))

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
