"""When an engine is asked: spread over its period, and again soon after a change.  Pure."""

from __future__ import annotations

import zlib

from store.records import Command

SOON_S = 0.05
"""Seconds after an accepted command at which the engine is asked whether it obeyed."""


def phase_ms(engine_id: str, period_ms: int) -> int:
    """Where in its period an engine is polled.

    Spread over it, so that hundreds of answers do not come at one moment and wait for each other.
    """
    return zlib.crc32(engine_id.encode()) % period_ms


def renews(command: Command, taken: Command | None) -> bool:
    """Whether a command only repeats the one that the engine took last, for a longer lease."""
    order = {"epoch": 0, "generation": 0}
    return taken is not None and command.model_copy(update=order) == taken.model_copy(update=order)
