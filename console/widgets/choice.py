"""A choice in one row: ``(*) on  ( ) off  ( ) auto``; left and right move it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget

from console.formatting import clean


class Choice(Widget, can_focus=True):
    """One of several words, all of them visible, readable without colour."""

    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(-1)", "Previous", show=False),
        Binding("right", "move(1)", "Next", show=False),
        Binding("space", "move(1)", "Next", show=False),
    ]

    class Changed(Message):
        """Another word was chosen."""

        def __init__(self, choice: Choice) -> None:
            super().__init__()
            self.choice = choice

        @property
        def control(self) -> Choice:
            """The choice that changed."""
            return self.choice

    def __init__(
        self,
        options: Sequence[str],
        value: str,
        *,
        id: str,  # noqa: A002  (Textual's own name)
        ascii: bool = False,  # noqa: A002
    ) -> None:
        super().__init__(id=id)
        self._options = tuple(options)
        # Bound by a no-break space where there is one, so that a mark never parts from its word.
        self._joint = " " if ascii else "\N{NO-BREAK SPACE}"
        self.value = value

    def render(self) -> Text:
        """The words with the chosen one marked; a click on a word takes it."""
        text = Text()
        for place, option in enumerate(self._options):
            chosen = option == self.value
            look = "reverse" if chosen and self.has_focus else "bold" if chosen else ""
            style = Style.parse(look or "none") + Style(meta={"@click": f"pick({place})"})
            mark = "*" if chosen else self._joint
            text.append(f"({mark}){self._joint}{clean(option)}", style)
            text.append("  ")
        text.rstrip()
        return text

    def choose(self, option: str) -> None:
        """Take ``option``; an unknown word changes nothing."""
        if option in self._options and option != self.value:
            self.value = option
            self.refresh()
            self.post_message(self.Changed(self))

    def action_move(self, step: int) -> None:
        """Take the neighbour, round the ends."""
        if self._options:
            place = self._options.index(self.value) if self.value in self._options else 0
            self.choose(self._options[(place + step) % len(self._options)])

    def on_focus(self) -> None:
        """Show where the keys go."""
        self.refresh()

    def on_blur(self) -> None:
        """Show that they go elsewhere."""
        self.refresh()

    def action_pick(self, place: int) -> None:
        """Take the word at ``place``."""
        self.choose(self._options[place])
