"""Pruning: removes and down-samples what is old, a small step at a time.

``store.retention.Retention`` says what goes.  Policies, markers, sessions, benchmarks and the audit
stay whatever it says, and so does everything that belongs to a named session.  Of the rest

- the newest tick of each engine stays, so that its sequence numbers go on rising;
- inputs that are configurations stay: a checkpoint is read under the last one before it;
- decisions that are not settled and overrides that have not ended stay;
- the newest entries of each engine's journal stay, from which a restart goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, func
from sqlalchemy import select as select_columns
from sqlmodel import col, select

from store.downsampling import Downsampling
from store.records import InputKind, Outcome
from store.retention import Retention, Sessions
from store.tables import (
    DecisionRow,
    EngineRefRow,
    InputRow,
    OverrideRow,
    ScrapeRow,
    SwitchRow,
    TickRow,
    TickTemplateRow,
)

STEP_ROWS = 500
"""Rows looked at in one transaction; other writes come between the steps."""
JOURNAL_KEPT = 1000
"""Newest engine switches of each engine that stay; a restart reads so many."""

_Table = type[TickRow | ScrapeRow | InputRow | DecisionRow | SwitchRow | OverrideRow]


_Kept = Callable[[Connection, Sequence[Any]], set[int]]


class Pruned(NamedTuple):
    """How many rows were removed."""

    ticks: int = 0
    scrapes: int = 0
    history: int = 0
    downsampled: int = 0


class Pruning:
    """One run through the tables.

    Args:
        retention: what goes.
    """

    def __init__(self, retention: Retention) -> None:
        self._retention = retention
        self._sessions: Sessions | None = None
        self._walks: list[_Walk] = []
        self._thinning: list[Downsampling] = []
        self._thinned = 0
        self._gone: dict[str, int] = {}

    @property
    def pruned(self) -> Pruned:
        """What was removed so far."""
        gone = self._gone.get
        history = gone("decisions", 0) + gone("switches", 0) + gone("overrides", 0)
        thinned = self._thinned + sum(one.removed for one in self._thinning)
        return Pruned(gone("ticks", 0), gone("scrapes", 0), history, thinned)

    def step(self, connection: Connection) -> bool:
        """Do one step in the open transaction; False once all is done."""
        if self._sessions is None:
            self._sessions = Sessions.read(connection)
            self._walks = list(_walks(self._retention, self._sessions))
            self._thinning = list(_thinning(connection, self._retention))
        if self._walks:
            walk = self._walks[0]
            name = str(walk.table.__tablename__)
            self._gone[name] = self._gone.get(name, 0) + walk.step(connection)
            if walk.cursor is None:
                self._walks.pop(0)
                if walk.table is TickRow:
                    _drop_templates(connection)
        elif self._thinning:
            thinning = self._thinning[0]
            if not thinning.step(connection, self._sessions, STEP_ROWS):
                self._thinned += thinning.removed
                self._thinning.pop(0)
        return bool(self._walks or self._thinning)


class _Walk:
    """Through one table by id, not by time: a clock that was once wrong does not end it.

    Args:
        columns: the row's id, its time, and what ``stays`` needs.
        stays: whether an old row stays, by its values.
        kept: of rows that would go the ids of those that stay.
    """

    def __init__(
        self,
        table: _Table,
        before: int,
        columns: tuple[Any, ...],
        stays: Callable[[Any], bool],
        *,
        kept: _Kept | None = None,
        whole: bool,
    ) -> None:
        self.table = table
        self.cursor: int | None = 0
        self._before = before
        self._columns = columns
        self._stays = stays
        self._kept = kept
        self._whole = whole

    def step(self, connection: Connection) -> int:
        """Returns the number of rows removed; ``cursor`` is None once all is done."""
        row_id = col(self.table.id)
        wanted = select_columns(*self._columns).where(row_id > self.cursor).order_by(row_id)
        rows = connection.execute(wanted.limit(STEP_ROWS)).all()
        if not rows:
            self.cursor = None
            return 0
        old = [row for row in rows if row[1] is not None and row[1] < self._before]
        self.cursor = int(rows[-1][0])
        if not self._whole and len(rows) == STEP_ROWS and not old:
            self.cursor = None
        doomed = [row for row in old if not self._stays(row)]
        kept = self._kept(connection, doomed) if doomed and self._kept is not None else set()
        ids = [row[0] for row in doomed if row[0] not in kept]
        if ids:
            connection.execute(delete(self.table).where(row_id.in_(ids)))
        return len(ids)


def _walks(retention: Retention, sessions: Sessions) -> Iterable[_Walk]:
    def of_session(row: Any) -> bool:
        return sessions.keep(row[2], row[3])

    whole = retention.whole
    if retention.ticks is not None:
        ticks = (TickRow.id, TickRow.at_utc_ms, TickRow.engine_ref, TickRow.seq)
        inputs = (
            InputRow.id,
            InputRow.at_utc_ms,
            InputRow.engine_ref,
            InputRow.after_seq,
            InputRow.kind,
        )
        yield _Walk(TickRow, retention.ticks, ticks, of_session, kept=_newest_ticks, whole=whole)
        yield _Walk(
            InputRow,
            retention.ticks,
            inputs,
            lambda row: row[4] == str(InputKind.CONFIG) or of_session(row),
            whole=whole,
        )
    if retention.scrapes is not None:
        scrapes = (ScrapeRow.id, ScrapeRow.at_utc_ms, ScrapeRow.engine_ref, ScrapeRow.seq)
        yield _Walk(ScrapeRow, retention.scrapes, scrapes, of_session, whole=whole)
    if retention.history is not None:
        yield from _history(retention.history, sessions, whole)


def _history(before: int, sessions: Sessions, whole: bool) -> Iterable[_Walk]:
    decisions = (
        DecisionRow.id,
        DecisionRow.at_utc_ms,
        DecisionRow.engine_id,
        DecisionRow.seq,
        DecisionRow.outcome,
    )
    yield _Walk(
        DecisionRow,
        before,
        decisions,
        lambda row: row[4] == str(Outcome.REQUESTED) or sessions.keep_of(row[2], row[3]),
        whole=whole,
    )
    switches = (SwitchRow.id, SwitchRow.seen_utc_ms, SwitchRow.engine_id)
    yield _Walk(
        SwitchRow,
        before,
        switches,
        lambda row: sessions.keep_time(row[2], row[1], row[1]),
        kept=_Journals().newest,
        whole=whole,
    )
    overrides = (
        OverrideRow.id,
        OverrideRow.ended_utc_ms,
        OverrideRow.engine_id,
        OverrideRow.created_utc_ms,
    )
    yield _Walk(
        OverrideRow,
        before,
        overrides,
        lambda row: sessions.keep_time(row[2], row[3], row[1]),
        whole=whole,
    )


def _thinning(connection: Connection, retention: Retention) -> Iterable[Downsampling]:
    if retention.downsample is not None:
        rows = connection.execute(select(EngineRefRow.ref, EngineRefRow.engine_id)).all()
        for ref, engine_id in rows:
            yield Downsampling(int(ref), str(engine_id), retention.downsample, retention)


def _newest_ticks(connection: Connection, rows: Sequence[Any]) -> set[int]:
    found = set()
    for ref in {row[2] for row in rows}:
        newest = select(func.max(TickRow.id)).where(TickRow.engine_ref == ref)
        found.add(int(connection.execute(newest).scalar() or 0))
    return found


class _Journals:
    """From which row on an engine's switches stay."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}

    def newest(self, connection: Connection, rows: Sequence[Any]) -> set[int]:
        """The ids of rows that are among the newest of their engines."""
        return {int(row[0]) for row in rows if row[0] >= self._begin(connection, row[2])}

    def _begin(self, connection: Connection, engine_id: str) -> int:
        first = self._first.get(engine_id)
        if first is None:
            newest = (
                select(SwitchRow.id)
                .where(SwitchRow.engine_id == engine_id)
                .order_by(col(SwitchRow.id).desc())
                .limit(JOURNAL_KEPT)
            )
            ids = connection.execute(newest).scalars().all()
            first = self._first[engine_id] = min((int(one) for one in ids if one), default=0)
        return first


def _drop_templates(connection: Connection) -> None:
    """Templates of an engine are used in order, so those before its oldest tick's are free."""
    for ref in connection.execute(select(EngineRefRow.ref)).scalars().all():
        oldest = connection.execute(
            select(TickRow.template_id)
            .where(TickRow.engine_ref == ref, col(TickRow.template_id).is_not(None))
            .order_by(col(TickRow.id))
            .limit(1)
        ).scalar()
        if oldest is not None:
            connection.execute(
                delete(TickTemplateRow).where(
                    col(TickTemplateRow.engine_ref) == ref, col(TickTemplateRow.id) < oldest
                )
            )
