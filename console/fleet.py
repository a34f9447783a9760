"""Every engine in a row: what runs, why, load, alarms; sorted, filtered, in groups.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from textwrap import wrap
from typing import Any

from console.formatting import MISSING, Glyphs, cells, countdown, cut, fill, number, seconds
from console.matching import matches
from console.scene import STALE_POLLS, Scene
from console.spans import Line, Role, Span, line, pad, recolour, rule, spread
from controlplane.messages import FleetRow
from engine_patch.tier import OFF, TierShape
from store.observations import PluginStatus
from store.policies import Stance

GROUP = "group "
"""Keys of group headings begin with it; engine ids have no space."""
WIDE = 110
"""From so many cells on, what runs and what is wrong have columns of their own."""


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


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its title, width in cells and the order it stands for."""

    title: str
    width: int
    sort: Sort | None = None
    right: bool = True


def columns(size: int) -> tuple[Column, ...]:
    """The columns in ``size`` cells; the last one takes what is left."""
    narrow = size < 78
    found = [
        Column("engine", 12 if narrow else 16 if size < WIDE else 22, Sort.NAME, right=False),
        Column("mode", 10, Sort.MODE, right=False),
        Column("req", 5, Sort.LOAD),
    ]
    if not narrow:
        found += [
            Column("tok/s", 7, Sort.SPEED),
            Column("accept", 6, Sort.ACCEPT),
            Column("KV %", 5, Sort.KV),
        ]
    used = 1 + sum(column.width + 1 for column in found)
    left = max(size - used - 1, 0)
    if size >= WIDE:
        alarm = left // 2
        found += [
            Column("why", left - alarm - 1, None, right=False),
            Column("alarm", alarm, Sort.ALARM, right=False),
        ]
    else:
        found.append(Column("alarm or why", left, Sort.ALARM, right=False))
    return tuple(found)


def age_s(scene: Scene, row: FleetRow) -> float | None:
    """Seconds since the engine's newest fresh sample, at the scene's moment."""
    fleet = scene.looked.fleet
    if row.age_s is None or fleet.value is None:
        return None
    return row.age_s + max(scene.now_ms - fleet.value.now_utc_ms, 0) / 1000


def stale(scene: Scene, row: FleetRow) -> bool:
    """Whether the row's numbers are the last known ones only."""
    age = age_s(scene, row)
    return age is None or age > STALE_POLLS * row.poll_s + 0.5


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


def heading(scene: Scene, size: int, choice: Choice) -> tuple[Line, Line]:
    """What all engines do together, and the columns' titles with the order marked."""
    rows = scene.looked.rows
    order = choice.sort.value if not choice.backwards else f"{choice.sort.value}, reversed"
    note = [order]
    if choice.words:
        note.insert(0, f'filter "{choice.words}"')
    title = line(Span(totals(rows, scene.glyphs), Role.TITLE))
    first = rule(title, line(Span(", ".join(note), Role.LABEL)), size, scene.glyphs)
    spans = [Span(" ", Role.LABEL)]
    for column in columns(size):
        mark = ""
        if column.sort is choice.sort:
            down = (column.sort not in (Sort.NAME, Sort.MODE)) != choice.backwards
            mark = scene.glyphs.down if down else scene.glyphs.up
        text = f"{column.title}{mark}"
        shown = cut(text, column.width, scene.glyphs)
        shown = f"{shown:>{column.width}}" if column.right else f"{shown:<{column.width}}"
        spans.append(Span(f"{shown} ", Role.TITLE if mark else Role.LABEL))
    return first, pad(line(*spans), size, scene.glyphs)


def totals(rows: Sequence[FleetRow], glyphs: Glyphs) -> str:
    """``200 engines · 3 alarms · 2 overrides · 5 120 req · 201 400 tok/s``."""
    engines = "1 engine" if len(rows) == 1 else f"{len(rows)} engines"
    parts = [engines]
    for count, one, many in (
        (sum(bool(row.alarms) for row in rows), "alarm", "with alarms"),
        (sum(bool(row.gap) for row in rows), "not reached", "not reached"),
        (sum(bool(row.override_by) for row in rows), "override", "overrides"),
    ):
        if count:
            parts.append(f"{count} {one if count == 1 else many}")
    for values, unit in (
        ([row.concurrency for row in rows], "req"),
        ([row.decode_tok_s for row in rows], "tok/s"),
    ):
        known = [value for value in values if value is not None]
        if known:
            parts.append(f"{number(sum(known))} {unit}")
    return f" {glyphs.dot} ".join(parts)


