"""What the command lines of recordings share: arguments, told trouble, progress, names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from controlplane.terminal import CANNOT_START, INTERRUPTED, say
from store.errors import StoreError

File = Annotated[Path, typer.Argument(help="A session file, NAME.specdeck.")]
Name = Annotated[str, typer.Argument(help="The session's name.")]
Database = Annotated[
    str | None,
    typer.Option(help="A control plane's database (path or URL), instead of a running one."),
]


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


async def session_number(client: Any, name: str) -> int:
    from controlplane.client import RefusedError

    sessions = await client.sessions()
    for one in sessions:
        if one.name == name:
            return int(one.id)
    known = ", ".join(one.name for one in sessions) or "none"
    raise RefusedError(f"there is no session {name!r}; sessions are: {known}")


def write_new(path: Path, text: str) -> None:
    """Write a file that must not exist yet."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise StoreError(f"{path} exists: choose another name, or remove it first") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
    say(f"wrote {path}")
