"""Setting an override: mode, tier, length, reason and guards."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import ValidationError
from textual.widget import Widget
from textual.widgets import Input

from console.asked import Ask
from console.formatting import length
from console.override import effect, mode_words, sent
from console.scene import Scene
from console.screens.dialog import Dialog, Incomplete
from controlplane.client import ControlPlaneClient
from controlplane.durations import parse_duration
from controlplane.etags import override_tag
from controlplane.messages import OverrideRequest
from engine_patch.contract_words import Mode
from engine_patch.tier import TierName
from store.records import Guards, Override

DEFAULT_LENGTH = "10m"
LONGEST_S = 7 * 86400.0
"""What the engine contract allows a lease to last; the control plane may allow less."""


class SetOverride(Dialog):
    """An operator's mode with a mandatory expiry and reason."""

    heading = "Override"
    act = "Set override"

    def __init__(
        self,
        client: ControlPlaneClient,
        present: Callable[[], Scene],
        author: str,
        max_s: float | None,
    ) -> None:
        super().__init__(client, present, author)
        self._max_s = max_s
        self._tag = override_tag(override_of(present()))

    def fields(self) -> list[tuple[str, Widget]]:
        """Mode first; the tier counts for ``on`` alone."""
        tiers = self.scene.board.speculating
        modes = [mode.value for mode in (Mode.ON, Mode.OFF, Mode.AUTO)]
        start = Mode.OFF.value if self._speculates() or not tiers else Mode.ON.value
        return [
            ("mode", self.choice(modes, start, "mode")),
            ("tier", self.choice(tiers, tiers[0] if tiers else "", "tier")),
            ("length", Input(DEFAULT_LENGTH, id="length", compact=True, max_length=12)),
            ("reason", self.reason("mandatory")),
            ("guards", self.choice([guard.value for guard in Guards], Guards.KEEP, "guards")),
        ]

    def _speculates(self) -> bool:
        sampled = self.scene.board.sampled
        return sampled is not None and sampled.confirmed in self.scene.board.speculating

    def request(self, reason: str) -> OverrideRequest:
        """The request the fields describe, for ``reason``.

        Raises:
            Incomplete: with what is wrong.
        """
        mode = Mode(self.value("mode"))
        return self.made(mode, self.value("tier") or None if mode is Mode.ON else None, reason)

    def made(self, mode: Mode, tier: TierName | None, reason: str) -> OverrideRequest:
        """The request for ``mode`` and ``tier`` with what else is filled in.

        Raises:
            Incomplete: with what is wrong.
        """
        try:
            length_s = parse_duration(self.value("length"))
        except ValueError as error:
            raise Incomplete(str(error)) from None
        if length_s > LONGEST_S:
            raise Incomplete(f"no override lasts longer than {LONGEST_S // 86400:.0f} days")
        try:
            return OverrideRequest(
                mode=mode,
                tier=tier,
                length_s=length_s,
                author=self.author,
                reason=reason,
                guards=Guards(self.value("guards")),
            )
        except ValidationError as error:
            raise Incomplete(error.errors()[0]["msg"]) from None

    def effect(self) -> tuple[str, ...]:
        """What every rank will run, and until when."""
        self.show_tier()
        return effect(self.request(self._reason() or "to be written"), self.scene, self._max_s)

    def show_tier(self) -> None:
        """The tier counts for ``on`` alone."""
        self.query_one("#row-tier").display = self.value("mode") == Mode.ON.value

    def _reason(self) -> str:
        return self.value("reason").strip()

    def sends(self) -> str:
        """The PUT as it goes out."""
        if not self._reason():
            raise Incomplete("write a reason: it is stored with the override and shown to all")
        return sent("PUT", self.engine_id, "override", self.request(self._reason()), self._tag)

    def asks(self) -> tuple[Ask, ...]:
        """Every rank running it."""
        request = self.request(self._reason())
        words = f"override {mode_words(request.mode, request.tier)} for {length(request.length_s)}"
        return (self.ask(words, mode=request.mode, tier=request.tier),)

    async def send(self) -> None:
        """Set the override."""
        await self.client.set_override(
            self.engine_id, self.request(self._reason()), if_match=self._tag
        )


def override_of(scene: Scene) -> Override | None:
    """The override that the newest tick shows."""
    return None if scene.board.tick is None else scene.board.tick.override
