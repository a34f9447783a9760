"""The audit's hash chain: each row's hash covers the row and the hash before it.  Pure.

Whoever changes, removes or slips in a row must write every later hash anew; a head that was noted
elsewhere then no longer occurs.  A removed end leaves a valid shorter chain: only a noted head
shows that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from engine_patch.tier import Frozen
from store.records import AuditEntry

START = "0" * 64
"""What the first row's hash is chained to."""
LISTED = 20
"""Broken rows listed; more are only counted."""


class AuditCheck(Frozen):
    """What became of the chain.

    Args:
        rows: rows read.
        head: hash of the newest row, "" without rows.  Note it elsewhere and ask for it later.
        broken: ids of rows whose hash does not follow from the row before and their own content;
            the first ones only.
        expected: the head that was asked for; found: at which row it stands, None if nowhere.
    """

    rows: int
    head: str = ""
    broken: tuple[int, ...] = ()
    broken_count: int = 0
    expected: str = ""
    found: int | None = None

    @property
    def intact(self) -> bool:
        """Every row follows from the one before, and the head asked for is there."""
        return not self.broken_count and (not self.expected or self.found is not None)


def link(before: str, entry: AuditEntry) -> str:
    """The hash of a row that follows a row with hash ``before``."""
    parts = [before, entry.at_utc_ms, entry.actor, entry.action, entry.target, entry.detail]
    text = json.dumps(parts, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def check(entries: Iterable[AuditEntry], expected: str = "") -> AuditCheck:
    """Follow the chain.

    Args:
        entries: every row, oldest first.
        expected: a head that was noted earlier, or its beginning; "" for none.
    """
    rows, before, head, found = 0, START, "", None
    broken: list[int] = []
    count = 0
    for entry in entries:
        rows += 1
        if entry.hash != link(before, entry):
            count += 1
            if len(broken) < LISTED:
                broken.append(entry.id)
        # Each row is judged by the hash that stands before it, so that one change is one row.
        before = head = entry.hash
        if expected and head.startswith(expected):
            found = entry.id
    return AuditCheck(
        rows=rows,
        head=head,
        broken=tuple(broken),
        broken_count=count,
        expected=expected,
        found=found,
    )
