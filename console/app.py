"""The console application: state, actions, workers.

Workers post messages; the handlers here are the only ones that change state; widgets render.
Keys, mouse and palette all end in the same actions, and ``refusal`` alone says what is possible.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from datetime import tzinfo
from pathlib import Path
from typing import ClassVar

from textual import events, on
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.screen import Screen

from console.board import Board, apply, seeded, with_status
from console.clock import Clock
from console.feed import Feed
from console.formatting import ASCII, UNICODE, clean
from console.messages import HistoryArrived, LinkChanged, StatusArrived, TickArrived
from console.scene import Link, LinkState, Scene, override_left_s
from console.screens.details import Details
from console.screens.extend_override import ExtendOverride
from console.screens.help import Help
from console.screens.live import Live
from console.screens.release_override import ReleaseOverride
from console.screens.set_override import SetOverride
from console.screens.set_stance import SetStance
from console.theme import DARK, THEMES
from console.widgets.decision_log import DecisionLog
from controlplane.client import ControlPlaneClient
from controlplane.messages import About, EngineStatus
from store.observations import Sample
from store.policies import Stance
from store.records import Override

EXPIRY_BELL_S = 30.0


@dataclass(frozen=True)
class Options:
    """How the console was started.

    Args:
        engine_id: the engine to begin with, None for the first.
        readonly: refuse every change.
        author: the name overrides are made under.
        zone: the zone of all times, None for this machine's.
    """

    engine_id: str | None = None
    readonly: bool = False
    ascii: bool = False
    author: str = "operator"
    zone: tzinfo | None = None
    no_color: bool = False


class Console(App[None]):
    """One control plane, one engine at a time."""

    TITLE = "specdeck"
    CSS_PATH = Path(__file__).with_name("console.tcss")
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "Help", id="help", tooltip="This page"),
        Binding("q", "quit", "Quit", id="quit", tooltip="Leave; the loop goes on"),
    ]
    CHANGES: ClassVar[frozenset[str]] = frozenset({"override", "release", "extend", "stance"})
    """Actions that change something outside the console."""

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
        self._feed: Feed | None = None
        self._frozen: Scene | None = None
        self._missed = 0
        self._dirty = False
        self._possible: tuple[str, ...] = ()
        self._rung: set[str] = set()
        self._live = Live()

    def get_default_screen(self) -> Screen[None]:
        """The live screen."""
        return self._live

    def on_mount(self) -> None:
        """Take our theme, and begin with the wanted engine."""
        if not self.options.no_color:
            for theme in THEMES:
                self.register_theme(theme)
            self.theme = DARK.name
        self.set_class(self.options.ascii, "-ascii-only")
        self.set_interval(1.0, self.redraw)
        self.follow(self.options.engine_id or "")

    def follow(self, engine_id: str) -> None:
        """Show ``engine_id`` from now on."""
        self.board = self.blank_board(engine_id)
        self._frozen, self._missed = None, 0
        self._rung.clear()
        self.start_feed(engine_id)
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
        self.redraw_soon()

    @on(StatusArrived)
    def _status_arrived(self, message: StatusArrived) -> None:
        self.about, self.engines = message.about, message.engines
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
            engines=tuple(status.engine.engine_id for status in self.engines),
        )

    @property
    def readonly(self) -> str:
        """Why nothing may be changed; "" if it may."""
        if self.options.readonly:
            return "read-only: started with --readonly"
        if self.about is not None and not self.about.may_operate:
            return "read-only: this token may look, not operate"
        return ""

    def redraw_soon(self) -> None:
        """Redraw once all waiting messages are handled: a flood of ticks is one picture."""
        if not self._dirty:
            self._dirty = True
            self.call_later(self.redraw)

    def redraw(self) -> None:
        """Display the present, or how far the frozen picture is behind it."""
        self._dirty = False
        if self.board is None or not self._live.is_mounted:
            return
        now = self.scene()
        self._ring(now)
        shown = now
        if self._frozen is not None:
            behind = max(now.now_ms - self._frozen.now_ms, 0)
            shown = replace(
                self._frozen, frozen=True, behind_ms=behind, missed=self._missed, link=now.link
            )
        self._live.show(shown)
        possible = tuple(sorted(a for a in (*self.CHANGES, "freeze") if not self.refusal(a)))
        if possible != self._possible:
            self._possible = possible
            self._live.refresh_bindings()

    def _ring(self, scene: Scene) -> None:
        """The bell: once per alarm, and once for an override that ends within half a minute."""
        tick, left = scene.board.tick, override_left_s(scene)
        if tick is None:
            return
        due = {f"alarm {alarm.code} {alarm.since_utc_ms}" for alarm in tick.alarms}
        if tick.override is not None and left is not None and left < EXPIRY_BELL_S:
            due.add(f"override {tick.override.id} {tick.override.expires_utc_ms}")
        if due - self._rung:
            self.bell()
        self._rung = due

    # Actions.

    def refusal(self, action: str) -> str:
        """Why ``action`` is not possible now; "" if it is."""
        if action not in self.CHANGES:
            return ""
        board = self.board
        if self.readonly:
            return self.readonly
        if self.link.state is not LinkState.LIVE or board is None or board.tick is None:
            return "no connection to the control plane: nothing can be sent"
        if action in ("override", "stance") and not board.commandable:
            return "this engine can be observed, not commanded: its plugin does not answer"
        if action in ("release", "extend") and board.tick.override is None:
            return "no override is in force"
        return ""

    def check_action(
        self,
        action: str,
        parameters: tuple[object, ...],  # noqa: ARG002  (Textual's signature)
    ) -> bool | None:
        """Dim what is not possible now."""
        if action == "engine":
            return len(self.engines) > 1
        return None if self.refusal(action) else True

    def on_key(self, event: events.Key) -> None:
        """A dimmed key says why it does nothing."""
        active = self.screen.active_bindings.get(event.key)
        if active is not None and not active.enabled:
            name = active.binding.action.removeprefix("app.")
            if words := self.refusal(name):
                self.notify(clean(words), severity="warning", markup=False)

    def action_override(self) -> None:
        """Ask for an override."""
        max_s = None if self.about is None else self.about.override_max_s
        self.push_screen(SetOverride(self.client, self.scene, self.options.author, max_s))

    def action_release(self) -> None:
        """Ask to release the override in force."""
        if override := self.override_in_force:
            self.push_screen(
                ReleaseOverride(self.client, self.scene, self.options.author, override)
            )

    def action_extend(self) -> None:
        """Ask to extend the override in force."""
        if override := self.override_in_force:
            self.push_screen(ExtendOverride(self.client, self.scene, self.options.author, override))

    @property
    def override_in_force(self) -> Override | None:
        """The override that the newest tick shows."""
        tick = None if self.board is None else self.board.tick
        return None if tick is None else tick.override

    def action_stance(self, stance: str | None = None) -> None:
        """Ask whether automation shall act, compute only, or rest."""
        tick = None if self.board is None else self.board.tick
        present = Stance.ACTIVE if tick is None else tick.stance
        wanted = present if stance is None else Stance(stance)
        self.push_screen(SetStance(self.client, self.scene, self.options.author, wanted))

    def action_freeze(self) -> None:
        """Hold the picture, not the loop; a second time lets it go on."""
        self._frozen = None if self._frozen is not None else self.scene()
        self._missed = 0
        self.redraw()

    def action_engine(self, step: int) -> None:
        """Show the next engine, round the ends."""
        ids = [status.engine.engine_id for status in self.engines]
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

    def key_rows(self) -> list[tuple[str, str, bool]]:
        """Every bound key of the live screen, what it does, whether it works now."""
        found: dict[str, tuple[bool, str, str, bool]] = {}
        for key, active in self._live.active_bindings.items():
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

    def get_system_commands(
        self,
        screen: Screen[object],
    ) -> Iterable[SystemCommand]:
        """Everything that is possible now, and nothing else."""
        if screen is self._live:
            yield from self._live_commands()
        yield SystemCommand("Theme", "Dark, light, high contrast", self.action_change_theme)
        yield SystemCommand("Screenshot", "Save this screen as SVG", self._save_picture)
        yield SystemCommand("Quit", "Leave the console; the loop goes on", self.action_quit)

    def _live_commands(self) -> Iterable[SystemCommand]:
        offers = (
            ("override", "Override", "Set an operator's mode with reason and expiry", ""),
            ("extend", "Extend the override", "Give it more time", ""),
            ("release", "Release the override", "End it now", ""),
            ("stance", "Automation: active", "It decides and commands", "('active')"),
            ("stance", "Automation: shadow", "It computes and records only", "('shadow')"),
            ("stance", "Automation: paused", "It rests", "('paused')"),
            ("freeze", "Freeze or go on", "Hold the picture, not the loop", ""),
        )
        for action, title, words, argument in offers:
            if not self.refusal(action):
                yield SystemCommand(title, words, self._runner(f"{action}{argument}"))
        shown = None if self.board is None else self.board.engine_id
        for status in self.engines:
            engine_id = status.engine.engine_id
            if engine_id != shown:
                # The palette reads titles as markup: brackets would vanish.
                name = clean(status.engine.name or engine_id)
                name = name.translate({ord("["): "(", ord("]"): ")", ord("\\"): "/"})
                yield SystemCommand(f"Engine {name}", "Show this engine", self._follower(engine_id))
        yield SystemCommand("Help", "Keys, thresholds, signs", self.action_help)

    def _runner(self, action: str) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            await self.run_action(action, self)

        return run

    def _follower(self, engine_id: str) -> Callable[[], None]:
        return lambda: self.follow(engine_id)

    def _save_picture(self) -> None:
        self.deliver_screenshot()
