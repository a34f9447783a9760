"""One entry of the log in full: clauses, evidence, what would have to change.  Pure."""

from __future__ import annotations

from textwrap import wrap

from console.board import load
from console.clauses import wanted_clause
from console.events import Logged
from console.formatting import MISSING, clean, metric, number, seconds, unit_word
from console.log import details
from console.scene import Scene
from console.spans import BLANK, Line, Role, Span, line
from store.observations import Gap, Sample
from store.records import Clause, Decision, Op, Outcome, Tick

Row = tuple[str, str]


def explained(scene: Scene, entry: Logged) -> tuple[Row, ...]:
    """Everything known of an entry, as (label, text) rows."""
    rows = list(details(scene, entry))
    event = entry.event
    if isinstance(event, Decision):
        rows += _labelled("change if", change_if(scene, event))
        rows += evidence(scene, event.seq)
    return tuple(rows)


def change_if(scene: Scene, event: Decision) -> tuple[str, ...]:
    """What would have to be different for another outcome, in sentences."""
    if event.author != "auto":
        return (f"{event.author} asks for something else, or the override ends",)
    found = [_undone(scene, clause) for clause in event.clauses if clause.met]
    if event.outcome in (Outcome.REFUSED, Outcome.TIMED_OUT):
        return (f"the engine takes it: {event.message or 'no reason was given'}",)
    if event.outcome is Outcome.SHADOW:
        found.insert(0, "automation is made active: then it would have been sent")
    return tuple(found) or ("no clause is recorded",)


def _undone(scene: Scene, clause: Clause) -> str:
    """The opposite of a clause that was met, with how far away that was."""
    glyphs = scene.glyphs
    opposite = {
        Op.GE: "<",
        Op.GT: glyphs.at_most,
        Op.LE: ">",
        Op.LT: glyphs.at_least,
        Op.EQ: "not",
    }
    bound = f"{metric(clause.threshold, clause.unit)} {unit_word(clause.unit)}".rstrip()
    text = f"{clause.metric} {opposite[clause.op]} {bound}"
    if clause.value is not None:
        text += f" (was {metric(clause.value, clause.unit)})"
    if clause.needed_s > 0:
        text += f", or for less than {seconds(clause.needed_s)}"
    return text


def evidence(scene: Scene, seq: int) -> list[Row]:
    """What was observed then, and what each other tier still needed."""
    looked = scene.looked.evidence.get(seq)
    if looked is None:
        return [("evidence", f"reading observation {seq}")]
    if looked.trouble:
        return [("evidence", f"could not be read: {looked.trouble}")]
    if looked.value is None:
        return [("evidence", f"observation {seq} is not stored any more")]
    return [*_labelled("evidence", observed(scene, looked.value)), *_others(scene, looked.value)]


def observed(scene: Scene, tick: Tick) -> tuple[str, ...]:
    """The numbers of one observation."""
    seen = tick.observation
    if isinstance(seen, Gap):
        return (f"no answer: {seen.message}",)
    assert isinstance(seen, Sample)
    used = None if seen.kv.used is None else 100 * seen.kv.used
    dot = f" {scene.glyphs.dot} "
    applied = [rank.tier for rank in seen.applied]
    agree = sum(tier == tick.confirmed for tier in applied)
    ranks = f"{agree}/{len(applied)} ranks" if applied else "no rank observed"
    return (
        dot.join(
            (
                f"concurrency {number(load(seen))} req",
                f"queued {number(seen.queued)}",
                f"accept length {number(seen.accept_length, 2)} tok",
                f"KV {number(used, 1)} %",
                f"{number(tick.decode_tok_s)} tok/s",
            )
        ),
        dot.join(
            (
                f"confirmed {tick.confirmed or MISSING} on {ranks}",
                f"desired {tick.desired or MISSING}",
                f"policy v{tick.policy_version}, {tick.stance.value}",
            )
        ),
    )


def _others(scene: Scene, tick: Tick) -> list[Row]:
    texts = []
    for outlook in tick.verdict.outlook:
        needs = " and ".join(wanted_clause(clause, scene.glyphs) for clause in outlook.clauses)
        blocked = f", blocked: {outlook.blocked}" if outlook.blocked else ""
        texts.append(f"{outlook.tier} when {needs or outlook.reason.value}{blocked}")
    return _labelled("other", tuple(texts))


def _labelled(label: str, texts: tuple[str, ...]) -> list[Row]:
    return [(label if place == 0 else "", text) for place, text in enumerate(texts)]


def as_text(scene: Scene, entry: Logged) -> str:
    """The entry for the clipboard: one ``label: text`` per line."""
    name = scene.board.name or scene.board.engine_id
    rows = [("engine", name), *explained(scene, entry)]
    lines: list[str] = []
    for label, text in rows:
        lines.append(f"{label}: {clean(text)}" if label else f"  {clean(text)}")
    return "\n".join(lines) + "\n"


def page(rows: tuple[Row, ...], cells: int) -> tuple[Line, ...]:
    """(label, text) rows as wrapped lines."""
    found: list[Line] = [BLANK]
    for label, text in rows:
        parts = wrap(clean(text), max(cells - 12, 10)) or [""]
        found += [
            line(Span(f" {label if row == 0 else '':<9} ", Role.LABEL), part)
            for row, part in enumerate(parts)
        ]
    return (*found, BLANK)
