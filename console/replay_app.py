"""The console on one recording: the replay screen and nothing that acts on an engine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.command import CommandPalette
from textual.screen import Screen

from console.hangup import hung_up
from console.options import Options
from console.screens.replay import Replay
from console.theme import DARK, THEMES
from controlplane.client import ControlPlaneClient


class ReplayConsole(App[None]):
    """One recording; leaving it ends the program.

    Args:
        client: of the recording's private API.
    """

    TITLE = "specdeck replay"
    CSS_PATH = Path(__file__).with_name("console.tcss")
    ENABLE_COMMAND_PALETTE = True

    def __init__(self, client: ControlPlaneClient, options: Options) -> None:
        super().__init__(ansi_color=options.no_color)
        self.client = client
        self.options = options
        self.set_keymap(dict(options.keymap))

    def on_mount(self) -> None:
        """Take our theme and open the recording."""
        if not self.options.no_color:
            for theme in THEMES:
                self.register_theme(theme)
            self.theme = self.options.theme or DARK.name
        self.set_class(self.options.ascii, "-ascii-only")
        if not self.is_headless and not self.is_web:
            self.set_interval(2.0, self._leave_a_closed_terminal)
        screen = Replay(self.client, zone=self.options.zone, ascii_only=self.options.ascii)
        self.push_screen(screen, self._left)

    def _left(self, _: None) -> None:
        self.exit()

    def _leave_a_closed_terminal(self) -> None:
        if hung_up():
            self.exit(return_code=129)  # as a shell reports SIGHUP

    def action_help_quit(self) -> None:
        """Textual's own ctrl+c, a hint how to quit: with nothing to copy it means to leave."""
        self.exit()

    def action_command_palette(self) -> None:
        """Everything that is possible now, in words."""
        if not isinstance(self.screen, CommandPalette):
            self.push_screen(CommandPalette(id="--command-palette", placeholder="Search"))

    def get_key_display(self, binding: Binding) -> str:
        """The key as it is shown; in words where the terminal has no signs for it."""
        shown = super().get_key_display(binding)
        return shown if shown.isascii() or not self.options.ascii else binding.key

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:  # noqa: ARG002
        """What has no key."""
        yield SystemCommand("Theme", "Dark, light, high contrast", self.action_change_theme)
        yield SystemCommand("Screenshot", "Save this screen as SVG", self.deliver_screenshot)
        yield SystemCommand("Quit", "Leave", self.action_quit)
