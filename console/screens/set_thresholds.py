"""Editing the thresholds of the policy in force."""

from __future__ import annotations

from collections.abc import Callable

from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input, Static

from console.asked import Ask
from console.drafting import DraftError, differences, drafted, fields, row_label
from console.override import sent
from console.scene import Scene
from console.screens.dialog import Dialog, Incomplete
from controlplane.client import ControlPlaneClient
from controlplane.messages import PolicyRequest
from store.policies import Policy, PolicyConfig


class SetThresholds(Dialog):
    """Makes a new policy version; refused if somebody else made one meanwhile."""

    heading = "Thresholds of"
    act = "Set thresholds"

    def __init__(
        self, client: ControlPlaneClient, present: Callable[[], Scene], author: str
    ) -> None:
        super().__init__(client, present, author)
        config = present().board.policy
        assert config is not None, "not offered before the policy is known"
        self._config = config
        self._rows = fields(config.policy)

    @staticmethod
    def editable(config: PolicyConfig | None) -> bool:
        """Whether this policy has thresholds that the dialog can edit."""
        return config is not None and bool(fields(config.policy))

    def fields(self) -> list[tuple[str, Widget]]:
        """The thresholds, rows of two or three, and why."""
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
        found.append(("reason", self.reason()))
        return found

    def policy(self) -> Policy:
        """The policy that the fields describe.

        Raises:
            Incomplete: with what is wrong.
        """
        values = {one.id: self.value(one.id) for row in self._rows for one in row}
        try:
            return drafted(self._config.policy, values)
        except DraftError as error:
            raise Incomplete(str(error)) from None

    def request(self) -> PolicyRequest:
        """The request the fields describe."""
        return PolicyRequest(
            policy=self.policy(),
            author=self.author,
            reason=self.value("reason").strip(),
            if_version=self._config.version,
        )

    def effect(self) -> tuple[str, ...]:
        """What becomes different from the next tick on."""
        changed = differences(self._config.policy, self.policy(), self.scene.glyphs)
        if not changed:
            return ("nothing changes yet",)
        head = f"version {self._config.version + 1} replaces {self._config.version}, next tick on:"
        return (head, *changed)

    def sends(self) -> str:
        """The PUT as it goes out."""
        if self.policy() == self._config.policy:
            raise Incomplete("nothing was changed")
        return sent("PUT", self.engine_id, "policy", self.request())

    def asks(self) -> tuple[Ask, ...]:
        """A tick under the new version."""
        version = self._config.version + 1
        return (self.ask(f"policy version {version}", version=version),)

    async def send(self) -> None:
        """Make the version."""
        await self.client.set_policy(self.engine_id, self.request())
