"""What the replay screen asks: where to go, and which policy to ask about the recording."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from datetime import tzinfo
from pathlib import Path

from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input, Static

from console.drafting import DraftError, differences, drafted, fields, row_label
from console.formatting import clean
from console.replay_goto import HOW, GotoError, goto
from console.scene import Scene
from console.screens.dialog import Dialog, Incomplete
from controlplane.client import ControlPlaneClient, ControlPlaneError
from controlplane.sessions_messages import ReplayRequest, ReplayState, WhatIfRequest
from controlplane.whatif_estimate import LoadModel
from controlplane.whatif_messages import WhatIf
from controlplane.whatif_policy import policy_text, read_policy
from store.errors import StoreError
from store.policies import Policy


class Goto(Dialog):
    """Where the replay shall go on."""

    AUTO_FOCUS = "#where"
    heading = "Go to, in"
    act = "Go"

    def __init__(
        self,
        client: ControlPlaneClient,
        present: Callable[[], Scene],
        state: ReplayState,
        zone: tzinfo | None,
    ) -> None:
        super().__init__(client, present, "")
        self._state, self._zone = state, zone
        self.order: ReplayRequest | None = None
        """Where to, once it is decided."""

    @property
    def subject(self) -> str:
        """The recording."""
        return self._state.session.name

    def fields(self) -> list[tuple[str, Widget]]:
        """One line."""
        return [("where", Input(id="where", compact=True, max_length=40, placeholder=HOW))]

    def request(self) -> ReplayRequest:
        """The order that the text describes."""
        try:
            return goto(self.value("where"), self._state, self._zone)
        except GotoError as error:
            raise Incomplete(str(error)) from None

    def effect(self) -> tuple[str, ...]:
        """Nothing but the place."""
        self.request()
        return ("this replay alone moves",)

    def sends(self) -> str:
        """The order as it goes out."""
        return f"PUT /v1/replay {self.request().model_dump_json(exclude_defaults=True)}"

    def on_input_submitted(self) -> None:
        """Enter in the only field is the button."""
        self.start()

    async def send(self) -> None:
        """The screen's feed sends it, in order with the others."""
        self.order = self.request()


class AskWhatIf(Dialog):
    """Another policy for a question to the recording; nothing is set anywhere."""

    heading = "What if, in"
    act = "Ask"

    def __init__(
        self,
        client: ControlPlaneClient,
        present: Callable[[], Scene],
        name: str,
        policy: Policy,
        load: LoadModel,
    ) -> None:
        super().__init__(client, present, "")
        self._recording, self._policy, self._load = name, policy, load
        self._rows = fields(policy)
        self.found: WhatIf | None = None
        """The answer, once it came."""

    @property
    def subject(self) -> str:
        """The recording."""
        return self._recording

    def fields(self) -> list[tuple[str, Widget]]:
        """The thresholds, anything else as PATH=VALUE, another policy's file, the load."""
        found: list[tuple[str, Widget]] = []
        for place, row in enumerate(self._rows):
            parts: list[Widget] = []
            for one in row:
                parts += [
                    Static(one.label, classes="of", markup=False),
                    Input(one.value, id=one.id, compact=True, max_length=9, classes="short"),
                    Static(one.unit, classes="unit", markup=False),
                ]
            found.append((row_label(row), Horizontal(*parts, id=f"fields-{place}", classes="many")))
        also = Input(
            id="edits", compact=True, max_length=500, placeholder="PATH=VALUE, up_hold_s=8 say"
        )
        file = Input(
            id="file", compact=True, max_length=500, placeholder="another policy, TOML or JSON"
        )
        load = self.choice([one.value for one in LoadModel], self._load.value, "load")
        found.append(("also", also))
        if not self.app.is_web:
            # A visitor's files are not those of the machine that this runs on.
            found.append(("file", file))
        return [*found, ("arrive", load)]

    def _file(self) -> str:
        return "" if self.app.is_web else self.value("file").strip()

    def policy(self) -> Policy:
        """The policy that the thresholds describe."""
        values: dict[str, str] = {one.id: self.value(one.id) for row in self._rows for one in row}
        try:
            return drafted(self._policy, values)
        except DraftError as error:
            raise Incomplete(str(error)) from None

    def request(self) -> WhatIfRequest:
        """The question, without what a file says."""
        edits = tuple(self.value("edits").replace(",", " ").split())
        if wrong := next((one for one in edits if "=" not in one), None):
            raise Incomplete(f"also: write PATH=VALUE, not {wrong!r}")
        if len(edits) > 50:
            raise Incomplete("also: 50 values at most")
        return WhatIfRequest(policy=self.policy(), edits=edits, load=LoadModel(self.value("load")))

    def effect(self) -> tuple[str, ...]:
        """What is asked."""
        request = self.request()
        ends = "the recording answers; no policy of any engine changes"
        if file := self._file():
            return (f"the policy in {file}", ends)
        assert request.policy is not None
        changed = differences(self._policy, request.policy, self.scene.glyphs)
        return (*(changed or ("the thresholds as they are",)), *request.edits, ends)

    def sends(self) -> str:
        """The call, the policy in short."""
        request = self.request()
        body = request.model_dump_json(include={"edits", "load"})
        file = self._file()
        if file and not Path(file).expanduser().is_file():
            raise Incomplete(f"there is no file {file}")
        return f'POST /v1/sessions/1/what-if {body[:-1]},"policy":...}}'

    async def send(self) -> None:
        """Ask; it takes a while on a long recording."""
        request = self.request()
        if file := self._file():
            try:
                policy = await asyncio.to_thread(_policy_in, file)
            except StoreError as error:
                raise ControlPlaneError(str(error)) from error
            request = request.model_copy(update={"policy": policy})
        self.found = await self.client.what_if(request)


