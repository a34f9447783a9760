"""Markers that specdeck itself sets on the time line.  Pure."""

from __future__ import annotations

from collections.abc import Iterable

from store.records import Marker

AUTHOR = "specdeck"
DOWNSAMPLED = "downsampled"
"""Kind: of the range's ticks one in so many seconds is left, so verdicts cannot be verified."""
NOT_RECORDED = "not_recorded"
"""Kind: observations before this one were not recorded, though they were made."""


def downsampled(markers: Iterable[Marker]) -> tuple[Marker, ...]:
    """The ranges that are down-sampled, in order."""
    found = (one for one in markers if one.kind == DOWNSAMPLED and one.last_seq is not None)
    return tuple(sorted(found, key=lambda one: (one.seq, one.last_seq or 0)))


def covering(marks: Iterable[Marker], seq: int) -> Marker | None:
    """The range that an observation lies in."""
    return next((one for one in marks if one.seq <= seq <= (one.last_seq or one.seq)), None)
