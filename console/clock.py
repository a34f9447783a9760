"""The console's one clock: the control plane's wall time, carried on by a monotonic clock.

Ages stay true when this machine's clock is wrong or is set while the console runs.
"""

from __future__ import annotations

import time


class Clock:
    """Wall time in UTC milliseconds; this machine's own until the control plane's is known."""

    def __init__(self) -> None:
        self._offset_ms = time.time() * 1000 - time.monotonic() * 1000

    def set(self, utc_ms: int) -> None:
        """Take over the control plane's time, read just now."""
        self._offset_ms = utc_ms - time.monotonic() * 1000

    def now_ms(self) -> int:
        """The time now, UTC milliseconds."""
        return int(self._offset_ms + time.monotonic() * 1000)
