"""Out of a store into a session file, and back into a store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from store.db import Record, Store
from store.documents import document
from store.errors import StoreError
from store.records import (
    ControlInput,
    EngineRecord,
    InputKind,
    SessionRecord,
    Tick,
)
from store.session_reader import LAST, SessionFile
from store.session_redact import Redactor, names_of
from store.session_writer import Noted, SessionWriter
from store.tick_codec import tick_of

_Model = TypeVar("_Model", bound=BaseModel)
PAGE = 1000
"""Ticks copied in one transaction."""


@dataclass(frozen=True)
class Range:
    """What is exported: observations of one engine, both ends included."""

    engine_id: str
    name: str
    first_seq: int = 1
    last_seq: int = LAST


@dataclass(frozen=True)
class Exported:
    """What an export or import brought over."""

    ticks: int
    skipped: int
    first_seq: int
    last_seq: int


def range_of(store: Store, name: str) -> Range:
    """The range of a named session.

    Raises:
        StoreError: there is no such session; names those that there are.
    """
    found = next((one for one in store.sessions() if one.name == name), None)
    if found is None:
        known = ", ".join(sorted({one.name for one in store.sessions()})) or "none"
        raise StoreError(f"there is no session {name!r}; sessions are: {known}")
    last = LAST if found.last_seq is None else found.last_seq
    return Range(found.engine_id, name, max(found.first_seq, 1), last)


def export(
    store: Store,
    wanted: Range,
    path: Path,
    *,
    redact: bool = False,
    version: str = "",
    progress: Callable[[int], None] = lambda _: None,
) -> Exported:
    """Write a session file.

    The file begins at the last checkpoint before the range, so that its verdicts can be verified
    from the first tick of the range on.

    Args:
        redact: replace names and URLs by digests.
        progress: told the number of ticks copied so far.

    Raises:
        StoreError: nothing was recorded in the range, or the file cannot be written.
    """
    first, before = _beginning(store, wanted)
    redactor = _redactor(store, wanted) if redact else None
    meta = {
        "engine_id": wanted.engine_id,
        "name": wanted.name,
        "wanted_first_seq": str(wanted.first_seq),
        "written_by": f"specdeck {version}".strip(),
    }
    if redactor is not None:
        meta = {key: redactor.text(value) for key, value in meta.items()} | {"redacted": "1"}
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    if path.exists():
        raise StoreError(f"{path} exists: choose another name, or remove it first")
    counts = [0, 0, 0]
    try:
        with SessionWriter.create(part, meta) as writer:
            for given in (*before, *store.inputs(wanted.engine_id, first, wanted.last_seq)):
                writer.add_input(_input(given, redactor))
            last = _copy_ticks(store, wanted, first, writer, redactor, counts, progress)
            if not counts[0]:
                raise StoreError(
                    f"nothing of engine {wanted.engine_id!r} is recorded in that range"
                )
            for record in _records(store, wanted, first, last):
                writer.add_record(_redacted(record, redactor))
            for scrape in store.scrapes(wanted.engine_id, first, wanted.last_seq):
                writer.add_scrape(_redacted(scrape, redactor))
            writer.set_meta("skipped", str(counts[1]))
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)
    return Exported(counts[0], counts[1], counts[2], last)


def _beginning(store: Store, wanted: Range) -> tuple[int, list[ControlInput]]:
    """The first observation to copy, and the inputs that a replay from there begins with."""
    checkpoints = store.inputs(
        wanted.engine_id, 0, max(wanted.first_seq - 1, 0), kind=InputKind.CHECKPOINT
    )
    starts = store.inputs(wanted.engine_id, 0, max(wanted.first_seq - 1, 0), kind=InputKind.START)
    newest = max((*checkpoints, *starts), key=lambda one: (one.after_seq, one.id), default=None)
    if newest is None:
        return wanted.first_seq, []
    if newest.kind is InputKind.START:
        return newest.after_seq, []
    configs = [
        one
        for one in store.inputs(wanted.engine_id, 0, newest.after_seq, kind=InputKind.CONFIG)
        if one.id < newest.id
    ]
    config = configs[-1:]
    later = [
        one
        for one in store.inputs(wanted.engine_id, newest.after_seq, newest.after_seq)
        if one.id >= newest.id
    ]
    moved = [one.model_copy(update={"after_seq": newest.after_seq}) for one in config]
    return newest.after_seq + 1, [*moved, *later]


def _copy_ticks(
    store: Store,
    wanted: Range,
    first: int,
    writer: SessionWriter,
    redactor: Redactor | None,
    counts: list[int],
    progress: Callable[[int], None],
) -> int:
    at, last = first, 0
    while True:
        rows = store.tick_texts(wanted.engine_id, at, wanted.last_seq, PAGE)
        for seq, at_utc_ms, is_gap, text in rows:
            last = seq
            if not text:
                counts[1] += 1
                continue
            body = text if redactor is None else redactor.tick(text)
            writer.add_text(seq, at_utc_ms, is_gap, body)
            counts[2] = counts[2] or seq
            counts[0] += 1
        writer.commit()
        progress(counts[0])
        if len(rows) < PAGE:
            return last
        at = rows[-1][0] + 1


def _records(store: Store, wanted: Range, first: int, last: int) -> Iterator[Noted]:
    """What was recorded beside the ticks and belongs to the range."""
    engine_id = wanted.engine_id
    begin = store.tick_texts(engine_id, first, last, 1)[0][1]
    ends = store.tick_texts(engine_id, last, last, 1)
    end = ends[0][1] if ends else begin
    yield from (one for one in store.engines() if one.engine_id == engine_id)
    yield from reversed(store.policies(engine_id))
    for decision in reversed(store.decisions(engine_id, limit=2**31)):
        if first <= decision.seq <= last:
            yield decision
    for switch in reversed(store.switches(engine_id, limit=2**31)):
        if begin <= switch.seen_utc_ms <= end:
            yield switch
    for override in reversed(store.overrides(engine_id)):
        over = override.ended_utc_ms
        if override.created_utc_ms <= end and (over is None or over >= begin):
            yield override
    for marker in store.markers(engine_id):
        until = marker.seq if marker.last_seq is None else marker.last_seq
        if marker.seq <= last and first <= until:
            yield marker


def _redactor(store: Store, wanted: Range) -> Redactor:
    engine_id = wanted.engine_id
    engine = next((one for one in store.engines() if one.engine_id == engine_id), None)
    holders = {
        json.loads(one.body).get("holder", "")
        for one in store.inputs(engine_id, kind=InputKind.CONFIG)
    }
    people = {one.author for one in store.overrides(engine_id)}
    people |= {one.author for one in store.markers(engine_id)}
    people |= {one.author for one in store.policies(engine_id)}
    return Redactor(
        names_of(
            engine_id=engine_id,
            engine=None if engine is None else json.loads(document(engine)),
            holders=holders,
            people=people,
        )
    )


def _input(given: ControlInput, redactor: Redactor | None) -> ControlInput:
    if redactor is None:
        return given
    return given.model_copy(
        update={"body": redactor.json(given.body), "engine_id": redactor.text(given.engine_id)}
    )


def _redacted(record: _Model, redactor: Redactor | None) -> _Model:
    if redactor is None:
        return record
    return type(record).model_validate_json(redactor.json(record.model_dump_json()))


def bring_in(store: Store, session: SessionFile, engine_id: str) -> Exported:
    """Put a session's records into a store, under an engine id that the store does not know.

    Raises:
        StoreError: the store has that engine already, or cannot be written.
    """
    if any(one.engine_id == engine_id for one in store.engines()) or store.last_seq(engine_id):
        raise StoreError(
            f"the store has an engine {engine_id!r} already: choose another id with --engine"
        )
    name = session.meta.get("name") or session.path.stem
    engine = session.engine()
    known = EngineRecord(engine_id=engine_id, url="", added_utc_ms=0) if engine is None else engine
    store.write([_moved(known, engine_id)]).result()
    total, begun = 0, 0
    for page in _pages(session, engine_id):
        begun = begun or page[0].observation.at_utc_ms
        total += len(page)
        store.write(page).result()
    rest: list[Record] = [_moved(one, engine_id) for one in session.decisions()]
    rest += [_moved(one, engine_id) for one in session.switches()]
    rest += [_moved(one, engine_id) for one in session.markers()]
    rest += [_moved(one, engine_id) for one in session.policies()]
    rest += [_moved(one, engine_id) for one in session.scrapes()]
    rest += [
        _moved(one, engine_id).model_copy(update={"body": _renamed_json(one.body, engine_id)})
        for one in session.inputs()
    ]
    first, last = session.first_seq or 0, session.last_seq or 0
    rest.append(
        SessionRecord(
            engine_id=engine_id,
            name=name,
            started_utc_ms=begun,
            ended_utc_ms=begun,
            first_seq=first,
            last_seq=last,
        )
    )
    for at in range(0, len(rest), PAGE):
        store.write(rest[at : at + PAGE]).result()
    return Exported(total, session.unreadable, first, last)


def _pages(session: SessionFile, engine_id: str) -> Iterable[list[Tick]]:
    page: list[Tick] = []
    for seq, at_utc_ms, is_gap, text in session.texts():
        moved = _renamed_json(text.decode(), engine_id).encode()
        page.append(tick_of(moved, row_id=0, seq=seq, at_utc_ms=at_utc_ms, is_gap=is_gap))
        if len(page) == PAGE:
            yield page
            page = []
    if page:
        yield page


def _moved(record: _Model, engine_id: str) -> _Model:
    """The record under another engine, as a new one."""
    body = _renamed(record.model_dump(mode="json"), engine_id)
    if "id" in type(record).model_fields:
        body["id"] = 0
    return type(record).model_validate(body)


def _renamed_json(body: str, engine_id: str) -> str:
    renamed = _renamed(json.loads(body), engine_id)
    return json.dumps(renamed, ensure_ascii=False, separators=(",", ":"))


def _renamed(value: Any, engine_id: str) -> Any:
    """JSON in which every ``engine_id`` is this one: the controller writes its own into ticks."""
    if isinstance(value, dict):
        return {
            key: engine_id if key == "engine_id" else _renamed(one, engine_id)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [_renamed(one, engine_id) for one in value]
    return value
