"""The replay screen: a recording through the board and the widgets of live."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import tzinfo
from typing import ClassVar

from textual import events, on
from textual.binding import BindingType
from textual.command import Provider
from textual.worker import WorkerError

from console.events import Logged
from console.evidence import as_text
from console.replay_board import other_speed
from console.replay_feed import ReplayFeed
from console.replay_lines import line_cells, place_words
from console.replay_messages import (
    NothingThatWay,
    ReplayMoved,
    ReplayOpened,
    ReplayTrouble,
    StripArrived,
    Verified,
    WhatIfAnswered,
)
from console.screens.replay_asking import ReplayAsking
from console.screens.replay_commands import ReplayCommands
from console.screens.replay_dialogs import Goto
from console.screens.replay_frame import READ_ONLY
from console.screens.replay_keys import REPLAY_KEYS
from console.screens.replay_pages import ReplayHelp
from console.widgets.replay_parts import ReplayLog, TimeLine
from controlplane.client import ControlPlaneClient
from controlplane.replay_player import Mark
from controlplane.sessions_messages import ReplayRequest

NOT_YET = "the recording is still being opened"


class Replay(ReplayAsking):
    """Shows a board; the feed's messages are the only thing that changes it.

    Args:
        client: of a replay's API, which has nothing that sends; closed with the screen.
        zone: the zone of all times, None for this machine's.
        closed: awaited when the screen goes.
    """

    AUTO_FOCUS = "ReplayLog"
    BINDINGS: ClassVar[list[BindingType]] = [*REPLAY_KEYS]
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {ReplayCommands}

    def __init__(
        self,
        client: ControlPlaneClient,
        *,
        zone: tzinfo | None = None,
        ascii_only: bool = False,
        closed: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(client, zone=zone, ascii_only=ascii_only)
        self._release = closed
        self._feed: ReplayFeed | None = None

    def on_mount(self) -> None:
        """Begin to follow."""
        self.start_feed()
        self.redraw()

    def start_feed(self) -> None:
        """Read and steer the replay."""
        self._feed = ReplayFeed(self.client, self.post_message)
        self._feed.want_strip(line_cells(self.size.width))
        self.run_worker(self._feed.run(), group="replay", exclusive=True)

    async def on_unmount(self) -> None:
        """Close what belongs to this replay alone, once nobody asks any more."""
        for worker in self.workers.cancel_node(self):
            with suppress(WorkerError):
                await worker.wait()
        await self.client.aclose()
        if self._release is not None:
            await self._release()

    def on_resize(self) -> None:
        """A time line of another length is another question."""
        if self._feed is not None:
            self._feed.want_strip(line_cells(self.size.width))
        self.redraw()

    # State: changed by these handlers alone.

    @on(ReplayOpened)
    def _opened(self, message: ReplayOpened) -> None:
        self.show_replay(replace(self.replay, markers=message.markers))

    @on(ReplayMoved)
    def _moved(self, message: ReplayMoved) -> None:
        self.show_replay(replace(self.replay, state=message.state, board=message.board))

    @on(StripArrived)
    def _strip_arrived(self, message: StripArrived) -> None:
        self.show_replay(replace(self.replay, strip=message.strip))

    @on(WhatIfAnswered)
    def _answered(self, message: WhatIfAnswered) -> None:
        self.pane_shown = message.found is not None
        self.show_replay(replace(self.replay, what_if=message.found))
        if self._feed is not None:
            self._feed.want_strip()

    @on(Verified)
    def _verified(self, message: Verified) -> None:
        self.show_replay(replace(self.replay, verified=message.found, busy=""))
        if self._feed is not None:
            self._feed.want_strip()
        if self.is_current:
            self.action_verify()

    @on(ReplayTrouble)
    def _trouble(self, message: ReplayTrouble) -> None:
        self.show_replay(replace(self.replay, trouble=message.text, busy=""))

    @on(NothingThatWay)
    def _nothing(self, message: NothingThatWay) -> None:
        self.say(message.words)

    @on(TimeLine.Picked)
    def _picked(self, message: TimeLine.Picked) -> None:
        self.order(ReplayRequest(place=message.place))

    @property
    def settled(self) -> bool:
        """Whether the screen shows what was last asked for."""
        return self._feed is not None and self._feed.idle and not self.replay.busy

    # Steering.

    def order(self, request: ReplayRequest) -> None:
        """Send an order to the replay."""
        if self._feed is not None:
            self._feed.order(request)

    def refusal(self, action: str) -> str:
        """Why ``action`` is not possible now; "" if it is."""
        if action == "refused":
            return READ_ONLY
        if action in ("clear", "all", "save") and self.replay.what_if is None:
            return "nothing was asked yet: w asks what another policy would have done"
        if action == "what_if" and self.replay.board.policy is None:
            return "the policy at this moment is not in the recording: choose a later one"
        if action == "verify" and self.replay.busy:
            return f"{self.replay.busy}: one thing at a time"
        if self.replay.state is None and action not in ("leave", "help"):
            return NOT_YET
        return ""

    def check_action(
        self,
        action: str,
        parameters: tuple[object, ...],  # noqa: ARG002  (Textual's signature)
    ) -> bool | None:
        """Dim what is not possible now."""
        return None if self.refusal(action) else True

    def on_key(self, event: events.Key) -> None:
        """A dimmed key says why it does nothing."""
        active = self.active_bindings.get(event.key)
        if active is not None and not active.enabled:
            if words := self.refusal(active.binding.action.partition("(")[0]):
                self.say(words, severe=True)
            event.stop()

    def action_refused(self, name: str) -> None:
        """Never reached: its keys are dimmed for good, and say why."""

    def action_play(self) -> None:
        """Play, or pause."""
        state = self.replay.state
        self.order(ReplayRequest(playing=not (state is not None and state.playing)))

    def action_step(self, ticks: int) -> None:
        """Some observations on, or back; a replay that plays pauses."""
        if self.replay.state is not None and self.replay.state.playing:
            self.order(ReplayRequest(playing=False))
        self.order(ReplayRequest(step=ticks))

    def action_skip(self, seconds: int) -> None:
        """Some recorded time on, or back."""
        state = self.replay.state
        if state is not None:
            at = min(max(state.tape_s + seconds, 0.0), state.length_s)
            self.order(ReplayRequest(tape_s=at))

    def action_end(self, last: bool) -> None:
        """To the first observation, or the last."""
        state = self.replay.state
        if state is not None:
            self.order(ReplayRequest(place=state.ticks - 1 if last else 0))

    def action_speed(self, step: int) -> None:
        """Faster, or slower."""
        state = self.replay.state
        if state is not None:
            speed = other_speed(state.speed, step)
            self.replay = replace(self.replay, state=state.model_copy(update={"speed": speed}))
            self.order(ReplayRequest(speed=speed))

    def action_jump(self, mark: str, back: bool = False) -> None:
        """To the next mark of a kind, or the last one."""
        self.order(ReplayRequest(jump=Mark(mark), back=back))

    def action_goto(self) -> None:
        """Ask where to."""
        state = self.replay.state
        if state is None:
            return
        dialog = Goto(self.client, self.dialog_scene, state, self.zone)

        def decided(_: bool | None) -> None:
            if dialog.order is not None:
                self.order(dialog.order)

        self.app.push_screen(dialog, decided)

    # Reading.

    def action_copy(self) -> None:
        """Copy the selected decision, else the newest, as text."""
        entry: Logged | None = self.query_one(ReplayLog).entry
        log = self.replay.board.log
        entry = entry or (log[0] if log else None)
        text = place_words(self.replay) if entry is None else as_text(self.scene(), entry)
        self.app.copy_to_clipboard(text)
        self.say(f"copied {len(text.splitlines())} lines, if this terminal allows it (OSC 52)")

    def action_help(self) -> None:
        """Keys, thresholds at this moment, signs."""
        self.app.push_screen(ReplayHelp(self.scene(), tuple(self._key_rows())))

    def _key_rows(self) -> Iterable[tuple[str, str, bool]]:
        seen: set[str] = set()
        for key, active in self.active_bindings.items():
            binding = active.binding
            if binding.action not in seen and binding.description:
                seen.add(binding.action)
                plain = replace(binding, key=key, key_display=None)
                shown = key if self.ascii_only else self.app.get_key_display(plain)
                yield shown, binding.tooltip or binding.description, active.enabled

    def action_leave(self) -> None:
        """Back to where it was opened from."""
        self.dismiss(None)
