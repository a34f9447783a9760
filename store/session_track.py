"""The track: the columns of a recording that a time line, a report and a what-if read.  Pure.

A day at two ticks a second is 172,800 ticks.  Reading each as a record takes a minute; its track is
read in a second.  It repeats what the ticks say and is made from them, so a file without one loses
nothing but time.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

BLOCK = 512
"""Ticks in one block."""

DELTA = (
    "seq",
    "at_utc_ms",
    "at_mono_ms",
    "concurrency",
    "replica_concurrency",
    "queued",
    "prefilling",
    "decode_tokens",
    "decode_steps",
    "verify_steps",
    "prefill_tokens",
    "retractions",
    "graph_misses",
    "finished",
    "accept_requests",
    "kv_capacity",
    "kv_committed",
    "kv_evictable",
    "kv_reserve",
    "policy_version",
)
"""Whole numbers (None where unknown), stored as differences."""
PLAIN = (
    "gap",
    "fresh",
    "clock_id",
    "boot_id",
    "accept_length",
    "accept_tier",
    "engine_tier",
    "mode",
    "stance",
    "reason",
    "desired",
    "decode_tok_s",
    "override",
    "decision",
    "alarms",
    "journal",
)
"""Everything else: ``override`` its id or None, ``decision`` the tier that a decision made here
asks for, ``alarms`` and ``journal`` how many are up and how many engine switches it brought."""
COLUMNS = (*DELTA, *PLAIN)

Track = dict[str, list[Any]]
"""Column by name, one entry per tick, in the order of ``seq``."""


def row(seq: int, at_utc_ms: int, is_gap: bool, tick: Mapping[str, Any]) -> tuple[Any, ...]:
    """One tick's entries in the order of ``COLUMNS``.

    Args:
        tick: the tick's JSON, with or without its defaults.
    """
    seen = tick["observation"]
    kv = seen.get("kv") or {}
    override = tick.get("override")
    decisions = tick.get("decisions") or ()
    get = seen.get
    return (
        seq,
        at_utc_ms,
        seen["at_mono_ms"],
        get("concurrency"),
        get("replica_concurrency"),
        get("queued"),
        get("prefilling"),
        get("decode_tokens"),
        get("decode_steps"),
        get("verify_steps"),
        get("prefill_tokens"),
        get("retractions"),
        get("graph_misses"),
        get("finished"),
        get("accept_requests", 0),
        kv.get("capacity"),
        kv.get("committed"),
        kv.get("evictable"),
        kv.get("reserve"),
        tick["policy_version"],
        int(is_gap),
        int(get("fresh", True) and not is_gap),
        seen["clock_id"],
        get("boot_id"),
        get("accept_length"),
        get("accept_tier"),
        get("engine_tier"),
        get("mode"),
        tick["stance"],
        tick["verdict"]["reason"],
        tick.get("desired"),
        tick.get("decode_tok_s"),
        (override.get("id", 0) if override and override.get("ended_utc_ms") is None else None),
        next((one["to_tier"] for one in reversed(decisions)), None),
        len(tick.get("alarms") or ()),
        len(get("switches") or ()),
    )


def encode(rows: Sequence[tuple[Any, ...]]) -> bytes:
    """Rows as one block."""
    columns: dict[str, Any] = {}
    for name, column in zip(COLUMNS, zip(*rows, strict=True), strict=True):
        if name in DELTA:
            column = tuple(_differences(column))
        if all(value == column[0] for value in column):
            columns[name] = {"=": column[0]}
        else:
            columns[name] = list(column)
    text = json.dumps([len(rows), columns], separators=(",", ":"))
    return zlib.compress(text.encode(), 9)


def decode(body: bytes) -> Track:
    """A block's columns.

    Raises:
        ValueError, zlib.error: the bytes are damaged.
    """
    count, columns = json.loads(zlib.decompress(body))
    track: Track = {}
    for name in COLUMNS:
        found = columns.get(name, {"=": None})
        values = [found["="]] * count if isinstance(found, dict) else found
        track[name] = _sums(values) if name in DELTA else values
    return track


def empty() -> Track:
    """A track of no ticks."""
    return {name: [] for name in COLUMNS}


def from_rows(rows: Iterable[tuple[Any, ...]]) -> Track:
    """The track of rows in order."""
    listed = list(rows)
    if not listed:
        return empty()
    return {
        name: list(column) for name, column in zip(COLUMNS, zip(*listed, strict=True), strict=True)
    }


def extend(track: Track, more: Track) -> None:
    """Put ``more`` behind ``track``."""
    for name in COLUMNS:
        track[name] += more[name]


def _differences(column: Sequence[int | None]) -> Iterable[int | None]:
    last = 0
    for value in column:
        if value is None:
            yield None
        else:
            yield value - last
            last = value


def _sums(column: Sequence[int | None]) -> list[int | None]:
    out: list[int | None] = []
    last = 0
    for value in column:
        if value is not None:
            last += value
            out.append(last)
        else:
            out.append(None)
    return out
