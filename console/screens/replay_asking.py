"""What the replay screen asks of a recording: other policies, the verification, evidence."""

from __future__ import annotations

from dataclasses import replace
from datetime import tzinfo

from textual import on, work

from console.lookups import Looked
from console.replay_board import ReplayBoard
from console.replay_messages import ReplayTrouble, Verified, WhatIfAnswered
from console.screens.details import Details
from console.screens.replay_dialogs import AskWhatIf, SavePolicy
from console.screens.replay_frame import ReplayFrame
from console.screens.replay_pages import VerifyPage, WhatIfPage
from console.widgets.decision_log import DecisionLog
from controlplane.client import ControlPlaneClient, ControlPlaneError
from controlplane.whatif_estimate import LoadModel
from store.records import Decision, Tick


class ReplayAsking(ReplayFrame):
    """The actions that ask; their answers come as messages.

    Args:
        client: of a replay's API, which has nothing that sends.
    """

    def __init__(
        self,
        client: ControlPlaneClient,
        *,
        zone: tzinfo | None = None,
        ascii_only: bool = False,
    ) -> None:
        super().__init__(zone=zone, ascii_only=ascii_only)
        self.client = client

    def show_replay(self, replay: ReplayBoard) -> None:
        """Display another state; only message handlers change it."""
        before, self.replay = self.replay, replay
        self.redraw()
        if before.what_if is not replay.what_if or before.state is None:
            self.refresh_bindings()

    def action_what_if(self) -> None:
        """Ask which policy to ask about."""
        state, asked, config = self.replay.state, self.replay.what_if, self.replay.board.policy
        if state is None or config is None:
            return
        policy = config.policy if asked is None else asked.policy.policy
        load = LoadModel.RECORDED if asked is None else asked.load
        dialog = AskWhatIf(self.client, self.dialog_scene, state.session.name, policy, load)

        def answered(_: bool | None) -> None:
            if dialog.found is not None:
                self.post_message(WhatIfAnswered(dialog.found))

        self.app.push_screen(dialog, answered)

    def action_clear(self) -> None:
        """Take the what-if off the screen."""
        self.run_worker(self._forget(), group="forget", exclusive=True)

    async def _forget(self) -> None:
        try:
            await self.client.forget_what_if()
        except ControlPlaneError as error:
            self.say(str(error), severe=True)
        else:
            self.post_message(WhatIfAnswered(None))

    def action_save(self) -> None:
        """Ask where to write the policy that was asked about."""
        state, asked = self.replay.state, self.replay.what_if
        if state is None or asked is None:
            return
        name, policy = state.session.name, asked.policy.policy
        dialog = SavePolicy(self.client, self.dialog_scene, name, policy)

        def closed(_: bool | None) -> None:
            if dialog.written:
                self.say(f"written: {dialog.written}")

        self.app.push_screen(dialog, closed)

    def action_all(self) -> None:
        """Everything about the what-if."""
        self.app.push_screen(WhatIfPage(self.scene(), self.replay))

    def action_pane(self) -> None:
        """The what-if, or the decisions that it covers."""
        self.pane_shown = not self.pane_shown
        self.redraw()

    def action_verify(self) -> None:
        """Show the verification; the first time, make it."""
        if self.replay.verified is not None:
            self.app.push_screen(VerifyPage(self.scene(), self.replay))
        elif not self.replay.busy:
            self.show_replay(replace(self.replay, busy="verifying"))
            self._verify()

    @work(group="verify", exclusive=True)
    async def _verify(self) -> None:
        try:
            self.post_message(Verified(await self.client.verify_session()))
        except ControlPlaneError as error:
            self.post_message(ReplayTrouble(str(error)))

    @on(DecisionLog.Chosen)
    def _explain(self, message: DecisionLog.Chosen) -> None:
        message.stop()
        page = Details(self.scene(), message.entry)
        self.app.push_screen(page)
        if isinstance(message.entry.event, Decision):
            self._read_evidence(page, message.entry.event.seq)

    @work(group="evidence", exclusive=True)
    async def _read_evidence(self, page: Details, seq: int) -> None:
        tick: Tick | None = None
        trouble = ""
        try:
            found = await self.client.session_ticks(1, first_seq=seq, limit=1)
            tick = next((one for one in found if one.observation.seq == seq), None)
        except ControlPlaneError as error:
            trouble = str(error)
        known = {seq: Looked(tick, self.replay.now_ms, trouble)}
        self.looked = replace(self.looked, evidence=known)
        if page.is_attached:
            page.show(replace(page.scene, looked=self.looked))
