"""``specdeck replay``: the console on a recording, its API, or the recorded policy run again."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from controlplane.sessions_terminal import File, counter, told
from controlplane.terminal import DEGRADED, USAGE, Json, say, show

MISSING_EXTRA = 7

replay_app = typer.Typer()


@replay_app.command()
def replay(
    file: File,
    check: Annotated[
        bool, typer.Option("--verify", help="Run the recorded policy again and compare.")
    ] = False,
    serve: Annotated[
        bool,
        typer.Option(
            "--serve", "--headless", help="No screen: serve the replay's API on loopback."
        ),
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Serve on it; 0: any.")] = 0,
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Draw with ASCII alone.")] = False,
    utc: Annotated[bool, typer.Option("--utc", help="Show times in UTC.")] = False,
    as_json: Json = False,
) -> None:
    """Replay a recording: no database, no engine, no network beyond this machine.

    On a terminal it opens the console on it. Without one, or with --serve, --port or --json, it
    serves the paths and bodies of a control plane, read-only, and prints its URL. With --verify it
    compares instead, and exits with 6 if a verdict differs.
    """
    if check and serve:
        say("give --verify or --serve, not both")
        raise typer.Exit(USAGE)
    with told():
        if check:
            _verify(file, as_json)
        elif serve or port or as_json or not _on_a_terminal():
            from controlplane.replay_serving import serve_forever

            serve_forever(file, port, ready=_say_ready)
        else:
            raise typer.Exit(_open_console(file, ascii_only=ascii_only, utc=utc))


def _on_a_terminal() -> bool:
    # Textual draws on stderr; who reads stdout by a pipe wants the URL.
    return sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()


def _open_console(file: Path, *, ascii_only: bool, utc: bool) -> int:
    # By its name, as the dispatcher finds a command: nothing here builds on the console.
    if find_spec("textual") is None:
        say("the screen is not installed: pip install 'specdeck[console]'; --serve needs none")
        return MISSING_EXTRA
    shown: int = import_module("console.replay_cli").show(file, ascii_only=ascii_only, utc=utc)
    return shown


def _say_ready(url: str) -> None:
    show(json.dumps({"ready": True, "url": url}))


def _verify(file: Path, as_json: bool) -> None:
    from controlplane.replay_verify import verify
    from controlplane.sessions_text import verification_text
    from store.session_reader import SessionFile

    with SessionFile.open(file) as session:
        found = verify(session, progress=counter("ticks"))
    show(found.model_dump_json() if as_json else verification_text(found))
    if not found.identical:
        raise typer.Exit(DEGRADED)
