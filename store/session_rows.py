"""Rows of ticks out of a file that may be damaged: all that can be read, in order, in bounded time.

A damaged page of the file fails every query that touches it, and a damaged tree may hand rows out
twice, out of order or with columns of another type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from store.errors import StoreCorrupt

_QUERY = (
    "SELECT seq, at_utc_ms, is_gap, template, body FROM ticks "
    "WHERE seq BETWEEN ? AND ? ORDER BY seq LIMIT ?"
)
_PAGE = 1000
_PATIENCE = 1000
"""Reads that may fail one after another before the next place to try is looked for in growing
steps: a number damaged to 2**62 must not make a reader try every number up to it."""


def tick_rows(
    ask: Callable[..., list[Any]],
    skip: Callable[[int, Exception], None],
    first: int,
    last: int,
    limit: int,
) -> Iterator[tuple[int, int, bool, int | None, bytes]]:
    """Rows of ``first`` to ``last``, both included, each sequence number once and rising.

    Args:
        ask: runs a query; StoreCorrupt if the file is damaged there.
        skip: is told of each place that could not be read.
    """
    width, failed = _PAGE, 0
    while first <= last and limit > 0:
        begun = first
        wanted = min(width, limit)
        try:
            rows = ask(_QUERY, first, last, wanted)
        except StoreCorrupt as error:
            if wanted > 1:
                width = 1
                continue
            failed += 1
            skip(first, error)
            first += 1 << max(0, min(failed - _PATIENCE, 62))
            continue
        for seq, at_utc_ms, is_gap, template, body in rows:
            limit -= 1
            problem = _problem(seq, at_utc_ms, first)
            if problem:
                skip(seq if isinstance(seq, int) else first, ValueError(problem))
                # Beyond it: what follows may be whole.
                first = max(first, seq + 1) if isinstance(seq, int) else first
                continue
            first = seq + 1
            yield seq, at_utc_ms, bool(is_gap), template, body
        if len(rows) < wanted:
            return
        # Around a damaged page row by row, then in growing pages again.
        failed, width = 0, min(2 * width, _PAGE)
        if first == begun:
            return


def _problem(seq: object, at_utc_ms: object, first: int) -> str:
    if not isinstance(seq, int) or not isinstance(at_utc_ms, int):
        return "its number or time is no whole number"
    return "" if seq >= first else f"number {seq} comes again or too late"
