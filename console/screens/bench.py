"""The benchmark screen: one engine's benchmarks, to start, watch, cancel and apply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from console.bench_board import BenchBoard, judged, listed, moved, turned
from console.bench_feed import BenchFeed
from console.bench_messages import BenchesListed, BenchJudged, BenchMoved, BenchTrouble
from console.formatting import clean
from console.scene import LinkState, Scene
from console.screens.bench_dialogs import ApplyBench, CancelBench, StartBench
from console.screens.place_keys import PLACE_KEYS
from console.widgets.bench_view import BenchView
from console.widgets.header import Header
from console.widgets.key_bar import KeyBar
from controlplane.benchrun_messages import BenchState
from controlplane.client import ControlPlaneClient


class Bench(Screen[None]):
    """Shows a board; the feed's messages are the only thing that changes it.

    Args:
        present: the scene now, for header, signs, present load, and what may be changed.
    """

    DEFAULT_CSS = """
    Bench { layout: vertical; }
    Bench #bench { height: 1fr; width: 100%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *PLACE_KEYS,
        Binding("s", "start", "Start", id="bench_start", tooltip="Measure this engine"),
        Binding("c", "cancel", "Cancel", id="bench_cancel", tooltip="End the running one"),
        Binding("a", "apply", "Apply", id="bench_apply", tooltip="Use its thresholds"),
        Binding("left_square_bracket", "turn(1)", "Older", id="bench_older"),
        Binding("right_square_bracket", "turn(-1)", "Newer", id="bench_newer"),
        Binding("escape", "leave", "Back", id="bench_back", tooltip="Back to the live screen"),
    ]

    def __init__(
        self, client: ControlPlaneClient, present: Callable[[], Scene], author: str
    ) -> None:
        super().__init__()
        self._client = client
        self._present = present
        self._author = author
        self.board = BenchBoard(present().board.engine_id)
        self._feed: BenchFeed | None = None

    def compose(self) -> ComposeResult:
        """Header, page, keys."""
        yield Header(id="header")
        yield BenchView(id="bench")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Begin to follow."""
        self.set_interval(1.0, self.redraw)
        self.start_feed()
        self.redraw()

    def start_feed(self) -> None:
        """Read this engine's benchmarks."""
        self._feed = BenchFeed(self._client, self.board.engine_id, self.post_message)
        self.run_worker(self._feed.run(), group="bench", exclusive=True)

    # State: changed by these handlers alone.

    @on(BenchesListed)
    def _listed(self, message: BenchesListed) -> None:
        self._show(listed(self.board, message.statuses))

    @on(BenchMoved)
    def _moved(self, message: BenchMoved) -> None:
        self._show(moved(self.board, message.status))

    @on(BenchJudged)
    def _judged(self, message: BenchJudged) -> None:
        self._show(judged(self.board, message.benchmark, message.analysis, message.proposal))

    @on(BenchTrouble)
    def _trouble(self, message: BenchTrouble) -> None:
        self._show(replace(self.board, trouble=message.text))

    def _show(self, board: BenchBoard) -> None:
        self.board = board
        self.redraw()
        self.refresh_bindings()

    def redraw(self) -> None:
        """Draw the board at the present moment."""
        scene = self._present()
        view = self.query_one(BenchView)
        view.board = self.board
        view.show(scene)
        self.query_one(Header).show(scene)
        self.query_one(KeyBar).show(scene)

    # Actions.

    def refusal(self, action: str) -> str:
        """Why ``action`` is not possible now; "" if it is."""
        if action in ("start", "apply", "cancel") and (barred := self._barred()):
            return barred
        running, shown = self.board.running, self.board.shown
        if action == "start" and running is not None:
            return "a benchmark runs: one at a time"
        if action == "cancel" and running is None:
            return "no benchmark runs"
        if action == "apply":
            if shown is not None and shown.state is BenchState.RUNNING:
                return "this benchmark still runs: its thresholds come at its end"
            if self.board.proposal is None:
                return "there is nothing to apply: no thresholds follow from what was measured"
        return ""

    def _barred(self) -> str:
        """Why nothing at all may be changed now; "" if it may."""
        scene = self._present()
        if scene.readonly:
            return scene.readonly
        if scene.link.state is not LinkState.LIVE:
            return "no connection to the control plane: nothing can be sent"
        if not scene.board.commandable:
            return "this engine can be observed, not commanded: specdeck bench servers measures two"
        return ""

    def check_action(
        self,
        action: str,
        parameters: tuple[object, ...],  # noqa: ARG002  (Textual's signature)
    ) -> bool | None:
        """Dim what is not possible now."""
        if action == "turn":
            return len(self.board.statuses) > 1
        return None if self.refusal(action) else True

    def on_key(self, event: events.Key) -> None:
        """A dimmed key says why it does nothing."""
        active = self.active_bindings.get(event.key)
        if active is not None and not active.enabled:
            if words := self.refusal(active.binding.action):
                self.notify(clean(words), severity="warning", markup=False)
            event.stop()

    def action_start(self) -> None:
        """Ask what to measure."""
        self.app.push_screen(StartBench(self._client, self._present, self._author), self._again)

    def action_cancel(self) -> None:
        """Ask whether to end the running one."""
        if (running := self.board.running) is not None:
            dialog = CancelBench(self._client, self._present, self._author, running)
            self.app.push_screen(dialog, self._again)

    def action_apply(self) -> None:
        """Ask whether its thresholds shall be the policy."""
        shown, proposal = self.board.shown, self.board.proposal
        if shown is not None and proposal is not None:
            dialog = ApplyBench(self._client, self._present, self._author, shown, proposal)
            self.app.push_screen(dialog, self._again)

    def action_turn(self, step: int) -> None:
        """Show the next older or newer one."""
        before = self.board
        self._show(turned(before, step))
        if self._feed is not None and self.board is not before:
            self._feed.judge(self.board.chosen)

    def action_leave(self) -> None:
        """Back to the live screen."""
        self.dismiss(None)

    def _again(self, sent: bool | None) -> None:
        """After a dialog that sent something the newest is shown."""
        if sent:
            self._show(replace(self.board, chosen=None, analysis=None, proposal=None))
            if self._feed is not None:
                self._feed.judge(None)
