"""The base of every dialog that changes something: it says what will be sent, and asks.

The focus starts on Cancel; no key acts without it.  A refusal stays on the dialog with the
server's own reason, so that it can be corrected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Button, Input, Static

from console.asked import Ask
from console.formatting import ASCII, clean, plain_ascii
from console.scene import Scene
from console.widgets.choice import Choice
from controlplane.client import ControlPlaneClient, ControlPlaneError, UnreachableError


class Incomplete(Exception):  # noqa: N818  (not an error of the program)
    """A field is missing or wrong; the message says what to write."""


class Dialog(ModalScreen[bool]):
    """Fields, what they will do, what will be sent, Cancel and one button that acts."""

    AUTO_FOCUS = "#cancel"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Cancel", show=False),
        Binding("down", "app.focus_next", "Next field", show=False),
        Binding("up", "app.focus_previous", "Previous field", show=False),
    ]
    heading = ""
    act = "Send"

    def __init__(
        self, client: ControlPlaneClient, present: Callable[[], Scene], author: str
    ) -> None:
        super().__init__()
        self.client = client
        self.author = author
        self.engine_id = present().board.engine_id
        self._present = present
        self._said: tuple[str, str, str] | None = None
        self._answer = ""
        self._sending = False
        self.asked: tuple[Ask, ...] = ()
        """What was asked for, once it was."""

    @property
    def scene(self) -> Scene:
        """The scene now: an end that is shown moves while the dialog is open."""
        return self._present()

    @property
    def subject(self) -> str:
        """What it acts on, in the frame."""
        return self.scene.board.name or self.engine_id

    def fields(self) -> list[tuple[str, Widget]]:
        """The labelled fields, in order."""
        return []

    def effect(self) -> tuple[str, ...]:
        """What acting will do, in sentences, with what is filled in so far.

        Raises:
            Incomplete: a field is wrong.
        """
        raise NotImplementedError

    def sends(self) -> str:
        """The call as it will go out.

        Raises:
            Incomplete: a field is missing or wrong.
        """
        raise NotImplementedError

    async def send(self) -> None:
        """Make the call; raises ``ControlPlaneError`` when it is refused."""
        raise NotImplementedError

    def asks(self) -> tuple[Ask, ...]:
        """What the engine must confirm after ``send``; nothing by default."""
        return ()

    def ask(self, words: str, **wanted: Any) -> Ask:
        """One thing that this dialog's engine must confirm."""
        return Ask(self.engine_id, words, self.scene.now_ms, **wanted)

    def compose(self) -> ComposeResult:
        """The dialog's frame."""
        with Vertical(id="dialog", classes="-ascii" if self.scene.glyphs.ascii else ""):
            for label, field in self.fields():
                with Horizontal(classes="field", id=f"row-{field.id}"):
                    yield Static(label, classes="label", markup=False)
                    yield field
            for word in ("effect", "sends"):
                with Horizontal(id=f"{word}-row", classes="said"):
                    yield Static(word, classes="label", markup=False)
                    yield Static(id=word, markup=False)
            yield Static(id="trouble", markup=False)
            with Horizontal(id="buttons"):
                yield Button("Cancel", id="cancel", compact=True)
                yield Button(self.act, id="act", compact=True)

    def on_mount(self) -> None:
        """Name the engine in the frame and show what the untouched fields would do."""
        # As content, not as a string: a string's brackets would be read as markup.
        title = Content(self.shown(f"{self.heading} {self.subject}"))
        self.query_one("#dialog").border_title = title
        self.preview()
        self.set_interval(1.0, self.preview)

    def shown(self, text: str) -> str:
        """``text`` as this terminal may see it."""
        text = clean(text)
        return plain_ascii(text) if self.scene.glyphs is ASCII else text

    def choice(self, options: Sequence[str], value: str, field_id: str) -> Choice:
        """A field with one of several words."""
        return Choice(options, value, id=field_id, ascii=self.scene.glyphs.ascii)

    def reason(self, placeholder: str = "optional") -> Input:
        """The field for why it is done."""
        return Input(id="reason", compact=True, max_length=500, placeholder=placeholder)

    def value(self, field_id: str) -> str:
        """The text of an input or the chosen word."""
        field = self.query_one(f"#{field_id}")
        return field.value if isinstance(field, Input | Choice) else ""

    @on(Input.Changed)
    @on(Choice.Changed)
    def changed(self) -> None:
        """A corrected field is another request: what was refused is over."""
        self._answer = ""
        self.preview()

    def preview(self) -> None:
        """Say what acting now would do and send, and what is missing or was refused."""
        effect = sends = ""
        trouble = self._answer
        try:
            effect = "\n".join(map(self.shown, self.effect()))
            sends = self.shown(self.sends())
        except Incomplete as missing:
            trouble = f"! {missing}"
        if (effect, sends, trouble) == self._said:
            return
        self._said = (effect, sends, trouble)
        for word, text in (("effect", effect), ("sends", sends)):
            self.query_one(f"#{word}", Static).update(text)
            self.query_one(f"#{word}-row").display = bool(text)
        self.query_one("#trouble", Static).update(self.shown(trouble))
        self.query_one("#trouble").display = bool(trouble)

    def answer(self, text: str) -> None:
        """Show ``text`` above the buttons until a field is changed."""
        self._answer = text
        self.preview()

    @on(Button.Pressed, "#cancel")
    def action_cancel(self) -> None:
        """Leave without acting."""
        self.dismiss(False)

    @on(Button.Pressed, "#act")
    def start(self) -> None:
        """Act, once, unless something is missing: then the dialog says so already."""
        if self._sending:
            return
        try:
            self.sends()
        except Incomplete:
            self.app.bell()
            return
        self._sending = True
        self.answer("sending")
        self._send()

    @work
    async def _send(self) -> None:
        self.asked = self.asks()
        try:
            await self.send()
        except UnreachableError as silence:
            self._sending = False
            look = "it may have been taken all the same: look before you send it again"
            self.answer(f"! no answer: {silence}; {look}")
            return
        except ControlPlaneError as refusal:
            self._sending = False
            self.answer(f"! refused: {refusal}")
            return
        self.dismiss(True)
