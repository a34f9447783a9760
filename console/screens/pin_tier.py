"""Pinning one tier for an evaluation: an override that nothing but its end takes away."""

from __future__ import annotations

from textual.widget import Widget
from textual.widgets import Input

from console.screens.set_override import DEFAULT_LENGTH, SetOverride
from controlplane.messages import OverrideRequest
from engine_patch.contract_words import Mode
from engine_patch.tier import OFF
from store.records import Guards


class PinTier(SetOverride):
    """One tier, held still while somebody measures: guards are suspended unless kept."""

    heading = "Pin for evaluation"
    act = "Pin"

    def fields(self) -> list[tuple[str, Widget]]:
        """The tier first; the mode follows from it."""
        tiers = self.scene.board.tiers or (OFF,)
        sampled = self.scene.board.sampled
        runs = None if sampled is None else sampled.confirmed
        guards = [guard.value for guard in (Guards.SUSPEND, Guards.KEEP)]
        return [
            ("tier", self.choice(tiers, runs if runs in tiers else tiers[0], "tier")),
            ("length", Input(DEFAULT_LENGTH, id="length", compact=True, max_length=12)),
            ("reason", Input("evaluation", id="reason", compact=True, max_length=500)),
            ("guards", self.choice(guards, Guards.SUSPEND, "guards")),
        ]

    def request(self, reason: str) -> OverrideRequest:
        """The request the fields describe."""
        tier = self.value("tier")
        mode = Mode.OFF if tier == OFF else Mode.ON
        return self.made(mode, None if tier == OFF else tier, reason)

    def show_tier(self) -> None:
        """The tier always counts."""
