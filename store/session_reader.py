"""Reading a session file: always read-only, with or without its write-ahead log.

A row that cannot be read is skipped and counted, so that one bad sector does not hide a night.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from pydantic import BaseModel

from store import session_scrapes, session_track
from store.documents import expand
from store.errors import StoreCorrupt
from store.measurements import BenchmarkPoint, CostTable
from store.policies import PolicyConfig
from store.records import (
    ControlInput,
    Decision,
    EngineRecord,
    EngineSwitch,
    InputKind,
    Marker,
    Override,
    RawScrape,
    Tick,
)
from store.session_rows import tick_rows
from store.session_schema import open_read_only
from store.session_tables import DAMAGED, SessionTables
from store.session_track import Track
from store.session_writer import KINDS
from store.tick_codec import tick_of, unpack_text

_Model = TypeVar("_Model", bound=BaseModel)
LAST = 2**63 - 1


class SessionFile(SessionTables):
    """One recording, opened read-only.  Use ``SessionFile.open``; safe from several threads."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        super().__init__(path, connection)
        self.meta: dict[str, str] = dict(self._all("meta", "SELECT key, value FROM meta"))
        """What is known about the recording; ``docs/sessions.md`` lists the keys."""
        self.first_seq, self.last_seq = self._ends()

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open a file.

        Raises:
            StoreError: it does not exist, is none of ours, or needs a newer specdeck.
        """
        place = Path(path)
        connection = open_read_only(place)
        try:
            return cls(place, connection)
        except BaseException:
            connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def engine_id(self) -> str:
        """The engine that was recorded."""
        return self.meta.get("engine_id", "")

    @property
    def complete(self) -> bool:
        """Whether the recording was ended; False after a kill."""
        return self.meta.get("complete") == "1"

    def count(self) -> int:
        """Ticks in the file, unreadable ones included."""
        return int(self._rows("SELECT count(*) FROM ticks")[0][0])

    def _ends(self) -> tuple[int | None, int | None]:
        """The first and the last sequence number that can be read."""
        try:
            first, last = self._rows("SELECT min(seq), max(seq) FROM ticks")[0]
        except StoreCorrupt:
            first, last = "", ""
        if all(end is None or isinstance(end, int) for end in (first, last)):
            return first, last
        seqs = [row[0] for row in tick_rows(self._rows, lambda *_: None, 0, LAST, LAST)]
        return (seqs[0], seqs[-1]) if seqs else (None, None)

    # ticks

    def ticks(self, first: int = 0, last: int = LAST, *, limit: int = 1000) -> list[Tick]:
        """Ticks of a range of sequence numbers, both ends included, oldest first.

        A tick's id is its sequence number here.
        """
        found = []
        for seq, at_utc_ms, is_gap, text in self.texts(first, last, limit=limit):
            try:
                tick = tick_of(text, row_id=seq, seq=seq, at_utc_ms=at_utc_ms, is_gap=is_gap)
            except DAMAGED as error:
                self._skip("ticks", seq, error)
                continue
            found.append(tick)
        return found

    def tick(self, seq: int) -> Tick | None:
        """The tick at ``seq`` or the last one before it."""
        rows = self._rows("SELECT max(seq) FROM ticks WHERE seq <= ?", seq)
        at = rows[0][0] if rows else None
        found = [] if at is None else self.ticks(at, at, limit=1)
        return found[0] if found else None

    def texts(
        self, first: int = 0, last: int = LAST, *, limit: int | None = None
    ) -> Iterator[tuple[int, int, bool, bytes]]:
        """(seq, time, is a gap, text) of a range of ticks; see ``store.tick_codec``."""
        wanted = LAST if limit is None else limit
        skip = partial(self._skip, "ticks")
        for seq, at_utc_ms, is_gap, template, body in tick_rows(
            self._rows, skip, first, last, wanted
        ):
            try:
                text = unpack_text(body, self._template(template))
            except DAMAGED as error:
                self._skip("ticks", seq, error)
                continue
            yield seq, at_utc_ms, is_gap, text

    def track(self) -> Track:
        """The whole track (``store.session_track``)."""
        track, after = session_track.empty(), -1
        for first, last, body in self._all(
            "tracks", "SELECT first_seq, last_seq, body FROM tracks ORDER BY first_seq"
        ):
            try:
                if not -1 <= after < first <= last:
                    raise ValueError(f"a block of {first} to {last} after {after}")
                block = session_track.decode(body)
            except DAMAGED as error:
                self._skip("tracks", first, error)
                continue  # its ticks are read instead
            if first > after + 1:
                session_track.extend(track, self._track_of(after + 1, first - 1))
            session_track.extend(track, block)
            after = last
        session_track.extend(track, self._track_of(after + 1, LAST))
        return track

    def _track_of(self, first: int, last: int) -> Track:
        rows = []
        for seq, at_utc_ms, is_gap, text in self.texts(first, last):
            try:
                rows.append(session_track.row(seq, at_utc_ms, is_gap, json.loads(text)))
            except DAMAGED as error:
                self._skip("ticks", seq, error)
        return session_track.from_rows(rows)

    # everything else

    def inputs(
        self, first_after: int = 0, last_after: int = LAST, *, kind: InputKind | None = None
    ) -> list[ControlInput]:
        """What the controller took in after observations of this range, in its order."""
        found = []
        for row, after_seq, name, at_utc_ms, body in self._all(
            "inputs",
            "SELECT id, after_seq, kind, at_utc_ms, body FROM inputs WHERE after_seq BETWEEN ? "
            "AND ? AND (? IS NULL OR kind = ?) ORDER BY after_seq, id",
            first_after,
            last_after,
            kind,
            kind,
        ):
            try:
                one = ControlInput(
                    id=row,
                    engine_id=self.engine_id,
                    after_seq=after_seq,
                    kind=InputKind(name),
                    at_utc_ms=at_utc_ms,
                    body=expand(body),
                )
            except DAMAGED as error:
                self._skip("inputs", row, error)
                continue
            found.append(one)
        return found

    def decisions(self) -> list[Decision]:
        """Decisions in the order of their observations, each with what became of it in the end."""
        return list({one.seq: one for one in self._records(Decision)}.values())

    def switches(self) -> list[EngineSwitch]:
        """Engine switches in the order they were seen."""
        found = self._records(EngineSwitch)
        return sorted(found, key=lambda one: (one.seen_utc_ms, one.entry.dp_rank, one.entry.seq))

    def overrides(self) -> list[Override]:
        """Overrides, each as it was in the end."""
        return list({one.id: one for one in self._records(Override)}.values())

    def policies(self) -> list[PolicyConfig]:
        """Policy versions, oldest first."""
        return list({one.version: one for one in self._records(PolicyConfig)}.values())

    def markers(self) -> list[Marker]:
        """Markers in the order of the observations they stand at."""
        return self._records(Marker)

    def engine(self) -> EngineRecord | None:
        """The engine as it was known last."""
        return next(reversed(self._records(EngineRecord)), None)

    def cost_tables(self) -> list[CostTable]:
        """Step-cost tables that were recorded with it."""
        return self._records(CostTable)

    def benchmark_points(self) -> list[BenchmarkPoint]:
        """Benchmark points that were recorded with it."""
        return self._records(BenchmarkPoint)

    def scrapes(self, first: int = 0, last: int = LAST) -> Iterator[RawScrape]:
        """Raw scrapes of a range of observations, oldest first."""
        texts: dict[int, str] = {}
        for row, seq, at_utc_ms, path, template, body in self._all(
            "scrapes",
            "SELECT id, seq, at_utc_ms, path, template, body FROM scrapes "
            "WHERE seq BETWEEN ? AND ? ORDER BY seq, id",
            first,
            last,
        ):
            try:
                if template is not None and template not in texts:
                    found = self._rows("SELECT body FROM scrape_templates WHERE id = ?", template)
                    texts[template] = expand(found[0][0])
                known = None if template is None else texts[template]
                text = session_scrapes.unpack(body, known)
                scrape = RawScrape(
                    engine_id=self.engine_id, seq=seq, at_utc_ms=at_utc_ms, path=path, text=text
                )
            except DAMAGED as error:
                self._skip("scrapes", row, error)
                continue
            yield scrape

    def _records(self, model: type[_Model]) -> list[_Model]:
        found = []
        for row, body in self._all(
            "records",
            "SELECT id, body FROM records WHERE kind = ? ORDER BY seq, id",
            KINDS[model],
        ):
            try:
                found.append(model.model_validate_json(body))
            except DAMAGED as error:
                self._skip("records", row, error)
        return found
