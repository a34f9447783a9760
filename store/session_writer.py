"""Writing a session file: appended in order, in transactions, readable after a kill at any time."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel

from store import session_scrapes, session_track
from store.documents import document, squeeze
from store.errors import StoreError, StoreRefused, StoreUnwritable
from store.measurements import BenchmarkPoint, CostTable
from store.observations import Gap
from store.policies import PolicyConfig
from store.records import (
    ControlInput,
    Decision,
    EngineRecord,
    EngineSwitch,
    Marker,
    Override,
    RawScrape,
    Tick,
)
from store.session_schema import explain, make
from store.tick_codec import pack, text_of

Noted = (
    Decision
    | EngineSwitch
    | Override
    | PolicyConfig
    | EngineRecord
    | Marker
    | BenchmarkPoint
    | CostTable
)
"""What lies in table ``records``."""
KINDS: Mapping[type[BaseModel], str] = {
    Decision: "decision",
    EngineSwitch: "switch",
    Override: "override",
    PolicyConfig: "policy",
    EngineRecord: "engine",
    Marker: "marker",
    BenchmarkPoint: "benchmark",
    CostTable: "costs",
}
TEMPLATE_TICKS = 256
TEMPLATE_SCRAPES = 120
"""Rows that share one template."""


class SessionFull(StoreError):  # noqa: N818
    """The file has reached the size it may have; what was recorded is safe."""


class SessionWriter:
    """Appends to one new session file.  Use ``SessionWriter.create``; then ``finish`` it.

    A file that was not finished (a kill, a power cut) is whole up to its last ``commit``.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, max_bytes: int | None) -> None:
        self.path = path
        self._db = connection
        self._max_bytes = max_bytes
        self._open = False
        self._closed = False
        self._last_seq: int | None = None
        self._template: tuple[int, bytes] | None = None
        self._template_uses = 0
        self._scrape_templates: dict[str, tuple[int, str, int]] = {}
        self._track: list[tuple[Any, ...]] = []

    @classmethod
    def create(cls, path: Path, meta: Mapping[str, str], *, max_bytes: int | None = None) -> Self:
        """Make a new file.

        Args:
            meta: facts about the recording; ``docs/sessions.md`` lists the keys.
            max_bytes: most bytes the file may take, None for no bound.

        Raises:
            StoreUnwritable: it exists already, or cannot be made there.
        """
        if path.exists():
            raise StoreUnwritable(f"{path} exists: choose another name, or remove it first")
        try:
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            make(connection)
            writer = cls(path, connection, max_bytes)
            for key, value in meta.items():
                writer.set_meta(key, value)
            writer.commit()
        except sqlite3.Error as error:
            raise explain(error, path) from error
        return writer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.close()

    def set_meta(self, key: str, value: str) -> None:
        """Set one fact about the recording."""
        self._do("INSERT OR REPLACE INTO meta VALUES (?, ?)", key, value)

    def add_tick(self, tick: Tick) -> None:
        """Append a tick; its sequence number must rise.

        Raises:
            StoreRefused: it does not follow the last one, or a number in it is not finite.
        """
        seen = tick.observation
        try:
            text = text_of(tick)
        except ValueError as error:
            raise StoreRefused(f"tick {seen.seq} cannot be recorded exactly: {error}") from error
        self.add_text(seen.seq, seen.at_utc_ms, isinstance(seen, Gap), text)

    def add_text(self, seq: int, at_utc_ms: int, is_gap: bool, text: bytes) -> None:
        """Append a tick by its text (``store.tick_codec``); see ``add_tick``."""
        if self._last_seq is not None and seq <= self._last_seq:
            raise StoreRefused(f"tick {seq} does not follow {self._last_seq}: they come in order")
        template = self._tick_template(text, is_gap=is_gap)
        body = pack(text, b"" if template is None else template[1])
        self._do(
            "INSERT INTO ticks VALUES (?, ?, ?, ?, ?)",
            seq,
            at_utc_ms,
            int(is_gap),
            None if template is None else template[0],
            body,
        )
        self._last_seq = seq
        self._track.append(session_track.row(seq, at_utc_ms, is_gap, json.loads(text)))
        if len(self._track) >= session_track.BLOCK:
            self._end_block()

    def add_input(self, given: ControlInput) -> None:
        """Append what the controller took in."""
        self._do(
            "INSERT INTO inputs (after_seq, kind, at_utc_ms, body) VALUES (?, ?, ?, ?)",
            given.after_seq,
            str(given.kind),
            given.at_utc_ms,
            squeeze(given.body),
        )

    def add_record(self, record: Noted) -> None:
        """Append any other record; readers take the last of an override, a policy or a decision."""
        seq, at_utc_ms = _place(record)
        body = document(record)
        number = getattr(record, "id", 0)
        if number:
            body = f'{{"id":{number},{body.removeprefix("{")}'
        self._do(
            "INSERT INTO records (kind, seq, at_utc_ms, body) VALUES (?, ?, ?, ?)",
            KINDS[type(record)],
            seq,
            at_utc_ms,
            body,
        )

    def add_scrape(self, scrape: RawScrape) -> None:
        """Append a raw scrape."""
        known = self._scrape_templates.get(scrape.path)
        if known is None or known[2] >= TEMPLATE_SCRAPES:
            row = self._do("INSERT INTO scrape_templates (body) VALUES (?)", squeeze(scrape.text))
            known = (row, scrape.text, 0)
        self._scrape_templates[scrape.path] = (known[0], known[1], known[2] + 1)
        self._do(
            "INSERT INTO scrapes (seq, at_utc_ms, path, template, body) VALUES (?, ?, ?, ?, ?)",
            scrape.seq,
            scrape.at_utc_ms,
            scrape.path,
            known[0],
            session_scrapes.pack(scrape.text, known[1]),
        )

    def commit(self) -> None:
        """Make everything so far safe from a kill.

        Raises:
            SessionFull: the file has reached its bound.
            StoreUnwritable: the disk is full; what was committed before is safe.
        """
        if self._open:
            try:
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise explain(error, self.path) from error
            finally:
                self._open = False
        if self._max_bytes is not None and self.size >= self._max_bytes:
            raise SessionFull(
                f"{self.path} has reached {self._max_bytes / 1e6:.0f} MB, the most it may take"
            )

    @property
    def size(self) -> int:
        """Bytes the file will have, the write-ahead log brought in."""
        pages = self._db.execute("PRAGMA page_count").fetchone()[0]
        return int(pages) * int(self._db.execute("PRAGMA page_size").fetchone()[0])

    def finish(self) -> None:
        """Note that the recording is complete and make it one file without a log beside it."""
        if self._closed:
            return
        self._end_block()
        self.set_meta("complete", "1")
        with contextlib.suppress(SessionFull):
            self.commit()
        with _told(self.path):
            self._db.execute("PRAGMA journal_mode = DELETE")
        self.close()

    def close(self) -> None:
        """Close as it is; what was not committed is not in the file."""
        self._closed = True
        self._db.close()

    def _do(self, statement: str, *values: object) -> int:
        try:
            if not self._open:
                self._db.execute("BEGIN IMMEDIATE")
                self._open = True
            return int(self._db.execute(statement, values).lastrowid or 0)
        except sqlite3.Error as error:
            # A full disk ends the transaction: there is nothing left of it to commit.
            self._open = self._db.in_transaction
            raise explain(error, self.path) from error

    def _tick_template(self, text: bytes, *, is_gap: bool) -> tuple[int, bytes] | None:
        if is_gap:
            return self._template
        if self._template is None or self._template_uses >= TEMPLATE_TICKS:
            row = self._do("INSERT INTO templates (body) VALUES (?)", zlib.compress(text))
            self._template, self._template_uses = (row, text), 0
        self._template_uses += 1
        return self._template

    def _end_block(self) -> None:
        if self._track:
            first, last = self._track[0][0], self._track[-1][0]
            body = session_track.encode(self._track)
            self._do("INSERT INTO tracks VALUES (?, ?, ?)", first, last, body)
            self._track = []


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise explain(error, path) from error


def _place(record: Noted) -> tuple[int, int]:
    """The observation a record belongs to (0: to none), and its time."""
    match record:
        case Decision() | Marker():
            return record.seq, record.at_utc_ms
        case EngineSwitch():
            return record.entry.seq, record.seen_utc_ms
        case Override():
            return record.id, record.created_utc_ms
        case PolicyConfig():
            return record.version, record.created_utc_ms
        case EngineRecord():
            return 0, record.added_utc_ms
        case BenchmarkPoint():
            return 0, record.at_utc_ms
        case CostTable():
            return 0, record.created_utc_ms
