"""Command lines of recordings: record, replay, what-if, compare, report.

Output goes to stdout, everything else to stderr.  What only some of them need is imported there:
``specdeck replay`` loads no engine client.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from controlplane.terminal import (
    CANNOT_START,
    DEGRADED,
    INTERRUPTED,
    USAGE,
    Author,
    Json,
    TokenFile,
    Url,
    ask_control_plane,
    login,
    read_seconds,
    run_app,
    say,
    show,
    show_list,
)
from store.errors import StoreError

MISSING_EXTRA = 7
DEFAULT_URL = "http://127.0.0.1:7311"
File = Annotated[Path, typer.Argument(help="A session file, NAME.specdeck.")]
Name = Annotated[str, typer.Argument(help="The session's name.")]
Database = Annotated[
    str | None,
    typer.Option(help="A control plane's database (path or URL), instead of a running one."),
]

record_app = typer.Typer(help="Name, list, export and import recordings; headless recording.")
replay_app = typer.Typer()
what_if_app = typer.Typer()
compare_app = typer.Typer()
report_app = typer.Typer()


def run_record(argv: list[str]) -> int:
    """``specdeck record``."""
    return run_app(record_app, argv, "specdeck record")


def run_replay(argv: list[str]) -> int:
    """``specdeck replay``."""
    return run_app(replay_app, argv, "specdeck replay")


def run_what_if(argv: list[str]) -> int:
    """``specdeck what-if``."""
    return run_app(what_if_app, argv, "specdeck what-if")


def run_compare(argv: list[str]) -> int:
    """``specdeck compare``."""
    return run_app(compare_app, argv, "specdeck compare")


def run_report(argv: list[str]) -> int:
    """``specdeck report``."""
    return run_app(report_app, argv, "specdeck report")


@contextmanager
def told() -> Iterator[None]:
    """Trouble with a file becomes a sentence and an exit code."""
    try:
        yield
    except StoreError as error:
        say(str(error))
        raise typer.Exit(CANNOT_START) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(INTERRUPTED) from error


def counter(what: str) -> Callable[[int], None]:
    """Shows a rising number on a terminal; nothing elsewhere."""

    def tell(count: int) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{what} {count} ")
            sys.stderr.flush()

    return tell


# -- record ---------------------------------------------------------------------------------------


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
        number = await _number(client, name)
        found: SessionInfo = await client.stop_session(
            number, StopSession(author=author or login())
        )
        return found

    done = ask_control_plane(url, token_file, end)
    show(done.model_dump_json() if as_json else f"session {done.name!r} ended")


async def _number(client: Any, name: str) -> int:
    from controlplane.client import RefusedError

    sessions = await client.sessions()
    for one in sessions:
        if one.name == name:
            return int(one.id)
    known = ", ".join(one.name for one in sessions) or "none"
    raise RefusedError(f"there is no session {name!r}; sessions are: {known}")


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


@record_app.command("export")
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
        body: bytes = await client.session_file(await _number(client, name), redact=redact)
        return body

    path.write_bytes(ask_control_plane(url, token_file, fetch))


@record_app.command("import")
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


# -- replay ---------------------------------------------------------------------------------------


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


# -- what-if --------------------------------------------------------------------------------------


@what_if_app.command()
def what_if(
    files: Annotated[list[Path], typer.Argument(help="Session files.")],
    policy: Annotated[Path | None, typer.Option(help="A policy file, TOML or JSON.")] = None,
    edit: Annotated[
        list[str] | None, typer.Option("--set", help="boundaries.0.up_at=32; may be repeated.")
    ] = None,
    load: Annotated[str, typer.Option(help="recorded or arrivals.")] = "recorded",
    table: Annotated[Path | None, typer.Option(help="A step-cost table, JSON.")] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(help="boundaries.0.up_at=16:64:8 or up_hold_s=1,2,4; may be repeated."),
    ] = None,
    hold_out: Annotated[
        float, typer.Option(min=0, max=0.9, help="Share of the sessions not chosen on.")
    ] = 0.0,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes.")] = 2,
    out: Annotated[Path | None, typer.Option(help="Write the policy as a file.")] = None,
    as_json: Json = False,
) -> None:
    """What would another policy have done? With --grid: which thresholds would have been best?"""
    from controlplane.sessions_text import grid_text, what_if_text
    from controlplane.whatif_answer import answer, config_of, subject_of, with_policy
    from controlplane.whatif_estimate import LoadModel
    from controlplane.whatif_grid import parse_axis, search
    from controlplane.whatif_policy import edited, policy_text, read_policy
    from store.session_reader import SessionFile

    try:
        model = LoadModel(load)
    except ValueError as error:
        say("--load is recorded or arrivals")
        raise typer.Exit(USAGE) from error
    with told():
        costs = None if table is None else _table(table)
        with SessionFile.open(files[0]) as session:
            base = read_policy(policy) if policy is not None else config_of(session).policy.policy
        base = edited(base, edit or [])
        if grid:
            tell = counter("points")
            found = search(
                files,
                base,
                [parse_axis(axis) for axis in grid],
                costs=costs,
                hold_out=hold_out,
                workers=workers,
                progress=lambda done, _: tell(done),
            )
            show(found.model_dump_json() if as_json else grid_text(found))
            chosen, comment = found.best.policy, f"least regret over {', '.join(found.sessions)}"
        else:
            answers = []
            for file in files:
                with SessionFile.open(file) as session:
                    subject = subject_of(session, costs)
                answers.append(answer(subject, with_policy(subject.config, base), model))
            if as_json:
                show_list(answers)
            else:
                for file, one in zip(files, answers, strict=True):
                    show(what_if_text(file.name, one))
            chosen, comment = base, "asked of " + ", ".join(file.name for file in files)
        if out is not None:
            _write(out, policy_text(chosen, comment))


def _table(path: Path) -> Any:
    from pydantic import TypeAdapter, ValidationError

    from engine_patch.costs import StepCost
    from store.records import CostTable

    try:
        body = path.read_bytes()
        whole = json.loads(body)
        if isinstance(whole, dict):
            return CostTable.model_validate(whole).costs
        return TypeAdapter(tuple[StepCost, ...]).validate_python(whole)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, ValidationError) as error:
        raise StoreError(f"{path} is no step-cost table: a CostTable, or its cells") from error


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise StoreError(f"{path} exists: choose another name, or remove it first") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
    say(f"wrote {path}")


# -- compare, report ------------------------------------------------------------------------------


@compare_app.command()
def compare(
    one: File,
    other: File,
    anyway: Annotated[bool, typer.Option(help="Compare different setups too.")] = False,
    as_json: Json = False,
) -> None:
    """Two sessions at the same load: tokens per second, accept length, switches."""
    from controlplane.sessions_compare import compare as compared
    from controlplane.sessions_text import comparison_text
    from controlplane.whatif_answer import subject_of
    from store.session_reader import SessionFile

    with told(), SessionFile.open(one) as left, SessionFile.open(other) as right:
        found = compared(subject_of(left), subject_of(right), anyway=anyway)
    show(found.model_dump_json() if as_json else comparison_text(found))


@report_app.command()
def report(
    file: File,
    out: Annotated[Path | None, typer.Option(help="The page to write; default NAME.html.")] = None,
) -> None:
    """A session as one self-contained HTML page."""
    from controlplane.sessions_report import render
    from controlplane.version import VERSION
    from store.session_reader import SessionFile

    target = out or file.with_suffix(".html")
    with told():
        with SessionFile.open(file) as session:
            page = render(session, VERSION)
        _write(target, page)
    show(str(target))
