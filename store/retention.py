"""How long what is kept, and what a session keeps for ever."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, func
from sqlmodel import col, select

from store.documents import record
from store.records import InputKind, SessionRecord
from store.tables import EngineRefRow, InputRow, SessionRow

FOR_EVER = 2**63 - 1
"""End of a session that is still being recorded."""


@dataclass(frozen=True)
class Retention:
    """What goes: rows from before a time, in milliseconds since 1970; None: none of that kind.

    Args:
        ticks: ticks, and the inputs of their controllers.
        scrapes: raw scrapes.
        history: decisions, engine switches and overrides that have ended.
        downsample: of ticks from before this one in ``every_ms`` stays.
        whole: look at every row.  Otherwise a look at rows in the order they were written ends with
            the first young ones, which misses what was written while a clock was wrong.
    """

    ticks: int | None = None
    scrapes: int | None = None
    history: int | None = None
    downsample: int | None = None
    every_ms: int = 10_000
    whole: bool = True


Ranges = list[tuple[int, int]]


class Sessions:
    """What named sessions keep: observations by engine number, and times by engine id."""

    def __init__(self, seqs: Mapping[int, Ranges], times: Mapping[str, Ranges]) -> None:
        self._seqs = {ref: _merged(ranges) for ref, ranges in seqs.items()}
        self._times = {name: _merged(ranges) for name, ranges in times.items()}
        self._refs: dict[str, int] = {}

    @classmethod
    def read(cls, connection: Connection) -> Sessions:
        """Those there are now.

        An exported session begins at the last checkpoint before it, so that is kept too.
        """
        rows = connection.execute(select(EngineRefRow.engine_id, EngineRefRow.ref)).all()
        refs = {str(name): int(ref) for name, ref in rows}
        seqs: dict[int, Ranges] = {}
        times: dict[str, Ranges] = {}
        for row_id, body in connection.execute(select(SessionRow.id, SessionRow.body)).all():
            one = record(SessionRecord, body, row_id)
            until = FOR_EVER if one.ended_utc_ms is None else one.ended_utc_ms
            times.setdefault(one.engine_id, []).append((one.started_utc_ms, until))
            ref = refs.get(one.engine_id)
            if ref is not None:
                first = max(one.first_seq, 1)
                last = FOR_EVER if one.last_seq is None else one.last_seq
                seqs.setdefault(ref, []).append((_beginning(connection, ref, first), last))
        found = cls(seqs, times)
        found._refs = refs
        return found

    def keep(self, ref: int, seq: int) -> bool:
        """Whether an observation belongs to one."""
        return _within(self._seqs.get(ref, []), seq)

    def keep_of(self, engine_id: str, seq: int) -> bool:
        """The same by the engine's id."""
        ref = self._refs.get(engine_id)
        return ref is not None and self.keep(ref, seq)

    def keep_time(self, engine_id: str, first_utc_ms: int, last_utc_ms: int) -> bool:
        """Whether one was recorded at any time of this span."""
        spans = self._times.get(engine_id, [])
        return any(first <= last_utc_ms and first_utc_ms <= last for first, last in spans)

    def between(self, ref: int, first: int, last: int) -> Ranges:
        """The parts of a range of observations that belong to none, in order."""
        free, at = [], first
        for begin, end in self._seqs.get(ref, []):
            if end < at:
                continue
            if begin > last:
                break
            if begin > at:
                free.append((at, begin - 1))
            at = end + 1
        return [*free, (at, last)] if at <= last else free


def _beginning(connection: Connection, ref: int, first: int) -> int:
    known = connection.execute(
        select(func.max(InputRow.after_seq)).where(
            col(InputRow.engine_ref) == ref,
            col(InputRow.after_seq) < first,
            col(InputRow.kind).in_((str(InputKind.CHECKPOINT), str(InputKind.START))),
        )
    ).scalar()
    return first if known is None else int(known)


def _merged(ranges: Ranges) -> Ranges:
    found: Ranges = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        elif first <= last:
            found.append((first, last))
    return found


def _within(ranges: Ranges, value: int) -> bool:
    at = bisect_right(ranges, (value, FOR_EVER))
    return at > 0 and value <= ranges[at - 1][1]
