"""The one place where the control plane reads clocks; everything else is handed times."""

from __future__ import annotations

import time
import uuid
from typing import Protocol


class Clock(Protocol):
    """Wall time for people, monotonic time for durations, both in whole milliseconds."""

    def utc_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        ...

    def mono_ms(self) -> int:
        """Milliseconds of a clock that never goes back; its zero means nothing."""
        ...


class SystemClock:
    """The machine's clocks.

    ``clock_id`` names this process's monotonic clock: values of two processes, or of one before and
    after a restart, are never compared.
    """

    def __init__(self) -> None:
        self.clock_id = uuid.uuid4().hex

    def utc_ms(self) -> int:
        """See ``Clock``."""
        return time.time_ns() // 1_000_000

    def mono_ms(self) -> int:
        """See ``Clock``."""
        return time.monotonic_ns() // 1_000_000
