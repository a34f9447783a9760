"""What ``specdeck replay FILE`` does: serve one recording on loopback until a signal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from controlplane.replay_api import create_replay_app
from controlplane.replay_desk import ReplayDesk
from controlplane.server import CannotListenError, bind, make_server
from store.errors import StoreError
from store.session_reader import SessionFile

HOST = "127.0.0.1"


def serve_forever(file: Path, port: int, *, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        ready: told the URL once requests are answered.

    Raises:
        StoreError: the file cannot be replayed, or the port is taken.
    """
    with SessionFile.open(file) as session:
        desk = ReplayDesk(session)
        try:
            sock = bind(HOST, port)
        except CannotListenError as error:
            raise StoreError(str(error)) from error
        with sock:
            url = f"http://{HOST}:{sock.getsockname()[1]}"
            server = make_server(create_replay_app(desk), desk.hub, on_ready=lambda: ready(url))
            asyncio.run(server.serve(sockets=[sock]))
