"""What the decision log holds: decisions, the engine's own changes, gaps.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine_patch.contract import JournalEntry
from engine_patch.contract_words import SwitchReason
from store.observations import Gap, Sample
from store.records import Decision, Tick

LOG_LENGTH = 200


@dataclass(frozen=True, slots=True)
class GapSpan:
    """Polls that failed one after another; ``over`` once a sample came again."""

    start_utc_ms: int
    lasted_ms: int
    message: str
    over: bool = False


@dataclass(frozen=True, slots=True)
class EngineChange:
    """A change the engine made by itself, as its journal tells it."""

    entry: JournalEntry


@dataclass(frozen=True, slots=True)
class JournalHole:
    """Entries of the engine's journal that were lost before they were read."""


Event = Decision | EngineChange | GapSpan | JournalHole


@dataclass(frozen=True, slots=True)
class Logged:
    """One entry of the log with the key it is updated and selected by."""

    key: str
    at_utc_ms: int
    event: Event


Log = tuple[Logged, ...]
"""Newest first."""


def logged(log: Log, tick: Tick, step_ms: int) -> Log:
    """The log after ``tick``, which came ``step_ms`` after the one before."""
    seen = tick.observation
    if isinstance(seen, Gap):
        log = _with_gap(log, seen, step_ms)
    else:
        log = _with_sample(log, seen, step_ms)
    for decision in tick.decisions:
        log = with_decision(log, decision)
    return log


def with_decision(log: Log, decision: Decision) -> Log:
    """The log with ``decision``, which replaces what was known of it before.

    A stored decision that is older than what a tick told already must not undo it.
    """
    key = f"decision {decision.seq}"
    for old in log:
        known = old.event
        if old.key == key and isinstance(known, Decision):
            if known.settled_utc_ms is not None and decision.settled_utc_ms is None:
                return log
            break
    return _put(log, Logged(key, decision.at_utc_ms, decision))


def with_switch(log: Log, boot_id: str, entry: JournalEntry, seen_utc_ms: int) -> Log:
    """The log with a change of the engine's own; one that a command asked for is there already."""
    if entry.reason in (SwitchReason.COMMAND, SwitchReason.LAUNCH):
        return log
    key = f"switch {boot_id} {entry.dp_rank} {entry.seq}"
    return _put(log, Logged(key, entry.at_utc_ms or seen_utc_ms, EngineChange(entry)))


def _with_gap(log: Log, gap: Gap, step_ms: int) -> Log:
    index = _running_gap(log)
    if index is None:
        begun = GapSpan(gap.at_utc_ms, 0, gap.message)
        return _put(log, Logged(f"gap {gap.seq}", gap.at_utc_ms, begun))
    return _lengthened(log, index, step_ms, message=gap.message)


def _with_sample(log: Log, sample: Sample, step_ms: int) -> Log:
    index = _running_gap(log)
    if index is not None:
        log = _lengthened(log, index, step_ms, over=True)
    if sample.journal_hole:
        log = _put(log, Logged(f"hole {sample.seq}", sample.at_utc_ms, JournalHole()))
    for entry in sample.switches:
        log = with_switch(log, sample.boot_id or "", entry, sample.at_utc_ms)
    return log


def _running_gap(log: Log) -> int | None:
    for index, entry in enumerate(log):
        if isinstance(entry.event, GapSpan) and not entry.event.over:
            return index
    return None


def _lengthened(
    log: Log, index: int, step_ms: int, message: str | None = None, over: bool = False
) -> Log:
    entry = log[index]
    assert isinstance(entry.event, GapSpan)
    event = replace(
        entry.event,
        lasted_ms=entry.event.lasted_ms + step_ms,
        message=entry.event.message if message is None else message,
        over=over,
    )
    return (*log[:index], replace(entry, event=event), *log[index + 1 :])


def _put(log: Log, entry: Logged) -> Log:
    """The log with ``entry`` in place of its older version, else in its place by time."""
    for index, old in enumerate(log):
        if old.key == entry.key:
            return (*log[:index], entry, *log[index + 1 :])
    place = next((i for i, old in enumerate(log) if old.at_utc_ms <= entry.at_utc_ms), len(log))
    return (*log[:place], entry, *log[place:])[:LOG_LENGTH]
