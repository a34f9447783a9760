"""Releasing the override in force."""

from __future__ import annotations

from collections.abc import Callable

from textual.widget import Widget

from console.asked import Ask
from console.override import release_effect, sent
from console.scene import Scene
from console.screens.dialog import Dialog
from controlplane.client import ControlPlaneClient
from controlplane.etags import override_tag
from controlplane.messages import ReleaseRequest
from store.records import Override


class ReleaseOverride(Dialog):
    """Ends an override early; says who decides next."""

    heading = "Release override"
    act = "Release"

    def __init__(
        self,
        client: ControlPlaneClient,
        present: Callable[[], Scene],
        author: str,
        override: Override,
    ) -> None:
        super().__init__(client, present, author)
        self._override = override
        self._tag = override_tag(override)

    def fields(self) -> list[tuple[str, Widget]]:
        """Why, if somebody wants to say so."""
        return [("reason", self.reason())]

    def request(self) -> ReleaseRequest:
        """The request the fields describe."""
        return ReleaseRequest(author=self.author, reason=self.value("reason").strip())

    def effect(self) -> tuple[str, ...]:
        """What ends and who decides next."""
        return release_effect(self._override, self.scene)

    def sends(self) -> str:
        """The DELETE as it goes out."""
        return sent("DELETE", self.engine_id, "override", self.request(), self._tag)

    def asks(self) -> tuple[Ask, ...]:
        """The end of the override."""
        return (self.ask("release of the override", released=True),)

    async def send(self) -> None:
        """Release the override."""
        await self.client.release_override(self.engine_id, self.request(), if_match=self._tag)
