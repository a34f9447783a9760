"""What screens read beside the stream of ticks, with its age and what went wrong.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from console.places import Need
from controlplane.messages import Costs, Fleet, FleetRow
from store.policies import PolicyConfig
from store.records import AuditEntry, Tick

T = TypeVar("T")

EVERY_S = {Need.FLEET: 0.5, Need.COSTS: 10.0, Need.POLICIES: 3.0, Need.AUDIT: 2.0}
"""Seconds between two reads while the screen is open."""
FLEET_ASIDE_S = 5.0
"""The fleet is read slowly on other screens too: its alarms ring everywhere."""


@dataclass(frozen=True, slots=True)
class Looked(Generic[T]):
    """One answer.

    Args:
        value: the newest answer, None before the first.
        at_ms: when it came, on the scene's clock.
        trouble: why the newest attempt failed; "" if it did not.
    """

    value: T | None = None
    at_ms: int | None = None
    trouble: str = ""

    def failed(self, trouble: str) -> Looked[T]:
        """The last answer, known to be the last only."""
        return Looked(self.value, self.at_ms, trouble)


@dataclass(frozen=True, slots=True)
class Lookups:
    """All of them; costs and policies belong to the engine that is shown.

    Args:
        evidence: ticks on single observations, by number.
    """

    fleet: Looked[Fleet] = Looked()
    costs: Looked[Costs] = Looked()
    policies: Looked[tuple[PolicyConfig, ...]] = Looked()
    audit: Looked[tuple[AuditEntry, ...]] = Looked()
    evidence: dict[int, Looked[Tick]] = field(default_factory=dict)

    @property
    def rows(self) -> tuple[FleetRow, ...]:
        """Every engine in short; empty before the first answer."""
        return () if self.fleet.value is None else self.fleet.value.rows

    def of(self, need: Need) -> Looked[object]:
        """The answer to ``need``."""
        found: Looked[object] = getattr(self, need.value)
        return found

    def told(self, need: Need, answer: Looked[object]) -> Lookups:
        """With the newest answer to ``need``."""
        changed: dict[str, Any] = {need.value: answer}
        return replace(self, **changed)


NOTHING = Lookups()
"""Before anything was read."""
