"""The decision log in words: one line per entry, and everything known of one entry.  Pure."""

from __future__ import annotations

from console.clauses import reason_clause, reasons
from console.events import EngineChange, GapSpan, JournalHole, Logged
from console.formatting import (
    MISSING,
    Glyphs,
    cells,
    clock,
    fill,
    fit,
    milliseconds,
    number,
    seconds,
)
from console.scene import Scene
from console.spans import Line, Role, Span, line, pad, recolour, rule
from engine_patch.tier import TierName
from store.records import Decision, Outcome

CHANGE, AUTHOR, OUTCOME = 17, 8, 9
"""Widths of the log's columns in cells; the reason takes what is left."""
NARROW_CHANGE, NARROW_OUTCOME = 15, 7
NARROW = 78
"""Under so many cells the author stands before the reason, and latencies are left out."""

_WORDS = {
    Outcome.REQUESTED: "asked",
    Outcome.CONFIRMED: "ok",
    Outcome.REFUSED: "refused",
    Outcome.TIMED_OUT: "timed out",
    Outcome.SHADOW: "shadow",
    Outcome.SUPERSEDED: "replaced",
}
_BAD = (Outcome.REFUSED, Outcome.TIMED_OUT)


def heading(scene: Scene, size: int, newer: int = 0) -> Line:
    """The log's rule with its keys.

    Args:
        newer: entries above the first one that is shown.
    """
    keys = Span(f"{scene.glyphs.up}{scene.glyphs.down} select, enter why", Role.LABEL)
    if newer:
        keys = Span(f"{newer} newer, esc shows them", Role.WARNING)
    return rule(
        (Span("decisions", Role.TITLE),),
        (keys,),
        size,
        scene.glyphs,
    )


def rows(scene: Scene, size: int, first: int, count: int, cursor: str | None) -> tuple[Line, ...]:
    """``count`` entries from the ``first``; the one with key ``cursor`` is marked."""
    log = scene.board.log
    if not log:
        return (pad(line(Span(" none yet", Role.LABEL)), size),)
    return tuple(
        pad(entry_line(scene, entry, size, entry.key == cursor), size, scene.glyphs)
        for entry in log[first : first + count]
    )


def entry_line(scene: Scene, entry: Logged, size: int, selected: bool) -> Line:
    """``12:00:19  s1k1d2 → s3k1d4  auto  concurrency 15 < 16 req held 5.0s  ok 184ms``."""
    glyphs = scene.glyphs
    change, author, texts, outcome, role = _parts(scene, entry)
    at = clock(entry.at_utc_ms, scene.zone)
    if size < NARROW:
        change, author_cells = fill(" ".join(change.split()), NARROW_CHANGE, glyphs), 0
        outcome = f"{outcome.split(' ')[0]:>{NARROW_OUTCOME}}"
        if author not in ("auto", MISSING):
            texts = tuple(f"{author}: {text}" for text in texts)
    else:
        change, author_cells = fill(change, CHANGE, glyphs), AUTHOR + 1
        outcome = f"{outcome:>{OUTCOME}}"
    used = 1 + 8 + 2 + cells(change) + 1 + author_cells + 1 + cells(outcome) + 1
    room = max(size - used, 0)
    spans = line(
        Span(glyphs.cursor if selected else " "),
        Span(f"{at}  ", Role.LABEL),
        Span(f"{change} ", role),
        Span(fill(author, author_cells - 1, glyphs) + " " if author_cells else "", Role.LABEL),
        Span(fill(fit(room, *texts, glyphs=glyphs), room, glyphs)),
        Span(f" {outcome} ", role),
    )
    return recolour(spans, Role.CURSOR) if selected else spans


def change_words(before: TierName | None, after: TierName | None, glyphs: Glyphs) -> str:
    """``s1k1d2  → s3k1d4``."""
    return f"{before or MISSING:<7} {glyphs.arrow} {after or MISSING}"


