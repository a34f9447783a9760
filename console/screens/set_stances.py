"""Making automation active, shadow or paused for many engines at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from textual.widget import Widget

from console.asked import Ask
from console.override import sent, stance_effect
from console.scene import Scene
from console.screens.dialog import Dialog
from controlplane.client import ControlPlaneClient, ControlPlaneError
from controlplane.messages import StanceRequest
from store.policies import Stance

AT_ONCE = 8
"""Requests under way at a time."""
NAMED = 6
"""Engines named in the dialog; the others are counted."""


class SetStances(Dialog):
    """One request per engine; what is refused is named, what was taken stays."""

    heading = "Automation of all:"
    act = "Set for all"

    def __init__(
        self,
        client: ControlPlaneClient,
        present: Callable[[], Scene],
        author: str,
        stance: Stance,
        engines: Sequence[str],
    ) -> None:
        super().__init__(client, present, author)
        self._stance = stance
        self._engines = tuple(engines)
        self._taken: list[str] = []

    @property
    def subject(self) -> str:
        """How many engines."""
        return "1 engine" if len(self._engines) == 1 else f"{len(self._engines)} engines"

    def fields(self) -> list[tuple[str, Widget]]:
        """The stance, and why."""
        return [
            ("stance", self.choice([stance.value for stance in Stance], self._stance, "stance")),
            ("reason", self.reason()),
        ]

    def request(self) -> StanceRequest:
        """The request the fields describe, the same for every engine."""
        stance = Stance(self.value("stance"))
        return StanceRequest(stance=stance, author=self.author, reason=self.value("reason").strip())

    def effect(self) -> tuple[str, ...]:
        """What the stance means, and for whom."""
        named = ", ".join(self._engines[:NAMED])
        more = len(self._engines) - NAMED
        others = f" and {more} more" if more > 0 else ""
        return (*stance_effect(self.request()), f"for {self.subject}: {named}{others}")

    def sends(self) -> str:
        """The PUT as it goes out, once for each."""
        first = self._engines[0] if self._engines else "-"
        text = sent("PUT", first, "stance", self.request())
        others = len(self._engines) - 1
        return text if others < 1 else f"{text}\nand the same for {others} more"

    def asks(self) -> tuple[Ask, ...]:
        """A tick under that stance on each engine."""
        stance, now_ms = self.request().stance, self.scene.now_ms
        return tuple(
            Ask(engine, f"automation {stance}", now_ms, stance=stance) for engine in self._engines
        )

    async def send(self) -> None:
        """Set the stance of each; those that are refused are told together."""
        request = self.request()
        turn = asyncio.Semaphore(AT_ONCE)
        refused: list[tuple[str, ControlPlaneError]] = []

        async def one(engine: str) -> None:
            async with turn:
                try:
                    await self.client.set_stance(engine, request)
                except ControlPlaneError as error:
                    refused.append((engine, error))
                else:
                    self._taken.append(engine)

        await asyncio.gather(*(one(name) for name in self._engines if name not in self._taken))
        if refused:
            engine, error = refused[0]
            raise ControlPlaneError(
                f"{len(refused)} of {len(self._engines)} engines refused, "
                f"{len(self._taken)} took it; {engine}: {error}"
            )
