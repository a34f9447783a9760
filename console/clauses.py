"""Clauses and outlooks in words: why the policy answers as it does, what else it waits for.  Pure.

Everything printed here was evaluated by the policy; the console computes no condition of its own.
"""

from __future__ import annotations

from console.formatting import Glyphs, metric, number, seconds, unit_word
from console.trend import progress
from store.records import Clause, Op, Outlook


def comparison(clause: Clause, glyphs: Glyphs, unit: bool = True) -> str:
    """``concurrency 12.4 < 16 req``; a missing value is "-"."""
    value = metric(clause.value, clause.unit)
    return f"{clause.metric} {value} {_bound(clause, glyphs, unit)}"


def _bound(clause: Clause, glyphs: Glyphs, unit: bool = True) -> str:
    sign = {Op.GE: glyphs.at_least, Op.LE: glyphs.at_most}.get(clause.op, clause.op.value)
    text = f"{sign} {metric(clause.threshold, clause.unit)}"
    return f"{text} {unit_word(clause.unit)}".rstrip() if unit else text


def reason_clause(clause: Clause, glyphs: Glyphs, unit: bool = True) -> str:
    """A clause a verdict rests on: ``concurrency 12.4 < 16 req held 5.0s``."""
    text = comparison(clause, glyphs, unit)
    if clause.needed_s <= 0:
        return text if clause.met else f"{text} (not met)"
    if clause.met:
        return f"{text} held {seconds(clause.held_s)}"
    return f"{text} held {held_of_needed(clause)}"


def reasons(clauses: tuple[Clause, ...], glyphs: Glyphs) -> tuple[str, ...]:
    """All clauses of a verdict in one line, longest wording first; nothing without clauses."""
    if not clauses:
        return ()
    joint = f" {glyphs.dot} "
    return tuple(
        joint.join(reason_clause(clause, glyphs, unit) for clause in clauses)
        for unit in (True, False)
    )


def held_of_needed(clause: Clause) -> str:
    """``1.9/5.0s``."""
    return f"{number(clause.held_s, 1)}/{seconds(clause.needed_s)}"


def wanted_clause(clause: Clause, glyphs: Glyphs, unit: bool = True) -> str:
    """A clause another tier still needs: ``concurrency ≥ 24 req for 5.0s``."""
    text = f"{clause.metric} {_bound(clause, glyphs, unit)}"
    return f"{text} for {seconds(clause.needed_s)}" if clause.needed_s > 0 else text


def binding(outlook: Outlook) -> Clause | None:
    """The clause furthest from being met; None if all are."""
    open_clauses = [clause for clause in outlook.clauses if not clause.met]
    return min(open_clauses, key=_share, default=None)


def _share(clause: Clause) -> float:
    return clause.held_s / clause.needed_s if clause.needed_s > 0 else 0.0


def wanted(outlook: Outlook, glyphs: Glyphs) -> tuple[str, ...]:
    """What the tier needs, longest wording first: all clauses, then the binding one alone."""
    if not outlook.clauses:
        return (outlook.reason.value.replace("_", " "),)
    everything = " and ".join(wanted_clause(clause, glyphs) for clause in outlook.clauses)
    first = binding(outlook) or outlook.clauses[0]
    others = len(outlook.clauses) - 1
    note = f" (+{others})" if others else ""
    return (
        everything,
        f"{wanted_clause(first, glyphs)}{note}",
        f"{wanted_clause(first, glyphs, unit=False)}{note}",
        f"{first.metric} {_bound(first, glyphs, unit=False)}{note}",
    )


def building(outlook: Outlook, with_bar: bool = True) -> str:
    """How far it has come: ``[####------] 1.9/5.0s``, ``not building``, or what blocks it."""
    if outlook.blocked:
        return outlook.blocked
    clause = binding(outlook)
    if clause is None:
        bar, words = progress(1, 1), "ready"
    elif clause.needed_s <= 0 or clause.held_s <= 0:
        bar, words = progress(0, 1), "not building"
    else:
        bar, words = progress(clause.held_s, clause.needed_s), held_of_needed(clause)
    return f"{bar} {words}" if with_bar else words
