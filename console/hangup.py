"""Whether the terminal is still there.

A console in its own process session gets no SIGHUP when its terminal vanishes (a dropped ssh
connection, a closed window); Textual's input thread then reads an end of file over and over and
keeps a third of a core busy for good.
"""

from __future__ import annotations

import select
import sys
from typing import TextIO


def hung_up(stream: TextIO | None = None) -> bool:
    """Whether the far end of the terminal has closed; False where there is nothing to ask."""
    stream = stream or sys.__stdin__
    if stream is None or not hasattr(select, "poll"):
        return False
    try:
        poll = select.poll()
        # Nothing is asked for: a hang-up and an error are always told.
        poll.register(stream.fileno(), 0)
        return any(event & (select.POLLHUP | select.POLLNVAL) for _, event in poll.poll(0))
    except (OSError, ValueError):
        return True
