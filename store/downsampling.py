"""Down-sampling: of an engine's old ticks one in so many seconds stays.

Kept are the first tick of each stretch of ``every_ms``, the ticks at which something was decided
and the newest.  The inputs go as well, and without them verdicts cannot be verified; a marker of
kind ``downsampled`` says so for the range, in the database and in every session exported from it.
What is left whole begins at a checkpoint, so that everything from there on can be verified.

Whether a tick stays depends on nothing but the tick before it: one step or many come to the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, func, update
from sqlmodel import col, select

from store.document_writes import add_row
from store.documents import document, record
from store.marks import AUTHOR, DOWNSAMPLED
from store.records import InputKind, Marker
from store.retention import FOR_EVER, Retention, Sessions
from store.tables import DecisionRow, InputRow, MarkerRow, TickRow


class Downsampling:
    """One engine's ticks, from where an earlier run ended to the last checkpoint that is old."""

    def __init__(self, ref: int, engine_id: str, before: int, retention: Retention) -> None:
        self._ref = ref
        self._engine_id = engine_id
        self._before = before
        self._every_ms = max(retention.every_ms, 1)
        self._marker: Marker | None = None
        self._limit: int | None = None
        self.removed = 0

    def step(self, connection: Connection, sessions: Sessions, rows: int) -> bool:
        """Look at so many ticks in the open transaction; False once all is done."""
        self._marker = self._newest_marker(connection)
        if self._limit is None:
            self._limit = self._last_old(connection)
        done = 0 if self._marker is None else self._marker.last_seq or 0
        for first, last in sessions.between(self._ref, done + 1, self._limit):
            found = self._ticks(connection, first, last, rows)
            old = self._old(found)
            if old:
                self._thin(connection, old, follows=first == done + 1)
                return len(old) == rows or last < self._limit
            if found:
                return False
        return False

    def _ticks(
        self, connection: Connection, first: int, last: int, rows: int
    ) -> Sequence[tuple[int, int, int]]:
        found = connection.execute(
            select(TickRow.id, TickRow.seq, TickRow.at_utc_ms)
            .where(TickRow.engine_ref == self._ref, col(TickRow.seq).between(first, last))
            .order_by(col(TickRow.seq))
            .limit(rows)
        ).all()
        return [(int(row_id), int(seq), int(at)) for row_id, seq, at in found]

    def _old(self, found: Sequence[tuple[int, int, int]]) -> Sequence[tuple[int, int, int]]:
        """Without checkpoints nothing but the time of the ticks says where to end."""
        if self._limit != FOR_EVER:
            return found
        young = next((at for at, one in enumerate(found) if one[2] >= self._before), len(found))
        return found[:young]

    def _thin(
        self, connection: Connection, ticks: Sequence[tuple[int, int, int]], *, follows: bool
    ) -> None:
        first, last = ticks[0][1], ticks[-1][1]
        stay = self._decided(connection, first, last) | {self._newest(connection)}
        stretch = self._stretch_before(connection, first)
        doomed = []
        for row_id, seq, at_utc_ms in ticks:
            same = at_utc_ms // self._every_ms == stretch
            stretch = at_utc_ms // self._every_ms
            if same and seq not in stay and at_utc_ms < self._before:
                doomed.append(row_id)
        if doomed:
            connection.execute(delete(TickRow).where(col(TickRow.id).in_(doomed)))
        # The checkpoint at which the whole part began until now is within the range by now.
        begun = self._marker.last_seq if follows and self._marker is not None else None
        connection.execute(
            delete(InputRow).where(
                col(InputRow.engine_ref) == self._ref,
                col(InputRow.after_seq).between(first if begun is None else begun, last),
                col(InputRow.after_seq) < (self._limit or 0),
                col(InputRow.kind) != str(InputKind.CONFIG),
            )
        )
        self.removed += len(doomed)
        self._mark(connection, first, last, ticks[0][2], follows=follows)

    def _decided(self, connection: Connection, first: int, last: int) -> set[int]:
        return set(
            connection.execute(
                select(DecisionRow.seq).where(
                    DecisionRow.engine_id == self._engine_id,
                    col(DecisionRow.seq).between(first, last),
                )
            ).scalars()
        )

    def _newest(self, connection: Connection) -> int:
        """The sequence goes on from there, so it stays."""
        newest = select(func.max(TickRow.seq)).where(TickRow.engine_ref == self._ref)
        return int(connection.execute(newest).scalar() or 0)

    def _stretch_before(self, connection: Connection, first: int) -> int | None:
        at = connection.execute(
            select(TickRow.at_utc_ms)
            .where(TickRow.engine_ref == self._ref, col(TickRow.seq) < first)
            .order_by(col(TickRow.seq).desc())
            .limit(1)
        ).scalar()
        return None if at is None else int(at) // self._every_ms

    def _last_old(self, connection: Connection) -> int:
        checkpoints = select(func.max(InputRow.after_seq)).where(
            col(InputRow.engine_ref) == self._ref,
            col(InputRow.kind) == str(InputKind.CHECKPOINT),
        )
        if connection.execute(checkpoints).scalar() is None:
            return FOR_EVER
        old = checkpoints.where(col(InputRow.at_utc_ms) < self._before)
        return int(connection.execute(old).scalar() or 0)

    # the marker

    def _newest_marker(self, connection: Connection) -> Marker | None:
        rows = connection.execute(
            select(MarkerRow.id, MarkerRow.body)
            .where(MarkerRow.engine_id == self._engine_id)
            .order_by(col(MarkerRow.id).desc())
        )
        for row_id, body in rows:
            if f'"kind":"{DOWNSAMPLED}"' in body:
                marker = record(Marker, body, row_id)
                if marker.kind == DOWNSAMPLED and marker.author == AUTHOR:
                    return marker
        return None

    def _mark(
        self, connection: Connection, first: int, last: int, at_utc_ms: int, *, follows: bool
    ) -> None:
        text = f"down-sampled: one tick per {self._every_ms / 1000:g} s is kept"
        known = self._marker
        if known is not None and follows and known.text == text:
            body = document(known.model_copy(update={"last_seq": last}))
            changed = update(MarkerRow).where(col(MarkerRow.id) == known.id).values(body=body)
            connection.execute(changed)
            return
        marker = Marker(
            engine_id=self._engine_id,
            at_utc_ms=at_utc_ms,
            seq=first,
            last_seq=last,
            kind=DOWNSAMPLED,
            author=AUTHOR,
            text=text,
        )
        add_row(
            connection,
            MarkerRow,
            engine_id=marker.engine_id,
            seq=marker.seq,
            at_utc_ms=marker.at_utc_ms,
            body=document(marker),
        )
