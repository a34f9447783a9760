"""The screens of the frame: key, name, and where each one's class is.  Pure.

A screen is added by one line here: a subclass of ``console.screens.place.Place``, named by module
and class so that it is loaded only when it is opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Need(StrEnum):
    """What a screen reads beside the stream of ticks, while it is open."""

    FLEET = "fleet"
    COSTS = "costs"
    POLICIES = "policies"
    AUDIT = "audit"


@dataclass(frozen=True, slots=True)
class Entry:
    """One screen of the frame.

    Args:
        id: its name in links and key maps.
        key: opens it.
        name: on its tab.
        words: in the palette and the help.
        where: ``module:class``.
        needs: what is read while it is open.
        engine: whether it shows one engine, as most do.
        pushed: whether it is laid over the frame's screens, made from (client, present scene,
            author), and left with ``dismiss``; any ``Screen`` can be.
    """

    id: str
    key: str
    name: str
    words: str
    where: str
    needs: frozenset[Need] = frozenset()
    engine: bool = True
    pushed: bool = False


FIRST = "live"
PLACES: tuple[Entry, ...] = (
    Entry(
        "fleet",
        "1",
        "Fleet",
        "Every engine in a row",
        "console.screens.fleet:FleetScreen",
        frozenset({Need.FLEET}),
        engine=False,
    ),
    Entry("live", "2", "Live", "One engine now", "console.screens.live:Live"),
    Entry(
        "decisions",
        "3",
        "Decisions",
        "Decisions and the engine's own changes, with evidence",
        "console.screens.decisions:Decisions",
    ),
    Entry(
        "tiers",
        "4",
        "Tiers",
        "Cost per tier, thresholds and their history",
        "console.screens.tiers:Tiers",
        frozenset({Need.COSTS, Need.POLICIES}),
    ),
    Entry(
        "kv",
        "5",
        "KV",
        "KV slots, the reserve of each tier, the cap",
        "console.screens.kv:KvScreen",
    ),
    Entry(
        "audit",
        "6",
        "Audit",
        "Who changed what",
        "console.screens.audit:Audit",
        frozenset({Need.AUDIT}),
        engine=False,
    ),
    Entry(
        "bench",
        "7",
        "Bench",
        "Measure up to where speculation pays",
        "console.screens.bench:Bench",
        pushed=True,
    ),
    Entry(
        "sessions",
        "8",
        "Sessions",
        "Recorded sessions, to replay",
        "console.screens.sessions:Sessions",
        pushed=True,
    ),
)
BY_ID = {entry.id: entry for entry in PLACES}
