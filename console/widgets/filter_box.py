"""A filter under a list: ``/`` opens it, ``esc`` clears it, ``enter`` goes back to the list."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input


class FilterBox(Input):
    """One row, shown only while it filters."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "clear", "Clear the filter", show=False),
        Binding("enter,down", "back", "Back to the list", show=False),
    ]

    class Filtered(Message):
        """The filter's words are others."""

        def __init__(self, words: str) -> None:
            super().__init__()
            self.words = words

    class Left(Message):
        """The list shall have the focus again."""

    def __init__(self, *, id: str = "filter") -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id, compact=True, max_length=80, placeholder="filter: all words")
        self.display = False

    def open(self) -> None:
        """Show it and take the focus."""
        self.display = True
        self.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter as it is typed."""
        event.stop()
        self.post_message(self.Filtered(self.value))

    def action_clear(self) -> None:
        """No filter any more."""
        self.value = ""
        self.action_back()

    def action_back(self) -> None:
        """Back to the list; an empty filter takes no row."""
        self.display = bool(self.value)
        self.post_message(self.Left())
