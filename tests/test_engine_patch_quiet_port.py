"""Ports that are chosen before the process they are meant for listens."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from engine_patch.quiet_port import HIGH, LOW, quiet_port


def test_the_system_gives_a_quiet_port_to_nobody_else() -> None:
    """Hundreds of sockets that name no port: the one that was chosen stays free."""
    port = quiet_port()
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(500)]
        assert all(not LOW <= one.getsockname()[1] < HIGH for one in held)
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_a_port_that_is_held_is_not_chosen() -> None:
    port = quiet_port()
    with socket.create_server(("127.0.0.1", port)):
        assert quiet_port(port, port + 2) == port + 1
        with pytest.raises(OSError, match=f"no free port between {port} and {port}"):
            quiet_port(port, port + 1)
