"""Filters: every word must occur, in any case.  Pure."""

from __future__ import annotations

from collections.abc import Iterable


def matches(words: str, texts: Iterable[str | None]) -> bool:
    """Whether each of ``words`` occurs in one of ``texts``."""
    wanted = words.casefold().split()
    if not wanted:
        return True
    found = "\n".join(text for text in texts if text).casefold()
    return all(word in found for word in wanted)
