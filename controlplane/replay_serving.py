"""What ``specdeck replay FILE`` does: serve one recording on loopback until a signal.

python -m controlplane.replay_serving FILE     for a console: ends when its standard input does
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from controlplane.replay_api import create_replay_app
from controlplane.replay_desk import ReplayDesk
from controlplane.server import CannotListenError, Server, bind, make_server
from store.errors import StoreError
from store.session_reader import SessionFile

HOST = "127.0.0.1"
CANNOT_START = 5


def serve_forever(
    file: Path, port: int, *, ready: Callable[[str], None], tied: bool = False
) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        ready: told the URL once requests are answered.
        tied: end with standard input too, which closes with the process that holds it, however
            that one ends.

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
            if tied:
                threading.Thread(target=_end_with_input, args=(server,), daemon=True).start()
            asyncio.run(server.serve(sockets=[sock]))


def _end_with_input(server: Server) -> None:
    # Not through sys.stdin, whose lock would be held while the interpreter ends.
    while os.read(0, 4096):
        pass
    server.should_exit = True


def main() -> int:
    """Serve the file named on the command line to the process that started this one."""

    def ready(url: str) -> None:
        sys.stdout.write(json.dumps({"ready": True, "url": url}) + "\n")
        sys.stdout.flush()

    try:
        serve_forever(Path(sys.argv[1]), 0, ready=ready, tied=True)
    except StoreError as error:
        sys.stderr.write(f"{error}\n")
        return CANNOT_START
    return 0


if __name__ == "__main__":
    sys.exit(main())
