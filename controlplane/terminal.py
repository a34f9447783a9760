"""What every command line of the control plane shares: exit codes, options, talking to it.

Output goes to stdout, everything else to stderr.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from pydantic import BaseModel

from controlplane.client import (
    ControlPlaneClient,
    ControlPlaneError,
    NotConfirmedError,
    RefusedError,
    UnauthorisedError,
    UnreachableError,
)
from controlplane.durations import parse_duration

OK = 0
USAGE = 2
UNREACHABLE = 3
REFUSED = 4
CANNOT_START = 5
DEGRADED = 6
INTERRUPTED = 130

T = TypeVar("T")

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
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check and show it; change nothing.")]
Reason = Annotated[str, typer.Option(help="Why; it is recorded.")]
Wait = Annotated[
    str | None, typer.Option(help="Wait so long until every observed rank does what is asked for.")
]
Engine = Annotated[str, typer.Argument(help="The engine's id; specdeck status lists them.")]
Author = Annotated[str, typer.Option(help="Who asks.", show_default="the user's login name")]


def run_app(app: typer.Typer, argv: list[str], name: str) -> int:
    """Run one command line and return its exit code."""
    try:
        app(args=argv, prog_name=name)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else OK
    return OK


def say(text: str) -> None:
    """A line for a person, on stderr."""
    sys.stderr.write(f"specdeck: {text}\n")
    sys.stderr.flush()


def show(text: str) -> None:
    """What was asked for, on stdout."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    sys.stdout.flush()


def show_list(records: Iterable[BaseModel]) -> None:
    """Records as one JSON array, on stdout."""
    show(json.dumps([one.model_dump(mode="json") for one in records]))


def ask_control_plane(
    url: str, token_file: Path | None, ask: Callable[[ControlPlaneClient], Awaitable[T]]
) -> T:
    """Put one question to the control plane; trouble becomes a sentence and an exit code."""

    async def talk() -> T:
        async with ControlPlaneClient(url, read_token(token_file)) as client:
            return await ask(client)

    try:
        return asyncio.run(talk())
    except UnreachableError as error:
        code = UNREACHABLE
        say(str(error))
    except UnauthorisedError as error:
        code = REFUSED
        say(f"{error} (--token-file or SPECDECK_TOKEN)")
    except RefusedError as error:
        code = REFUSED
        say(str(error))
    except NotConfirmedError as error:
        code = DEGRADED
        say(str(error))
    except ControlPlaneError as error:
        code = USAGE
        say(str(error))
    raise typer.Exit(code)


def read_token(file: Path | None) -> str | None:
    """The token from its file, else from the environment; None without one."""
    if file is None:
        return os.environ.get("SPECDECK_TOKEN", "").strip() or None
    try:
        return file.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        say(f"cannot read the token file {file}: {getattr(error, 'strerror', None) or 'not text'}")
        raise typer.Exit(USAGE) from error


def read_wait(text: str | None) -> float | None:
    """The seconds of ``--wait``; None without it."""
    return None if text is None else read_seconds(text, "--wait")


def read_seconds(text: str, option: str) -> float:
    """An option's length of time."""
    try:
        return parse_duration(text)
    except ValueError as error:
        say(f"{option}: {error}")
        raise typer.Exit(USAGE) from error


def as_usage(error: ValueError) -> typer.Exit:
    """A refused request body as a usage error."""
    details = getattr(error, "errors", None)
    if details is None:
        say(str(error))
    else:
        for detail in details(include_url=False, include_input=False):
            place = ".".join(str(part) for part in detail["loc"])
            message = str(detail["msg"]).removeprefix("Value error, ")
            say(f"{place}: {message}" if place else message)
    return typer.Exit(USAGE)


def checked(build: Callable[[], T]) -> T:
    """What ``build`` makes; what is wrong with its values becomes a usage error."""
    try:
        return build()
    except ValueError as error:
        raise as_usage(error) from error


def login() -> str:
    """The user's name on this machine."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