def _parts(scene: Scene, entry: Logged) -> tuple[str, str, tuple[str, ...], str, Role]:
    """Change, author, reason wordings (longest first), outcome and role of an entry."""
    event, glyphs = entry.event, scene.glyphs
    if isinstance(event, GapSpan):
        lasted = seconds(event.lasted_ms / 1000)
        state = "" if event.over else " so far"
        text = f"{event.message}, mode held"
        return f"gap {lasted}{state}", MISSING, (text, event.message), MISSING, Role.WARNING
    if isinstance(event, JournalHole):
        text = "entries of the engine's journal were lost"
        return "journal hole", MISSING, (text,), MISSING, Role.WARNING
    if isinstance(event, EngineChange):
        change = change_words(event.entry.from_tier, event.entry.to_tier, glyphs)
        return change, "engine", (engine_reason(event),), "ok", Role.TEXT
    change = change_words(event.from_tier, event.to_tier, glyphs)
    role = Role.ALARM if event.outcome in _BAD else Role.TEXT
    return change, event.author, decision_texts(event, glyphs), outcome_words(event), role


def engine_reason(change: EngineChange) -> str:
    """``batch up at 24 running``."""
    entry = change.entry
    text = f"{entry.reason.value.replace('_', ' ')} at {entry.batch} running"
    if entry.accept_length is not None:
        text += f", accept length {entry.accept_length:.2f} tok"
    return text


def decision_texts(decision: Decision, glyphs: Glyphs) -> tuple[str, ...]:
    """Why it was taken, or on a refusal why it was not obeyed; longest wording first."""
    if decision.outcome in _BAD and decision.message:
        return (decision.message,)
    texts = reasons(decision.clauses, glyphs)
    if decision.text:
        texts = (*texts, decision.text)
    if decision.clauses:
        texts = (*texts, reason_clause(decision.clauses[0], glyphs, unit=False))
    return texts or (decision.reason.value.replace("_", " "),)


def outcome_words(decision: Decision) -> str:
    """``ok 184ms``, ``refused``, ``timed out``, ``asked``, ``shadow``."""
    word = _WORDS[decision.outcome]
    if decision.outcome is Outcome.CONFIRMED and decision.latency_ms is not None:
        return f"{word} {milliseconds(decision.latency_ms)}"
    return word


def details(scene: Scene, entry: Logged) -> tuple[tuple[str, str], ...]:
    """Everything known of an entry, as (label, text) rows."""
    event = entry.event
    at = clock(entry.at_utc_ms, scene.zone)
    if isinstance(event, GapSpan):
        lasted = seconds(event.lasted_ms / 1000)
        return (
            ("from", at),
            ("lasted", lasted if event.over else f"{lasted} so far"),
            ("reason", event.message),
        )
    if isinstance(event, JournalHole):
        return (("seen", at), ("meaning", "the engine switched and its record of it is gone"))
    if isinstance(event, EngineChange):
        return (
            ("at", f"{at}, decode step {number(event.entry.step)}"),
            ("change", change_words(event.entry.from_tier, event.entry.to_tier, scene.glyphs)),
            ("by", f"the engine itself, DP replica {event.entry.dp_rank}"),
            ("reason", engine_reason(event)),
            ("order", f"epoch {event.entry.epoch}, generation {event.entry.generation}"),
            ("journal", f"entry {event.entry.seq}"),
        )
    return _decision_details(scene, event, at)


def _decision_details(scene: Scene, event: Decision, at: str) -> tuple[tuple[str, str], ...]:
    found = [
        ("at", f"{at}, observation {event.seq}"),
        ("change", change_words(event.from_tier, event.to_tier, scene.glyphs)),
        ("by", event.author),
        ("reason", f"{event.reason.value.replace('_', ' ')}: {event.text}"),
    ]
    for index, clause in enumerate(event.clauses):
        mark = "met" if clause.met else "not met"
        text = f"{mark}: {reason_clause(clause, scene.glyphs)}"
        found.append(("clauses" if index == 0 else "", text))
    tries = "" if event.attempts < 2 else f" after {event.attempts} attempts"
    found.append(("outcome", f"{outcome_words(event)}{tries}"))
    if event.message:
        found.append(("message", event.message))
    if event.generation:
        found.append(("order", f"epoch {event.epoch}, generation {event.generation}"))
    return tuple(found)
