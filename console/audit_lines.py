"""The audit: who changed what.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from console.formatting import cells, cut, fill
from console.matching import matches
from console.scene import Scene
from console.spans import Line, Role, Span, line, pad, recolour, rule
from store.records import AuditEntry

ACTOR, ACTION, TARGET = 14, 18, 14
SHORT_ACTOR, SHORT_ACTION = 10, 16


def sifted(scene: Scene, words: str) -> tuple[AuditEntry, ...]:
    """The entries that match, newest first."""
    return tuple(
        entry
        for entry in scene.looked.audit.value or ()
        if matches(words, (entry.actor, entry.action, entry.target, entry.detail))
    )


def heading(scene: Scene, size: int, words: str, shown: int) -> tuple[Line, ...]:
    """The rule and the columns' titles."""
    looked = scene.looked.audit
    total = len(looked.value or ())
    note = f"{shown} of the newest {total}"
    if words:
        note = f'filter "{words}" {scene.glyphs.dot} {note}'
    role = Role.LABEL
    if looked.trouble:
        room = max(size - 14, 8)
        note, role = cut(f"not read: {looked.trouble}", room, scene.glyphs), Role.WARNING
    title = (Span("audit", Role.TITLE),)
    wide = size >= 78
    actor, action = (ACTOR, ACTION) if wide else (SHORT_ACTOR, SHORT_ACTION)
    columns = f" {'when':<15}{'who':<{actor + 1}}{'what':<{action + 1}}"
    columns += f"{'on':<{TARGET + 1}}detail" if wide else "on, detail"
    return (
        rule(title, line(Span(note, role)), size, scene.glyphs),
        pad(line(Span(columns, Role.LABEL)), size, scene.glyphs),
    )


def when(scene: Scene, entry: AuditEntry) -> str:
    """``11-29 12:04:31`` in the scene's zone."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=entry.at_utc_ms)
    return moment.astimezone(scene.zone).strftime("%m-%d %H:%M:%S")


def drawn(
    scene: Scene, size: int, entries: Sequence[AuditEntry], cursor: str | None
) -> tuple[Line, ...]:
    """The entries' lines."""
    glyphs = scene.glyphs
    wide = size >= 78
    actor, action = (ACTOR, ACTION) if wide else (SHORT_ACTOR, SHORT_ACTION)
    found: list[Line] = []
    for entry in entries:
        selected = key(entry) == cursor
        rest = entry.detail if wide else f"{entry.target} {entry.detail}"
        spans = [
            Span(glyphs.cursor if selected else " "),
            Span(f"{when(scene, entry)} ", Role.LABEL),
            Span(f"{fill(entry.actor, actor, glyphs)} ", Role.VALUE),
            Span(f"{fill(entry.action, action, glyphs)} "),
        ]
        if wide:
            spans.append(Span(f"{fill(entry.target, TARGET, glyphs)} ", Role.LABEL))
        room = max(size - sum(cells(span.text) for span in spans), 0)
        spans.append(Span(cut(rest, room, glyphs)))
        row = pad(line(*spans), size, glyphs)
        found.append(recolour(row, Role.CURSOR) if selected else row)
    return tuple(found)


def key(entry: AuditEntry) -> str:
    """The row's key."""
    return str(entry.id)


def rows(scene: Scene, entry: AuditEntry) -> tuple[tuple[str, str], ...]:
    """The entry in full."""
    zone = "" if scene.zone is None else f" {scene.zone}"
    return (
        ("when", f"{when(scene, entry)}{zone}"),
        ("who", entry.actor),
        ("what", entry.action),
        ("on", entry.target),
        ("detail", entry.detail or "-"),
        ("row", str(entry.id)),
    )
