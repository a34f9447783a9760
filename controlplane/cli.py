"""The commands ``serve``, ``status`` and ``override``.  Exit codes: ``docs/cli.md``.

Output goes to stdout, everything else to stderr.  Each command imports what it needs when it runs:
a client command loads nothing of the server.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from controlplane.client import (
    DEFAULT_URL,
    ControlPlaneClient,
    ControlPlaneError,
    NotConfirmedError,
    RefusedError,
    UnauthorisedError,
    UnreachableError,
)
from controlplane.durations import parse_duration
from controlplane.messages import (
    About,
    EngineStatus,
    ExtendRequest,
    OverrideRequest,
    ReleaseRequest,
)
from engine_patch.contract import Mode
from store.records import Guards, Override

OK = 0
USAGE = 2
UNREACHABLE = 3
REFUSED = 4
CANNOT_START = 5
DEGRADED = 6

T = TypeVar("T")

serve_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
status_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
override_app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, help="Operators' overrides."
)

Url = Annotated[str, typer.Option("--url", envvar="SPECDECK_URL", help="The control plane.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="SPECDECK_TOKEN_FILE",
        help="File with a token; SPECDECK_TOKEN holds one directly.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Engine = Annotated[str, typer.Argument(help="The engine's id; specdeck status lists them.")]
Author = Annotated[str, typer.Option(help="Who asks.", show_default="the user's login name")]


def run_serve(argv: list[str]) -> int:
    """Run the control plane."""
    return _run(serve_app, argv, "specdeck serve")


def run_status(argv: list[str]) -> int:
    """Print what the control plane sees."""
    return _run(status_app, argv, "specdeck status")


def run_override(argv: list[str]) -> int:
    """Set, extend or release an override."""
    return _run(override_app, argv, "specdeck override")


def _run(app: typer.Typer, argv: list[str], name: str) -> int:
    try:
        app(args=argv, prog_name=name)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else OK
    return OK


def _say(text: str) -> None:
    sys.stderr.write(f"specdeck: {text}\n")
    sys.stderr.flush()


def _print(text: str) -> None:
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    sys.stdout.flush()


def _print_ready(url: str) -> None:
    _print(json.dumps({"ready": True, "url": url, "pid": os.getpid()}))


@serve_app.command()
def serve(
    config: Annotated[
        Path | None, typer.Option(help="TOML file; docs/settings.md lists its keys.")
    ] = None,
    engine: Annotated[
        list[str] | None,
        typer.Option(help="URL of an engine; again for each further one. Replaces the list."),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    database: Annotated[str | None, typer.Option(help="SQLite file of the store.")] = None,
    verbose: Annotated[bool, typer.Option(help="Log more to stderr.")] = False,
) -> None:
    """Run the control plane: poll the engines, decide, record, command, serve the API.

    Prints one JSON object with its URL once it serves; stops on SIGINT or SIGTERM.
    """
    from controlplane.serving import CannotStartError, serve_forever

    listen = {key: value for key, value in (("host", host), ("port", port)) if value is not None}
    arguments: dict[str, object] = {}
    if listen:
        arguments["listen"] = listen
    if engine:
        arguments["engines"] = [{"url": url} for url in engine]
    if database is not None:
        arguments["database"] = database
    try:
        serve_forever(config, arguments, verbose=verbose, say=_say, ready=_print_ready)
    except CannotStartError as error:
        for line in str(error).splitlines():
            _say(line)
        raise typer.Exit(CANNOT_START) from error


@status_app.command()
def status(
    engine: Annotated[str | None, typer.Argument(help="One engine's id; all if left out.")] = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Print what the control plane sees; exits with 6 when an engine is degraded."""
    from controlplane import report

    async def ask(client: ControlPlaneClient) -> tuple[About, list[EngineStatus]]:
        about = await client.about()
        if engine is not None:
            return about, [await client.engine(engine)]
        return about, await client.engines()

    about, statuses = _ask(url, token_file, ask)
    troubles = {one.engine.engine_id: report.degraded(one) for one in statuses}
    if as_json:
        document = {
            "about": about.model_dump(mode="json"),
            "engines": [one.model_dump(mode="json") for one in statuses],
            "degraded": {name: found for name, found in troubles.items() if found},
        }
        _print(json.dumps(document))
    else:
        _print(report.text(about, statuses))
    if any(troubles.values()):
        raise typer.Exit(DEGRADED)


