"""A port that stays free until the process it is meant for has started."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

LOW, HIGH = 15_000, 22_000
"""Below what systems hand out to whoever names no port (Linux 32768-60999, macOS and Windows from
49152), and below 22000-29999, where SGLang 0.5.23 looks for its own
(``srt/utils/network.py``, ``get_free_port_below_ephemeral``)."""


def quiet_port(low: int = LOW, high: int = HIGH) -> int:
    """A port of 127.0.0.1, ``low`` to ``high - 1``, that nobody holds.

    A port that the system chose may be given to somebody else as soon as it is let go: to a
    connection, or to a socket that the server itself opens before it listens.

    Raises:
        OSError: none was found.
    """
    span = range(low, high)
    for port in random.sample(span, min(len(span), 200)):
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no free port between {low} and {high - 1} on 127.0.0.1")
