"""What the console and the replay have in common as programs of a terminal."""

from __future__ import annotations

from pathlib import Path

from textual.app import App
from textual.binding import Binding
from textual.command import CommandPalette

from console.hangup import hung_up
from console.options import Options
from console.theme import DARK, THEMES


class Program(App[None]):
    """Theme, ASCII, keys in words, and an end when the terminal has gone."""

    CSS_PATH = Path(__file__).with_name("console.tcss")
    ENABLE_COMMAND_PALETTE = True

    def __init__(self, options: Options) -> None:
        # Without colour the terminal's own are used, so that the filter can take them all out.
        super().__init__(ansi_color=options.no_color)
        self.options = options
        self.set_keymap(dict(options.keymap))

    def dress(self) -> None:
        """Take our theme, and watch the terminal; once, when the program begins."""
        if not self.options.no_color:
            for theme in THEMES:
                self.register_theme(theme)
            self.theme = self.options.theme or DARK.name
        self.set_class(self.options.ascii, "-ascii-only")
        if self.in_terminal:
            self.set_interval(2.0, self._leave_a_closed_terminal)

    @property
    def in_terminal(self) -> bool:
        """Whether it is drawn on a terminal: not in a test, not in a browser."""
        return not self.is_headless and not self.is_web

    def _leave_a_closed_terminal(self) -> None:
        if hung_up():
            self.exit(return_code=129)  # as a shell reports SIGHUP

    def action_help_quit(self) -> None:
        """Textual's own ctrl+c, a hint how to quit: with nothing to copy it means to leave."""
        self.exit()

    def action_command_palette(self) -> None:
        """Everything that is possible now, in words."""
        if not isinstance(self.screen, CommandPalette):
            # Textual's own text ends in an ellipsis, which --ascii cannot show.
            self.push_screen(CommandPalette(id="--command-palette", placeholder="Search"))

    def get_key_display(self, binding: Binding) -> str:
        """The key as it is shown; in words where the terminal has no signs for it."""
        shown = super().get_key_display(binding)
        return shown if shown.isascii() or not self.options.ascii else binding.key
