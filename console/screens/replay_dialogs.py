"""What the replay screen asks: where to go, and which policy to ask about the recording."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import tzinfo
from pathlib import Path

from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input, Static

from console.drafting import DraftError, differences, drafted, fields, row_label
from console.replay_goto import HOW, GotoError, goto
from console.scene import Scene
from console.screens.dialog import Dialog, Incomplete
from controlplane.client import ControlPlaneClient, ControlPlaneError
from controlplane.sessions_messages import ReplayRequest, ReplayState, WhatIfRequest
from controlplane.whatif_estimate import LoadModel
from controlplane.whatif_messages import WhatIf
from controlplane.whatif_policy import read_policy
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
        return [*found, ("also", also), ("file", file), ("arrive", load)]

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
        if file := self.value("file").strip():
            return (f"the policy in {file}", ends)
        assert request.policy is not None
        changed = differences(self._policy, request.policy, self.scene.glyphs)
        return (*(changed or ("the thresholds as they are",)), *request.edits, ends)

    def sends(self) -> str:
        """The call, the policy in short."""
        request = self.request()
        body = request.model_dump_json(include={"edits", "load"})
        file = self.value("file").strip()
        if file and not Path(file).expanduser().is_file():
            raise Incomplete(f"there is no file {file}")
        return f'POST /v1/sessions/1/what-if {body[:-1]},"policy":...}}'

    async def send(self) -> None:
        """Ask; it takes a while on a long recording."""
        request = self.request()
        if file := self.value("file").strip():
            try:
                policy = await asyncio.to_thread(_policy_in, file)
            except StoreError as error:
                raise ControlPlaneError(str(error)) from error
            request = request.model_copy(update={"policy": policy})
        self.found = await self.client.what_if(request)


def _policy_in(file: str) -> Policy:
    return read_policy(Path(file).expanduser())
