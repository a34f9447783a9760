"""Making automation active, shadow or paused for one engine."""

from __future__ import annotations

from collections.abc import Callable

from textual.widget import Widget

from console.asked import Ask
from console.override import sent, stance_effect
from console.scene import Scene
from console.screens.dialog import Dialog, Incomplete
from controlplane.client import ControlPlaneClient
from controlplane.messages import StanceRequest
from store.policies import Stance


class SetStance(Dialog):
    """Whether automation acts on this engine."""

    heading = "Automation of"
    act = "Set stance"

    def __init__(
        self, client: ControlPlaneClient, present: Callable[[], Scene], author: str, stance: Stance
    ) -> None:
        super().__init__(client, present, author)
        self._stance = stance

    def fields(self) -> list[tuple[str, Widget]]:
        """The stance, and why."""
        return [
            ("stance", self.choice([stance.value for stance in Stance], self._stance, "stance")),
            ("reason", self.reason()),
        ]

    def request(self) -> StanceRequest:
        """The request the fields describe."""
        stance = Stance(self.value("stance"))
        return StanceRequest(stance=stance, author=self.author, reason=self.value("reason").strip())

    def effect(self) -> tuple[str, ...]:
        """What the stance means."""
        words = stance_effect(self.request().stance)
        tick = self.scene.board.tick
        if tick is not None and tick.override is not None:
            words = (*words, f"the override by {tick.override.author} goes on until it ends")
        return words

    def sends(self) -> str:
        """The PUT as it goes out."""
        config, tick = self.scene.board.policy, self.scene.board.tick
        wanted = self.request().stance
        if config is not None and tick is not None and wanted is config.stance is tick.stance:
            raise Incomplete(f"automation is {wanted} already: choose another stance")
        return sent("PUT", self.engine_id, "stance", self.request())

    def asks(self) -> tuple[Ask, ...]:
        """A tick under that stance."""
        stance = self.request().stance
        return (self.ask(f"automation {stance}", stance=stance),)

    async def send(self) -> None:
        """Set the stance."""
        await self.client.set_stance(self.engine_id, self.request())
