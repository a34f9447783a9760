"""What can be changed from the console, when it is refused, and what is not settled yet.

Keys, mouse and palette all end in these actions, and ``refusal`` alone says what is possible.
"""

from __future__ import annotations

from typing import ClassVar

from textual import events

from console.asked import GIVEN_UP_MS, Ask, settled, settled_words
from console.board import Board
from console.clock import Clock
from console.formatting import clean
from console.lookups import Lookups
from console.program import Program
from console.scene import Link, LinkState, Scene
from console.screens.dialog import Dialog
from console.screens.extend_override import ExtendOverride
from console.screens.pin_tier import PinTier
from console.screens.release_override import ReleaseOverride
from console.screens.roll_back import RollBack
from console.screens.set_override import SetOverride
from console.screens.set_stance import SetStance
from console.screens.set_stances import SetStances
from console.screens.set_thresholds import SetThresholds
from controlplane.client import ControlPlaneClient
from controlplane.messages import About
from store.policies import Stance
from store.records import Override


class Acting(Program):
    """The application's part that changes something outside the console."""

    CHANGES: ClassVar[frozenset[str]] = frozenset(
        {
            "override",
            "release",
            "extend",
            "stance",
            "stances",
            "thresholds",
            "rollback",
            "pin",
        }
    )
    ENGINES_OWN: ClassVar[frozenset[str]] = CHANGES - {"stances"}
    """Those that need the shown engine."""

    client: ControlPlaneClient
    clock: Clock
    link: Link
    about: About | None
    board: Board | None
    looked: Lookups
    asks: tuple[Ask, ...]

    def scene(self) -> Scene:
        """The present scene."""
        raise NotImplementedError

    @property
    def readonly(self) -> str:
        """Why nothing may be changed; "" if it may."""
        if self.options.readonly:
            return "read-only: started with --readonly"
        if self.about is not None and not self.about.may_operate:
            return "read-only: this token may look, not operate"
        return ""

    @property
    def override_in_force(self) -> Override | None:
        """The override that the newest tick shows."""
        tick = None if self.board is None else self.board.tick
        return None if tick is None else tick.override

    def refusal(self, action: str) -> str:
        """Why ``action`` is not possible now; "" if it is."""
        if action not in self.CHANGES:
            return ""
        board = self.board
        if self.readonly:
            return self.readonly
        if action == "stances":
            if self.looked.fleet.trouble or not self.looked.rows:
                return "no connection to the control plane: nothing can be sent"
            return ""
        if self.link.state is not LinkState.LIVE or board is None or board.tick is None:
            return "no connection to the control plane: nothing can be sent"
        if action in ("override", "stance", "pin") and not board.commandable:
            return "this engine can be observed, not commanded: its plugin does not answer"
        if action in ("release", "extend") and board.tick.override is None:
            return "no override is in force"
        if action in ("thresholds", "rollback") and board.policy is None:
            return "the control plane has not told this engine's policy"
        if action == "thresholds" and not SetThresholds.editable(board.policy):
            return "this policy has no thresholds that can be edited here"
        if action == "rollback" and len(self.looked.policies.value or ()) < 2:
            return "no earlier version of this engine's policy is known"
        return ""

    def check_action(
        self,
        action: str,
        parameters: tuple[object, ...],  # noqa: ARG002  (Textual's signature)
    ) -> bool | None:
        """Dim what is not possible now."""
        if action == "engine":
            return len(self.scene().engines) > 1
        return None if self.refusal(action) else True

    def on_key(self, event: events.Key) -> None:
        """A dimmed key says why it does nothing."""
        active = self.screen.active_bindings.get(event.key)
        if active is not None and not active.enabled:
            name = active.binding.action.removeprefix("app.").partition("(")[0]
            if words := self.refusal(name):
                self.say(words, severe=True)

    def say(self, words: str, *, severe: bool = False) -> None:
        """A passing note."""
        self.notify(clean(words), severity="warning" if severe else "information", markup=False)

    # Dialogs.

    def ask(self, dialog: Dialog) -> None:
        """Open a dialog, and follow what it asked for until the engine confirms it."""

        def closed(acted: bool | None) -> None:
            if acted:
                self.asks = (*self.asks, *dialog.asked)
                self.acted()

        self.push_screen(dialog, closed)

    def acted(self) -> None:
        """Something was changed: what is shown of it should be read again."""

    def action_override(self) -> None:
        """Ask for an override."""
        max_s = None if self.about is None else self.about.override_max_s
        self.ask(SetOverride(self.client, self.scene, self.options.author, max_s))

    def action_pin(self) -> None:
        """Ask to hold one tier for an evaluation."""
        max_s = None if self.about is None else self.about.override_max_s
        self.ask(PinTier(self.client, self.scene, self.options.author, max_s))

    def action_release(self) -> None:
        """Ask to release the override in force."""
        if override := self.override_in_force:
            self.ask(ReleaseOverride(self.client, self.scene, self.options.author, override))

    def action_extend(self) -> None:
        """Ask to extend the override in force."""
        if override := self.override_in_force:
            self.ask(ExtendOverride(self.client, self.scene, self.options.author, override))

    def action_stance(self, stance: str | None = None) -> None:
        """Ask whether automation shall act, compute only, or rest."""
        tick = None if self.board is None else self.board.tick
        present = Stance.ACTIVE if tick is None else tick.stance
        wanted = present if stance is None else Stance(stance)
        self.ask(SetStance(self.client, self.scene, self.options.author, wanted))

    def action_stances(self, way: str = "pause") -> None:
        """Ask the same for every engine that the fleet screen shows."""
        rows = self.fleet_rows()
        self.ask(SetStances(self.client, self.scene, self.options.author, way, rows))

    def fleet_rows(self) -> tuple[str, ...]:
        """The ids of the engines that an action on many means."""
        return tuple(row.engine_id for row in self.looked.rows)

    def action_thresholds(self) -> None:
        """Ask for other thresholds."""
        self.ask(SetThresholds(self.client, self.scene, self.options.author))

    def action_rollback(self) -> None:
        """Ask to go back to an earlier version of the policy."""
        self.ask(RollBack(self.client, self.scene, self.options.author))

    # What is not settled yet.

    def follow_up(self) -> None:
        """Say of each request that is confirmed by now that it is, and forget it."""
        if not self.asks:
            return
        now_ms = self.clock.now_ms()
        waiting: list[Ask] = []
        for ask in self.asks:
            seen = self._seen(ask)
            if seen:
                self.say(settled_words(ask, now_ms))
            elif now_ms - ask.at_ms < GIVEN_UP_MS:
                waiting.append(ask)
        if len(waiting) != len(self.asks):
            self.asks = tuple(waiting)

    def _seen(self, ask: Ask) -> bool:
        board = self.board
        if board is not None and board.engine_id == ask.engine_id and board.tick is not None:
            fresh = board.tick.observation.at_utc_ms >= ask.at_ms
            return fresh and settled(ask, board.tick)
        rows = {row.engine_id: row for row in self.looked.rows}
        row = rows.get(ask.engine_id)
        read_ms = self.looked.fleet.at_ms or 0
        return row is not None and read_ms > ask.at_ms and settled(ask, row)
