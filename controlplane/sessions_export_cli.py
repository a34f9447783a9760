"""``specdeck record export`` and ``import``: sessions as files, and files as sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from controlplane.client import DEFAULT_URL
from controlplane.sessions_terminal import Database, File, counter, session_number, told
from controlplane.terminal import USAGE, TokenFile, Url, ask_control_plane, say, show
from store.errors import StoreError


def export_session(
    name: Annotated[str | None, typer.Argument(help="The session's name.")] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write.")] = None,
    redact: Annotated[bool, typer.Option(help="Replace names and URLs by digests.")] = False,
    form: Annotated[
        str, typer.Option("--format", help="specdeck, jsonl, csv or parquet.")
    ] = "specdeck",
    engine: Annotated[str | None, typer.Option(help="With --database: a range of it.")] = None,
    first: Annotated[int, typer.Option(min=1, help="First observation.")] = 1,
    last: Annotated[int | None, typer.Option(min=1, help="Last observation.")] = None,
    session: Annotated[Path | None, typer.Option(help="Convert this session file.")] = None,
    database: Database = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """A session as one portable file, or as rows for other tools."""
    from store.session_formats import write
    from store.session_reader import SessionFile
    from store.session_schema import SUFFIX

    if session is None and name is None and engine is None:
        say("say what to export: a NAME, or --engine with --database, or --session FILE")
        raise typer.Exit(USAGE)
    label = name or engine or (session.stem if session is not None else "")
    ending = SUFFIX if form == "specdeck" else f".{form}"
    target = out or Path(f"{label}{ending}")
    with told():
        made = target if form == "specdeck" else target.with_name(target.name + ".tmp" + SUFFIX)
        if session is not None:
            made = session
        elif database is not None:
            _export_stored(database, name, engine, first, last, made, redact=redact)
        else:
            _download(url, token_file, str(name), made, redact=redact)
        if form != "specdeck":
            try:
                with SessionFile.open(made) as opened:
                    write(opened, target, form)
            finally:
                if session is None:
                    made.unlink(missing_ok=True)
    show(str(target))


def _export_stored(
    database: str,
    name: str | None,
    engine: str | None,
    first: int,
    last: int | None,
    path: Path,
    *,
    redact: bool,
) -> None:
    from controlplane.version import VERSION
    from store.db import Store
    from store.session_export import Range, export, range_of
    from store.session_reader import LAST

    with Store.open(database, read_only=True) as store:
        if engine is not None:
            wanted = Range(engine, name or engine, first, LAST if last is None else last)
        else:
            wanted = range_of(store, str(name))
        done = export(
            store, wanted, path, redact=redact, version=VERSION, progress=counter("ticks")
        )
    say(f"{done.ticks} ticks, {done.skipped} damaged rows skipped")


def _download(url: str, token_file: Path | None, name: str, path: Path, *, redact: bool) -> None:
    if path.exists():
        raise StoreError(f"{path} exists: choose another name, or remove it first")

    async def fetch(client: Any) -> bytes:
        body: bytes = await client.session_file(await session_number(client, name), redact=redact)
        return body

    path.write_bytes(ask_control_plane(url, token_file, fetch))


def import_session(
    file: File,
    database: Annotated[
        str, typer.Option(help="The database (path or URL) to put it into; not in use.")
    ],
    engine: Annotated[str | None, typer.Option(help="Engine id to store it under.")] = None,
) -> None:
    """Put a session file's records into a database, under an engine id of its own."""
    from store.db import Store
    from store.session_export import bring_in
    from store.session_reader import SessionFile

    with told(), SessionFile.open(file) as session, Store.open(database) as store:
        under = engine or session.meta.get("name") or file.stem
        done = bring_in(store, session, under)
    show(f"{done.ticks} ticks under engine {under}; {done.skipped} damaged rows skipped")