@override_app.command("set")
def set_override(
    engine: Engine,
    mode: Annotated[Mode, typer.Option(help="on, off, or auto (the engine's own thresholds).")],
    length: Annotated[str, typer.Option("--for", help="How long: 90s, 10m, 1h30m.")],
    reason: Annotated[str, typer.Option(help="Why; it is recorded.")],
    tier: Annotated[str | None, typer.Option(help="With mode on: the tier, like s3k1d4.")] = None,
    guards: Annotated[
        Guards, typer.Option(help="Whether KV and retraction guards may still act.")
    ] = Guards.KEEP,
    author: Author = "",
    wait: Annotated[
        str | None, typer.Option(help="Wait so long for every observed rank to confirm it.")
    ] = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Overrule automation for a limited time; replaces an override in force."""
    try:
        request = OverrideRequest(
            mode=mode,
            tier=tier,
            length_s=_seconds(length, "--for"),
            author=author or _login(),
            reason=reason,
            guards=guards,
        )
    except ValueError as error:
        raise _usage(error) from error
    wait_s = None if wait is None else _seconds(wait, "--wait")
    done = _ask(url, token_file, lambda client: client.set_override(engine, request, wait_s=wait_s))
    _show(done, as_json)


@override_app.command("extend")
def extend_override(
    engine: Engine,
    by: Annotated[str, typer.Option("--by", help="How much longer: 90s, 10m, 1h30m.")],
    reason: Annotated[str, typer.Option(help="Why; it is recorded.")] = "",
    author: Author = "",
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Give the override in force a later end."""
    try:
        request = ExtendRequest(
            extra_s=_seconds(by, "--by"), author=author or _login(), reason=reason
        )
    except ValueError as error:
        raise _usage(error) from error
    _show(_ask(url, token_file, lambda client: client.extend_override(engine, request)), as_json)


@override_app.command("release")
def release_override(
    engine: Engine,
    reason: Annotated[str, typer.Option(help="Why; it is recorded.")] = "",
    author: Author = "",
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """End the override in force; automation takes over at once."""
    try:
        request = ReleaseRequest(author=author or _login(), reason=reason)
    except ValueError as error:
        raise _usage(error) from error
    _show(_ask(url, token_file, lambda client: client.release_override(engine, request)), as_json)


def _show(override: Override | None, as_json: bool) -> None:
    from controlplane.report import override_line

    if as_json:
        shown = None if override is None else override.model_dump(mode="json")
        _print(json.dumps({"override": shown}))
    elif override is None:
        _print("no override is in force")
    else:
        left = (override.expires_utc_ms - override.created_utc_ms) / 1000
        _print(f"override {override.id}: {override_line(override, left)}")


def _ask(url: str, token_file: Path | None, ask: Callable[[ControlPlaneClient], Awaitable[T]]) -> T:
    """Put one question to the control plane; trouble becomes a sentence and an exit code."""

    async def talk() -> T:
        async with ControlPlaneClient(url, _token(token_file)) as client:
            return await ask(client)

    try:
        return asyncio.run(talk())
    except UnreachableError as error:
        code = UNREACHABLE
        _say(str(error))
    except UnauthorisedError as error:
        code = REFUSED
        _say(f"{error} (--token-file or SPECDECK_TOKEN)")
    except RefusedError as error:
        code = REFUSED
        _say(str(error))
    except NotConfirmedError as error:
        code = DEGRADED
        _say(str(error))
    except ControlPlaneError as error:
        code = USAGE
        _say(str(error))
    raise typer.Exit(code)


def _token(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get("SPECDECK_TOKEN", "").strip() or None
    try:
        return file.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        _say(f"cannot read the token file {file}: {getattr(error, 'strerror', None) or 'not text'}")
        raise typer.Exit(USAGE) from error


def _seconds(text: str, option: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        _say(f"{option}: {error}")
        raise typer.Exit(USAGE) from error


def _usage(error: ValueError) -> typer.Exit:
    """A refused request body as a usage error."""
    details = getattr(error, "errors", None)
    if details is None:
        _say(str(error))
    else:
        for detail in details(include_url=False, include_input=False):
            place = ".".join(str(part) for part in detail["loc"])
            message = str(detail["msg"]).removeprefix("Value error, ")
            _say(f"{place}: {message}" if place else message)
    return typer.Exit(USAGE)


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