def sort_at(size: int, x: int) -> Sort | None:
    """The order that the column title at cell ``x`` stands for."""
    start = 1
    for column in columns(size):
        if start <= x < start + column.width + 1:
            return column.sort
        start += column.width + 1
    return None


def drawn(
    scene: Scene, size: int, choice: Choice, keys: Sequence[str], cursor: str | None
) -> tuple[Line, ...]:
    """The lines of ``keys``."""
    rows = {row.engine_id: row for row in scene.looked.rows}
    found: list[Line] = []
    for key in keys:
        if key.startswith(GROUP):
            members = [
                row for row in ordered(scene.looked.rows, choice) if row.group == key[len(GROUP) :]
            ]
            found.append(_group_line(scene, size, choice, key, members, key == cursor))
        elif (row := rows.get(key)) is not None:
            found.append(row_line(scene, size, row, key == cursor))
    return tuple(found)


def _group_line(
    scene: Scene,
    size: int,
    choice: Choice,
    key: str,
    members: Sequence[FleetRow],
    selected: bool,
) -> Line:
    glyphs, name = scene.glyphs, key[len(GROUP) :]
    mark = "+" if name in choice.closed else "-"
    head = line(
        Span(glyphs.cursor if selected else " "),
        Span(f"{mark} {name or 'without a group'}", Role.TITLE),
    )
    text = spread(head, line(Span(f"{totals(members, glyphs)} ", Role.LABEL)), size, glyphs)
    return recolour(text, Role.CURSOR) if selected else text


def row_line(scene: Scene, size: int, row: FleetRow, selected: bool) -> Line:
    """One engine."""
    glyphs = scene.glyphs
    old = stale(scene, row)
    spans: list[Span] = [Span(glyphs.cursor if selected else " ")]
    sign, role = mode_sign(scene, row)
    used = None if row.kv_used is None else 100 * row.kv_used
    values = {
        "engine": (row.name or row.engine_id, Role.VALUE),
        "mode": (sign, role),
        "req": (number(row.concurrency), Role.VALUE),
        "tok/s": (number(row.decode_tok_s), Role.TEXT),
        "accept": (number(row.accept_length, 2), Role.TEXT),
        "KV %": (number(used, 1), Role.TEXT),
        "why": (row.text or MISSING, Role.TEXT),
    }
    trouble, trouble_role = wrong(scene, row)
    values["alarm"] = (trouble or MISSING, trouble_role if trouble else Role.LABEL)
    why = row.text or MISSING
    values["alarm or why"] = (trouble, trouble_role) if trouble else (why, Role.TEXT)
    for column in columns(size):
        text, kind = values[column.title]
        text = cut(text, column.width, glyphs)
        blank = " " * (column.width - cells(text))
        text = f"{blank}{text}" if column.right else f"{text}{blank}"
        if old and column.title not in ("engine", "alarm", "alarm or why"):
            kind = Role.STALE
        spans.append(Span(f"{text} ", kind))
    text_line = pad(line(*spans), size, glyphs)
    return recolour(text_line, Role.CURSOR) if selected else text_line


def mode_sign(scene: Scene, row: FleetRow) -> tuple[str, Role]:
    """The confirmed tier with its shape; what was asked for beside it until it is confirmed."""
    glyphs = scene.glyphs
    speculating = [tier for tier in row.tiers if tier != OFF]
    tier = row.confirmed
    if tier is None:
        word = f"{glyphs.unknown} {row.desired or MISSING}"
        return (word if not row.gap else f"{glyphs.unknown} unseen"), Role.WARNING
    if row.asked is not None and row.asked != tier:
        return f"{tier}{glyphs.arrow}{row.asked}", Role.WARNING
    if tier == OFF:
        return f"{glyphs.off} {tier}", Role.OFF
    if speculating and tier != speculating[0]:
        return f"{glyphs.middle} {tier}", Role.MIDDLE
    return f"{glyphs.on} {tier}", Role.ON


