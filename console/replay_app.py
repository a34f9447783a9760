"""The console on one recording: the replay screen and nothing that acts on an engine."""

from __future__ import annotations

from collections.abc import Iterable

from textual.app import SystemCommand
from textual.screen import Screen

from console.options import Options
from console.program import Program
from console.screens.replay import Replay
from controlplane.client import ControlPlaneClient


class ReplayConsole(Program):
    """One recording; leaving it ends the program.

    Args:
        client: of the recording's private API.
    """

    TITLE = "specdeck replay"

    def __init__(self, client: ControlPlaneClient, options: Options) -> None:
        super().__init__(options)
        self.client = client

    def on_mount(self) -> None:
        """Open the recording."""
        self.dress()
        screen = Replay(self.client, zone=self.options.zone, ascii_only=self.options.ascii)
        self.push_screen(screen, self._left)

    def _left(self, _: None) -> None:
        self.exit()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:  # noqa: ARG002
        """What has no key."""
        yield SystemCommand("Theme", "Dark, light, high contrast", self.action_change_theme)
        yield SystemCommand("Screenshot", "Save this screen as SVG", self.deliver_screenshot)
        yield SystemCommand("Quit", "Leave", self.action_quit)