class SavePolicy(Dialog):
    """Writes the what-if's policy as a file that an engine can be given in shadow."""

    heading = "Save the policy of"
    act = "Write"

    def __init__(
        self,
        client: ControlPlaneClient,
        present: Callable[[], Scene],
        name: str,
        policy: Policy,
    ) -> None:
        super().__init__(client, present, "")
        self._recording, self._policy = name, policy
        self.written = ""
        """Where it was written, once it was."""

    @property
    def subject(self) -> str:
        """The recording that was asked."""
        return self._recording

    def fields(self) -> list[tuple[str, Widget]]:
        """Where to."""
        safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in self._recording)
        name = Input(f"what-if-{safe}.toml", id="name", compact=True, max_length=300)
        return [("file", name)]

    def _target(self) -> Path:
        name = self.value("name").strip()
        if not name:
            raise Incomplete("write a file name")
        return Path(name if name.endswith(".toml") else f"{name}.toml")

    def effect(self) -> tuple[str, ...]:
        """What is written; nothing is sent."""
        to = "the browser saves" if self.app.is_web else "writes"
        return (
            f"{to} {self._target()}: a policy file",
            "specdeck policy set ENGINE --file FILE --stance shadow computes with it and does not "
            "act",
        )

    def sends(self) -> str:
        """Nothing."""
        self._target()
        return "nothing"

    async def send(self) -> None:
        """Write the file; an existing one is not overwritten."""
        text = policy_text(self._policy, f"a what-if over {clean(self._recording)}")
        target = self._target()
        if self.app.is_web:
            self.app.deliver_text(io.StringIO(text), save_filename=target.name)
            self.written = target.name
            return
        try:
            await asyncio.to_thread(_write_new, target, text)
        except FileExistsError:
            raise ControlPlaneError(f"{target} exists: write another name") from None
        except OSError as error:
            raise ControlPlaneError(f"{target} cannot be written: {error.strerror}") from None
        self.written = str(target)


def _write_new(path: Path, text: str) -> None:
    with path.expanduser().open("x", encoding="utf-8") as file:
        file.write(text)


def _policy_in(file: str) -> Policy:
    return read_policy(Path(file).expanduser())