def wrong(scene: Scene, row: FleetRow) -> tuple[str, Role]:
    """What a person must know of this engine, worst first; "" if there is nothing."""
    mark = scene.glyphs.alarm
    if row.alarms:
        more = f" (+{len(row.alarms) - 1})" if len(row.alarms) > 1 else ""
        return f"{mark} {row.alarms[0].text}{more}", Role.ALARM
    if row.gap:
        age = age_s(scene, row)
        return f"{mark} STALE {seconds(age)}: {row.gap}", Role.ALARM
    if row.plugin not in (None, PluginStatus.PRESENT):
        return f"{mark} plugin {row.plugin.value}: observed only", Role.WARNING
    if stale(scene, row):
        age = age_s(scene, row)
        return f"{mark} STALE {seconds(age)}" if age is not None else "no data yet", Role.WARNING
    if row.override_by:
        left = row.override_left_s
        fleet = scene.looked.fleet.value
        if left is not None and fleet is not None:
            left = max(left - max(scene.now_ms - fleet.now_utc_ms, 0) / 1000, 0)
        # Not as 03:41, which reads as a time of day where nothing stands beside it.
        ends = MISSING if left is None else seconds(left)
        return f"OVERRIDE {ends} {scene.glyphs.dot} {row.override_by}", Role.WARNING
    if row.stance in (Stance.PAUSED, Stance.SHADOW):
        return f"{row.stance.value.upper()} {row.text}", Role.WARNING
    if row.warnings:
        return f"{mark} {row.warnings[0]}", Role.WARNING
    return "", Role.TEXT


def empty(scene: Scene, size: int, choice: Choice) -> tuple[Line, ...]:
    """What stands in place of rows."""
    fleet = scene.looked.fleet
    if choice.words and scene.looked.rows:
        text = f'no engine matches "{choice.words}": esc clears the filter'
    elif fleet.trouble:
        text = fleet.trouble
    elif fleet.value is None:
        text = "reading the engines"
    else:
        text = "this control plane looks after no engine: specdeck serve --engine URL"
    return (pad(line(Span(f" {text}", Role.LABEL)), size, scene.glyphs),)


def side(scene: Scene, size: int, height: int, key: str | None) -> tuple[Line, ...]:
    """The selected engine in full, for a wide terminal."""
    rows = {row.engine_id: row for row in scene.looked.rows}
    row = rows.get(key or "")
    title = MISSING if row is None else row.name or row.engine_id
    found: list[Line] = [rule((Span(title, Role.TITLE),), (), size, scene.glyphs)]
    if row is not None:
        found += _facts(scene, row, size)
    return tuple(pad(one, size, scene.glyphs) for one in found[:height])


def _facts(scene: Scene, row: FleetRow, size: int) -> list[Line]:
    age = age_s(scene, row)
    pairs: list[tuple[str, str, Role]] = [
        ("id", row.engine_id, Role.TEXT),
        ("group", row.group or MISSING, Role.TEXT),
        ("model", row.model or MISSING, Role.TEXT),
        ("confirmed", f"{row.confirmed or MISSING} for {seconds(row.tier_age_s)}", Role.TEXT),
        ("desired", row.desired or MISSING, Role.TEXT),
        ("automation", f"{row.stance or MISSING}, {row.policy or MISSING}", Role.TEXT),
        ("override", wrong_override(row), Role.TEXT),
        ("running", f"{number(row.concurrency)} req, {number(row.queued)} queued", Role.TEXT),
        ("age", seconds(age), Role.WARNING if stale(scene, row) else Role.TEXT),
        ("why", row.text or MISSING, Role.TEXT),
    ]
    pairs += [("alarm", alarm.text, Role.ALARM) for alarm in row.alarms]
    pairs += [("warning", text, Role.WARNING) for text in row.warnings]
    if row.gap:
        pairs.append(("gap", row.gap, Role.ALARM))
    if row.simulated:
        pairs.append(("times", "SIMULATED", Role.WARNING))
    lines: list[Line] = []
    for label, text, role in pairs:
        parts = wrap(text, max(size - 13, 8)) or [MISSING]
        lines += [
            line(Span(fill(f" {label if place == 0 else ''}", 12), Role.LABEL), Span(part, role))
            for place, part in enumerate(parts)
        ]
    return lines


def wrong_override(row: FleetRow) -> str:
    """``by op1, 03:41 left``; "none" without one."""
    if not row.override_by:
        return "none"
    return f"by {row.override_by}, {countdown(row.override_left_s)} left"
