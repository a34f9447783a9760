"""Extending the override in force."""

from __future__ import annotations

from collections.abc import Callable

from textual.widget import Widget
from textual.widgets import Input

from console.override import extend_effect, sent
from console.scene import Scene
from console.screens.dialog import Dialog, Incomplete
from console.screens.set_override import LONGEST_S
from controlplane.client import ControlPlaneClient
from controlplane.durations import parse_duration
from controlplane.etags import override_tag
from controlplane.messages import ExtendRequest
from store.records import Override

DEFAULT_EXTRA = "10m"


class ExtendOverride(Dialog):
    """More time for an override; says old and new end."""

    heading = "Extend override"
    act = "Extend"

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
        """How much longer, and why."""
        return [
            ("by", Input(DEFAULT_EXTRA, id="extra", compact=True, max_length=12)),
            ("reason", self.reason()),
        ]

    def request(self) -> ExtendRequest:
        """The request the fields describe; raises ``Incomplete`` with what is wrong."""
        try:
            extra_s = parse_duration(self.value("extra"))
        except ValueError as error:
            raise Incomplete(str(error)) from None
        if extra_s > LONGEST_S:
            raise Incomplete(f"no override lasts longer than {LONGEST_S // 86400:.0f} days")
        reason = self.value("reason").strip()
        return ExtendRequest(extra_s=extra_s, author=self.author, reason=reason)

    def effect(self) -> tuple[str, ...]:
        """Old and new end."""
        return extend_effect(self.request(), self._override, self.scene)

    def sends(self) -> str:
        """The POST as it goes out."""
        return sent("POST", self.engine_id, "override/extend", self.request(), self._tag)

    async def send(self) -> None:
        """Extend the override."""
        await self.client.extend_override(self.engine_id, self.request(), if_match=self._tag)
