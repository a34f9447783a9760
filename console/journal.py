"""The list of everything that happened to one engine, filtered.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from console.events import EngineChange, GapSpan, JournalHole, Log, Logged
from console.log import details, entry_line, outcome_words
from console.matching import matches
from console.scene import Scene
from console.spans import Line, Role, Span, line, pad, rule
from store.records import Decision, Outcome


class Kind(StrEnum):
    """Which entries are listed."""

    ALL = "all"
    AUTOMATION = "automation"
    PEOPLE = "people"
    ENGINE = "engine's own"
    TROUBLE = "refused, gaps"


@dataclass(frozen=True, slots=True)
class Sieve:
    """What is listed."""

    kind: Kind = Kind.ALL
    words: str = ""

    def next_kind(self) -> Sieve:
        """The next kind."""
        every = tuple(Kind)
        return Sieve(every[(every.index(self.kind) + 1) % len(every)], self.words)


def is_kind(entry: Logged, kind: Kind) -> bool:
    """Whether the entry is of that kind."""
    event = entry.event
    match kind:
        case Kind.ALL:
            return True
        case Kind.AUTOMATION:
            return isinstance(event, Decision) and event.author == "auto"
        case Kind.PEOPLE:
            return isinstance(event, Decision) and event.author != "auto"
        case Kind.ENGINE:
            return isinstance(event, EngineChange | JournalHole)
        case Kind.TROUBLE:
            bad = (Outcome.REFUSED, Outcome.TIMED_OUT)
            refused = isinstance(event, Decision) and event.outcome in bad
            return refused or isinstance(event, GapSpan | JournalHole)


def sifted(scene: Scene, sieve: Sieve) -> Log:
    """The entries that are listed, newest first."""
    return tuple(
        entry
        for entry in scene.board.log
        if is_kind(entry, sieve.kind)
        and (not sieve.words or matches(sieve.words, _words(scene, entry)))
    )


def _words(scene: Scene, entry: Logged) -> list[str]:
    texts = [text for _, text in details(scene, entry)]
    event = entry.event
    if isinstance(event, Decision):
        texts += [event.from_tier or "", event.to_tier, outcome_words(event)]
    if isinstance(event, GapSpan):
        texts.append("gap")
    return texts


def heading(scene: Scene, size: int, sieve: Sieve, shown: int) -> tuple[Line, ...]:
    """The list's rule: what is listed, of how many."""
    total = len(scene.board.log)
    words = f"decisions {scene.glyphs.dot} {sieve.kind.value}"
    note = f"{shown} of {total}"
    if sieve.words:
        note = f'filter "{sieve.words}" {scene.glyphs.dot} {note}'
    return (rule((Span(words, Role.TITLE),), line(Span(note, Role.LABEL)), size, scene.glyphs),)


def drawn(scene: Scene, size: int, keys: Sequence[str], cursor: str | None) -> tuple[Line, ...]:
    """The entries of ``keys``."""
    known = {entry.key: entry for entry in scene.board.log}
    return tuple(
        pad(entry_line(scene, known[key], size, key == cursor), size, scene.glyphs)
        for key in keys
        if key in known
    )


def found(scene: Scene, key: str | None) -> Logged | None:
    """The entry with that key."""
    return next((entry for entry in scene.board.log if entry.key == key), None)
