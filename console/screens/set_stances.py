"""Pausing automation of many engines at once, letting it go on, or giving all one stance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from textual import on
from textual.widget import Widget
from textual.widgets import Button

from console.asked import Ask
from console.override import called, sent, stance_effect
from console.scene import Scene
from console.screens.dialog import Dialog
from controlplane.client import ControlPlaneClient, ControlPlaneError
from controlplane.messages import StanceRequest, StopRequest
from store.policies import PolicyConfig, Stance

AT_ONCE = 8
"""Requests under way at a time, where each engine takes its own."""
NAMED = 6
"""Engines named in the dialog; the others are counted."""
WAYS = ("pause", "resume", "shadow", "active")
"""The first two are one request for all."""


class SetStances(Dialog):
    """What is refused is named, what was taken stays."""

    heading = "Automation of all:"
    act = "Set for all"

    def __init__(
        self,
        client: ControlPlaneClient,
        present: Callable[[], Scene],
        author: str,
        way: str,
        engines: Sequence[str],
    ) -> None:
        super().__init__(client, present, author)
        self._way = way
        self._engines = tuple(engines)
        self._all = {row.engine_id for row in present().looked.rows} == set(engines)
        self._taken: dict[str, PolicyConfig] = {}

    @property
    def subject(self) -> str:
        """How many engines."""
        return "1 engine" if len(self._engines) == 1 else f"{len(self._engines)} engines"

    def fields(self) -> list[tuple[str, Widget]]:
        """What to do, and why."""
        return [
            ("do", self.choice(WAYS, self._way, "stance")),
            ("reason", self.reason()),
        ]

    @property
    def way(self) -> str:
        """What was chosen."""
        return self.value("stance")

    def request(self) -> StopRequest:
        """The request for all of them: those named, or every engine there is."""
        named = () if self._all else self._engines
        return StopRequest(engines=named, author=self.author, reason=self.value("reason").strip())

    def request_for_one(self) -> StanceRequest:
        """The request that each engine takes for itself."""
        reason = self.value("reason").strip()
        return StanceRequest(stance=Stance(self.way), author=self.author, reason=reason)

    def effect(self) -> tuple[str, ...]:
        """What it means, and for whom."""
        named = ", ".join(self._engines[:NAMED])
        more = len(self._engines) - NAMED
        others = f" and {more} more" if more > 0 else ""
        whom = f"for {self.subject}: {named}{others}"
        if self.way == "pause":
            return (*stance_effect(Stance.PAUSED), "overrides go on until they end", whom)
        if self.way == "resume":
            return (
                "each gets the stance back that it had before it was paused here",
                "one that was paused by itself stays so",
                whom,
            )
        return (*stance_effect(Stance(self.way)), whom)

    def sends(self) -> str:
        """The request as it goes out, once for all or once for each."""
        if self.way in ("pause", "resume"):
            return called("POST", f"/v1/{self.way}", self.request())
        first = self._engines[0] if self._engines else "-"
        text = sent("PUT", first, "stance", self.request_for_one())
        others = len(self._engines) - 1
        return text if others < 1 else f"{text}\nand the same for {others} more"

    def asks(self) -> tuple[Ask, ...]:
        """A tick under the new stance on each engine that took it."""
        now_ms = self.scene.now_ms
        return tuple(
            Ask(engine, f"automation {made.stance}", now_ms, stance=made.stance)
            for engine, made in self._taken.items()
        )

    async def send(self) -> None:
        """Send it; those that are refused are told together."""
        whole = self.way in ("pause", "resume")
        refused = await (self._send_once() if whole else self._send_each())
        self.asked = self.asks()
        if refused:
            engine, why = refused[0]
            raise ControlPlaneError(
                f"{len(refused)} of {len(self._engines)} engines refused, "
                f"{len(self._taken)} took it; {engine}: {why}"
            )

    async def _send_once(self) -> list[tuple[str, str]]:
        send = self.client.pause if self.way == "pause" else self.client.resume
        refused: list[tuple[str, str]] = []
        for answer in await send(self.request()):
            if answer.policy is None:
                refused.append((answer.engine_id, answer.problem))
            else:
                self._taken[answer.engine_id] = answer.policy
        return refused

    async def _send_each(self) -> list[tuple[str, str]]:
        request = self.request_for_one()
        turn = asyncio.Semaphore(AT_ONCE)
        refused: list[tuple[str, str]] = []

        async def one(engine: str) -> None:
            async with turn:
                try:
                    self._taken[engine] = await self.client.set_stance(engine, request)
                except ControlPlaneError as error:
                    refused.append((engine, str(error)))

        await asyncio.gather(*map(one, self._engines))
        return refused

    @on(Button.Pressed, "#cancel")
    def action_cancel(self) -> None:
        """Leave; what some engines took already is followed all the same."""
        self.dismiss(bool(self._taken))
