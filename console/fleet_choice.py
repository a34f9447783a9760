"""How the list of engines is looked at: order, filter, groups.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from console.matching import matches
from controlplane.messages import FleetRow
from engine_patch.tier import TierShape

GROUP = "group "
"""Keys of group headings begin with it; engine ids have no space."""


class Sort(StrEnum):
    """What rows are ordered by."""

    GIVEN = "as configured"
    NAME = "name"
    MODE = "mode"
    LOAD = "load"
    SPEED = "tok/s"
    ACCEPT = "accept"
    KV = "KV"
    ALARM = "alarm"


@dataclass(frozen=True, slots=True)
class Choice:
    """How the list is looked at.

    Args:
        backwards: the other way round; a missing value stands last both ways.
        words: the filter.
        grouped: whether rows stand under their groups.
        closed: groups whose rows are hidden.
    """

    sort: Sort = Sort.GIVEN
    backwards: bool = False
    words: str = ""
    grouped: bool = False
    closed: frozenset[str] = frozenset()

    def next_sort(self) -> Choice:
        """Ordered by the next column, its natural way round."""
        every = tuple(Sort)
        return replace(self, sort=every[(every.index(self.sort) + 1) % len(every)], backwards=False)

    def toggled(self, group: str) -> Choice:
        """With the group opened or closed."""
        return replace(self, closed=self.closed ^ {group})


def ordered(rows: Sequence[FleetRow], choice: Choice) -> tuple[FleetRow, ...]:
    """The rows that match, in the chosen order."""
    found = [
        row
        for row in rows
        if matches(
            choice.words,
            (
                row.engine_id,
                row.name,
                row.group,
                row.model,
                row.confirmed,
                row.text,
                row.gap,
                row.override_by and f"override {row.override_by}",
                row.stance.value if row.stance else "",
                *(alarm.text for alarm in row.alarms),
                "alarm" if row.alarms else "",
                "simulated" if row.simulated else "",
            ),
        )
    ]
    if choice.sort is Sort.GIVEN:
        return tuple(reversed(found)) if choice.backwards else tuple(found)
    value = _VALUES[choice.sort]
    known = [row for row in found if value(row) is not None]
    missing = [row for row in found if value(row) is None]
    # Numbers stand with the greatest first, words from the beginning of the alphabet.
    down = choice.sort not in (Sort.NAME, Sort.MODE)
    known.sort(key=lambda row: value(row), reverse=down != choice.backwards)
    return (*known, *missing)


def _mode_value(row: FleetRow) -> str | None:
    if row.confirmed is None:
        return None
    return f"{TierShape.parse(row.confirmed).num_draft_tokens:03d}"


_VALUES: dict[Sort, Callable[[FleetRow], Any]] = {
    Sort.NAME: lambda row: (row.name or row.engine_id).casefold(),
    Sort.MODE: _mode_value,
    Sort.LOAD: lambda row: row.concurrency,
    Sort.SPEED: lambda row: row.decode_tok_s,
    Sort.ACCEPT: lambda row: row.accept_length,
    Sort.KV: lambda row: row.kv_used,
    Sort.ALARM: lambda row: 2 * len(row.alarms) + bool(row.gap) or None,
}


def listed(rows: Sequence[FleetRow], choice: Choice) -> tuple[str, ...]:
    """The keys of what stands in the list: engine ids, and group headings."""
    found = ordered(rows, choice)
    if not choice.grouped:
        return tuple(row.engine_id for row in found)
    groups: dict[str, list[str]] = {}
    for row in found:
        groups.setdefault(row.group, []).append(row.engine_id)
    keys: list[str] = []
    for group in sorted(groups, key=lambda name: (not name, name.casefold())):
        keys.append(f"{GROUP}{group}")
        if group not in choice.closed:
            keys += groups[group]
    return tuple(keys)
