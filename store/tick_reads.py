"""Reading ticks and raw scrapes: in the order of their ids, which is the order of observations.

A row that cannot be read is skipped and counted, so that one bad sector does not hide a day; the
count is the store's ``unreadable``.
"""

from __future__ import annotations

import logging
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, func
from sqlmodel import col, select

from store.documents import expand
from store.records import ControlInput, InputKind, RawScrape, Tick
from store.tables import DecisionRow, EngineRefRow, InputRow, ScrapeRow, TickRow, TickTemplateRow
from store.tick_codec import unpack, unpack_text

_CACHED_TEMPLATES = 512
_log = logging.getLogger("specdeck.store")


class TickReader:
    """Unpacks ticks; remembers templates and the ids of unreadable rows.  Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._templates: OrderedDict[int, bytes] = OrderedDict()
        self._bad_ticks: set[int] = set()
        self._bad_scrapes: set[int] = set()
        self._bad_inputs: set[int] = set()

    @property
    def unreadable(self) -> int:
        """Rows skipped so far, each counted once."""
        return len(self._bad_ticks) + len(self._bad_scrapes) + len(self._bad_inputs)

    def of_engine(
        self,
        connection: Connection,
        engine_id: str,
        *,
        after_id: int | None,
        before_id: int | None,
        limit: int,
    ) -> list[Tick]:
        """See ``Store.ticks``."""
        ref = _ref(connection, engine_id)
        if ref is None:
            return []
        query = select(TickRow).where(TickRow.engine_ref == ref).limit(limit)
        if before_id is not None:
            query = query.where(col(TickRow.id) < before_id)
        if after_id is not None:
            query = query.where(col(TickRow.id) > after_id).order_by(col(TickRow.id))
            return self._ticks(connection, connection.execute(query))
        rows = connection.execute(query.order_by(col(TickRow.id).desc())).all()
        return self._ticks(connection, reversed(rows))

    def after(self, connection: Connection, after_id: int, limit: int) -> list[Tick]:
        """See ``Store.ticks_after``."""
        query = (
            select(TickRow).where(col(TickRow.id) > after_id).order_by(col(TickRow.id)).limit(limit)
        )
        return self._ticks(connection, connection.execute(query))

    def texts(
        self, connection: Connection, engine_id: str, first_seq: int, last_seq: int, limit: int
    ) -> list[tuple[int, int, bool, bytes]]:
        """See ``Store.tick_texts``."""
        ref = _ref(connection, engine_id)
        query = (
            select(TickRow)
            .where(TickRow.engine_ref == ref)
            .where(col(TickRow.seq).between(first_seq, last_seq))
            .order_by(col(TickRow.seq))
            .limit(limit)
        )
        found = []
        for row in connection.execute(query) if ref is not None else ():
            try:
                text = unpack_text(row.body, self._template(connection, row.template_id))
            except (ValueError, zlib.error) as error:
                self._skip(self._bad_ticks, "tick", row.id, error)
                text = b""
            found.append((row.seq, row.at_utc_ms, bool(row.is_gap), text))
        return found

    def scrapes(
        self, connection: Connection, engine_id: str, first_seq: int, last_seq: int
    ) -> list[RawScrape]:
        """See ``Store.scrapes``."""
        rows = connection.execute(
            select(ScrapeRow)
            .join(EngineRefRow, col(EngineRefRow.ref) == col(ScrapeRow.engine_ref))
            .where(EngineRefRow.engine_id == engine_id)
            .where(col(ScrapeRow.seq).between(first_seq, last_seq))
            .order_by(col(ScrapeRow.seq), col(ScrapeRow.id))
        )
        found = []
        for row in rows:
            try:
                text = expand(row.body)
            except (ValueError, zlib.error) as error:
                self._skip(self._bad_scrapes, "raw scrape", row.id, error)
                continue
            found.append(
                RawScrape(
                    engine_id=engine_id,
                    seq=row.seq,
                    at_utc_ms=row.at_utc_ms,
                    path=row.path,
                    text=text,
                )
            )
        return found

    def inputs(
        self,
        connection: Connection,
        engine_id: str,
        first_after: int,
        last_after: int,
        kind: InputKind | None,
    ) -> list[ControlInput]:
        """See ``Store.inputs``."""
        query = (
            select(InputRow)
            .join(EngineRefRow, col(EngineRefRow.ref) == col(InputRow.engine_ref))
            .where(EngineRefRow.engine_id == engine_id)
            .where(col(InputRow.after_seq).between(first_after, last_after))
            .order_by(col(InputRow.after_seq), col(InputRow.id))
        )
        if kind is not None:
            query = query.where(InputRow.kind == str(kind))
        found = []
        for row in connection.execute(query):
            try:
                text = expand(row.body)
            except (ValueError, zlib.error) as error:
                self._skip(self._bad_inputs, "input", row.id, error)
                continue
            found.append(
                ControlInput(
                    id=row.id,
                    engine_id=engine_id,
                    after_seq=row.after_seq,
                    kind=InputKind(row.kind),
                    at_utc_ms=row.at_utc_ms,
                    body=text,
                )
            )
        return found

    def _ticks(self, connection: Connection, rows: Iterable[Any]) -> list[Tick]:
        ticks = []
        for row in rows:
            try:
                tick = unpack(
                    row.body,
                    self._template(connection, row.template_id),
                    row_id=row.id,
                    seq=row.seq,
                    at_utc_ms=row.at_utc_ms,
                    is_gap=bool(row.is_gap),
                )
            except (ValueError, zlib.error) as error:
                self._skip(self._bad_ticks, "tick", row.id, error)
                continue
            ticks.append(tick)
        return ticks

    def _template(self, connection: Connection, template_id: int | None) -> bytes:
        if template_id is None:
            return b""
        with self._lock:
            known = self._templates.get(template_id)
            if known is not None:
                self._templates.move_to_end(template_id)
                return known
        body = connection.execute(
            select(TickTemplateRow.body).where(TickTemplateRow.id == template_id)
        ).scalar()
        if body is None:
            raise ValueError(f"its template {template_id} is missing")
        text = zlib.decompress(body)
        with self._lock:
            self._templates[template_id] = text
            if len(self._templates) > _CACHED_TEMPLATES:
                self._templates.popitem(last=False)
        return text

    def _skip(self, known: set[int], kind: str, row_id: int, error: Exception) -> None:
        with self._lock:
            if row_id in known:
                return
            known.add(row_id)
        _log.warning("%s %d cannot be read and is skipped: %s", kind, row_id, error)


def _ref(connection: Connection, engine_id: str) -> int | None:
    return connection.execute(
        select(EngineRefRow.ref).where(EngineRefRow.engine_id == engine_id)
    ).scalar()


def last_seq(connection: Connection, engine_id: str) -> int:
    """See ``Store.last_seq``."""
    ref = _ref(connection, engine_id)
    found = [
        connection.execute(
            select(func.max(DecisionRow.seq)).where(DecisionRow.engine_id == engine_id)
        ).scalar()
    ]
    if ref is not None:
        for table in (TickRow, ScrapeRow):
            query = select(func.max(table.seq)).where(table.engine_ref == ref)
            found.append(connection.execute(query).scalar())
    return max((seq for seq in found if seq is not None), default=0)
