"""Every engine in a row: what runs, why, load, alarms.  Pure.

In which order they stand is in ``console.fleet_choice``, what is said of each one in
``console.fleet_row``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap

from console.fleet_choice import GROUP, Choice, Sort, ordered
from console.fleet_row import age_s, mode_sign, stale, wrong, wrong_override
from console.formatting import MISSING, Glyphs, cells, cut, fill, number, seconds
from console.scene import Scene
from console.spans import Line, Role, Span, line, pad, recolour, rule, spread
from controlplane.messages import FleetRow

WIDE = 110
"""From so many cells on, what runs and what is wrong have columns of their own."""


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
