"""``specdeck record``: name, stop, list and mark recordings; record without a control plane.

Its work on files is in ``controlplane.sessions_export_cli``.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from controlplane.client import DEFAULT_URL
from controlplane.sessions_export_cli import export_session, import_session
from controlplane.sessions_terminal import Database, Name, counter, session_number, told
from controlplane.terminal import (
    USAGE,
    Author,
    Json,
    TokenFile,
    Url,
    ask_control_plane,
    login,
    read_seconds,
    say,
    show,
    show_list,
)

record_app = typer.Typer(help="Name, list, export and import recordings; headless recording.")


@record_app.command("start")
def start(
    name: Name,
    engine: Annotated[
        str | None, typer.Option(help="The engine's id on the control plane.")
    ] = None,
    server: Annotated[
        str | None, typer.Option(help="Record this SGLang server directly, patched or not.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="With --server: the file to write.")] = None,
    length: Annotated[str | None, typer.Option("--for", help="With --server: 90s, 10m.")] = None,
    poll_s: Annotated[float, typer.Option(min=0.05, help="With --server: seconds per poll.")] = 0.5,
    max_mb: Annotated[int | None, typer.Option(min=1, help="With --server: size bound.")] = None,
    author: Author = "",
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Name what a control plane records from now on, or record a server into a file."""
    if (engine is None) == (server is None):
        say("give --engine ID (on a control plane) or --server URL (headless)")
        raise typer.Exit(USAGE)
    if server is not None:
        _headless(name, server, out, length, poll_s, max_mb)
        return
    from controlplane.sessions_messages import StartSession

    request = StartSession(engine_id=str(engine), name=name, author=author or login())
    done = ask_control_plane(url, token_file, lambda client: client.start_session(request))
    show(done.model_dump_json() if as_json else f"session {done.id} {done.name!r} is recorded")


def _headless(
    name: str,
    server: str,
    out: Path | None,
    length: str | None,
    poll_s: float,
    max_mb: int | None,
) -> None:
    from controlplane.sessions_headless import record
    from store.session_schema import SUFFIX

    path = out or Path(f"{name}{SUFFIX}")
    seconds = None if length is None else read_seconds(length, "--for")
    with told():
        say(f"recording {server} into {path}; ctrl+c ends it")
        with suppress(KeyboardInterrupt):
            asyncio.run(
                record(
                    server,
                    path,
                    engine_id=name,
                    seconds=seconds,
                    poll_s=poll_s,
                    max_bytes=None if max_mb is None else max_mb * 1_000_000,
                    progress=counter("observations"),
                )
            )
        show(str(path))


@record_app.command("stop")
def stop(
    name: Name,
    author: Author = "",
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """End a named session."""
    from controlplane.sessions_messages import SessionInfo, StopSession

    async def end(client: Any) -> SessionInfo:
        number = await session_number(client, name)
        found: SessionInfo = await client.stop_session(
            number, StopSession(author=author or login())
        )
        return found

    done = ask_control_plane(url, token_file, end)
    show(done.model_dump_json() if as_json else f"session {done.name!r} ended")


@record_app.command("list")
def list_sessions(
    database: Database = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Named sessions, newest first."""
    if database is not None:
        from controlplane.sessions_routes import info
        from store.db import Store

        with told(), Store.open(database, read_only=True) as store:
            found = [info(one) for one in store.sessions()]
    else:
        found = ask_control_plane(url, token_file, lambda client: client.sessions())
    if as_json:
        show_list(found)
        return
    for one in found:
        state = "ended" if one.complete else "recording"
        last = "-" if one.last_seq is None else one.last_seq
        show(f"{one.name}  {one.engine_id}  observations {one.first_seq} to {last}  {state}")
    if not found:
        show("no sessions")


record_app.command("export")(export_session)
record_app.command("import")(import_session)


@record_app.command("marker")
def marker(
    engine: Annotated[str, typer.Argument(help="The engine's id.")],
    kind: Annotated[str, typer.Option(help="One word: deploy, incident, ...")],
    text: Annotated[str, typer.Option(help="What happened.")] = "",
    author: Author = "",
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Note something on an engine's time line."""
    from controlplane.sessions_messages import MarkerRequest

    request = MarkerRequest(kind=kind, text=text, author=author or login())
    done = ask_control_plane(url, token_file, lambda client: client.add_marker(engine, request))
    show(f"marker at observation {done.seq}")
