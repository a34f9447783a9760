"""A session as rows for other tools: JSON lines, CSV, Parquet.

JSON lines hold every record whole; CSV and Parquet hold the track, one row per tick.  Parquet needs
pyarrow, which nothing else here needs.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from store.errors import StoreError, StoreUnwritable
from store.session_reader import SessionFile
from store.session_track import COLUMNS, DELTA
from store.tick_codec import tick_of


def write_jsonl(session: SessionFile, path: Path) -> int:
    """One object per line, ``{"kind": ..., "record": ...}``; returns the number of lines.

    The first is ``meta``; ticks come in order, then the other records by kind.
    """
    lines = 0
    with path.open("x", encoding="utf-8") as out:

        def put(kind: str, body: Mapping[str, Any]) -> None:
            nonlocal lines
            out.write(json.dumps({"kind": kind, "record": body}, ensure_ascii=False) + "\n")
            lines += 1

        put("meta", session.meta)
        for seq, at_utc_ms, is_gap, text in session.texts():
            tick = tick_of(text, row_id=seq, seq=seq, at_utc_ms=at_utc_ms, is_gap=is_gap)
            put("tick", tick.model_dump(mode="json"))
        for kind, records in (
            ("decision", session.decisions()),
            ("switch", session.switches()),
            ("override", session.overrides()),
            ("policy", session.policies()),
            ("marker", session.markers()),
            ("input", session.inputs()),
            ("scrape", session.scrapes()),
        ):
            for record in records:
                body = record.model_dump(mode="json")
                if kind == "input":
                    body["body"] = json.loads(body["body"])
                put(kind, body)
    return lines


def write_csv(session: SessionFile, path: Path) -> int:
    """The track, one row per tick; unknown is an empty cell.  Returns the number of rows."""
    track = session.track()
    with path.open("x", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(COLUMNS)
        rows = zip(*(track[name] for name in COLUMNS), strict=True)
        writer.writerows(["" if value is None else value for value in row] for row in rows)
    return len(track["seq"])


def write_parquet(session: SessionFile, path: Path) -> int:
    """The track, one row per tick, unknown is null; returns the number of rows.

    A column has one type in every file, also where a recording knows nothing of it, so that files
    can be read together.  The file's metadata are the session's.

    Raises:
        StoreError: pyarrow is not installed; the message is the pip line.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise StoreError(
            "Parquet needs 'pyarrow', which is not installed here; "
            "run: pip install 'specdeck[parquet]'"
        ) from error
    if path.exists():
        raise FileExistsError(str(path))
    kinds = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(), "text": pa.string()}
    schema = pa.schema(
        [(name, kinds[kind_of(name)]) for name in COLUMNS],
        metadata={f"specdeck.{key}": value for key, value in session.meta.items()},
    )
    track = session.track()
    columns = [
        [None if value is None else bool(value) for value in track[name]]
        if kind_of(name) == "bool"
        else track[name]
        for name in COLUMNS
    ]
    arrays = [pa.array(one, type=kind.type) for one, kind in zip(columns, schema, strict=True)]
    try:
        parquet.write_table(pa.table(arrays, schema=schema), path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return len(track["seq"])


def kind_of(column: str) -> str:
    """What a column of the track holds: ``int``, ``float``, ``bool`` or ``text``."""
    if column in DELTA or column in ("override", "alarms", "journal"):
        return "int"
    if column in ("accept_length", "decode_tok_s"):
        return "float"
    return "bool" if column in ("gap", "fresh") else "text"


FORMATS: Mapping[str, Callable[[SessionFile, Path], int]] = {
    "jsonl": write_jsonl,
    "csv": write_csv,
    "parquet": write_parquet,
}


def write(session: SessionFile, path: Path, kind: str) -> int:
    """Write a session in one of ``FORMATS``; returns the number of rows.

    Raises:
        StoreError: no such format, the file exists, or it cannot be written.
    """
    if kind not in FORMATS:
        raise StoreError(f"there is no format {kind!r}; formats are: {', '.join(FORMATS)}")
    try:
        return FORMATS[kind](session, path)
    except FileExistsError as error:
        raise StoreUnwritable(f"{path} exists: choose another name, or remove it first") from error
    except OSError as error:
        raise StoreUnwritable(f"{path} cannot be written: {error.strerror}") from error
