"""The command ``specdeck console``.  Exit codes: ``docs/cli.md``."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import os
import sys
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path

from controlplane.client import (
    DEFAULT_URL,
    ControlPlaneClient,
    ControlPlaneError,
    UnauthorisedError,
    UnreachableError,
)
from controlplane.messages import About, EngineStatus

OK = 0
USAGE = 2
UNREACHABLE = 3
REFUSED = 4
CANNOT_START = 5


def run(argv: Sequence[str]) -> int:
    """Open the console on a control plane; returns the exit code."""
    try:
        words = _parser().parse_args(list(argv))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else USAGE
    words.url = words.url_option or words.url
    try:
        token = _token(words.token_file)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        return _fail(USAGE, f"cannot read the token file {words.token_file}: {reason}")
    try:
        client = ControlPlaneClient(words.url, token)
    except ControlPlaneError as error:
        return _fail(USAGE, str(error))
    try:
        about, engines = asyncio.run(_first_look(client))
    except UnauthorisedError as error:
        return _fail(REFUSED, f"{error} (--token-file or SPECDECK_TOKEN)")
    except UnreachableError as error:
        return _fail(
            UNREACHABLE,
            f"{error}",
            "  specdeck serve        starts a control plane for your engines",
            "  specdeck demo         shows everything without a GPU",
            "  specdeck console URL  opens the console of another one",
        )
    except ControlPlaneError as error:
        return _fail(REFUSED, str(error))
    ids = [status.engine.engine_id for status in engines]
    if not ids:
        return _fail(
            CANNOT_START,
            f"the control plane at {words.url} looks after no engine: "
            "start it with 'specdeck serve --engine URL'",
        )
    if words.engine is not None and words.engine not in ids:
        return _fail(
            USAGE,
            f"the control plane at {words.url} knows no engine {words.engine!r}; "
            f"it has {', '.join(ids)}",
        )
    # Textual draws on stderr.
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return _fail(
            CANNOT_START,
            "the console needs a terminal; 'specdeck status --json' prints the same for a script",
        )
    return _show(words, token, about, engines)


def _show(
    words: argparse.Namespace, token: str | None, about: About, engines: list[EngineStatus]
) -> int:
    # Textual is loaded only once it is known that there is something to show.
    from console.app import Console, Options

    options = Options(
        engine_id=words.engine or engines[0].engine.engine_id,
        readonly=words.readonly,
        ascii=words.ascii,
        author=words.author or _login(),
        zone=UTC if words.utc else None,
        no_color=bool(os.environ.get("NO_COLOR")),
    )
    app = Console(ControlPlaneClient(words.url, token), options)
    app.about, app.engines = about, tuple(engines)
    app.run()
    return app.return_code or OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specdeck console", description="Watch and steer engines on a live screen."
    )
    parser.add_argument(
        "url",
        nargs="?",
        default=os.environ.get("SPECDECK_URL", DEFAULT_URL),
        help="the control plane (SPECDECK_URL; default: %(default)s)",
    )
    parser.add_argument("--url", dest="url_option", metavar="URL", help="the same, as an option")
    parser.add_argument("--engine", metavar="ID", help="the engine to begin with")
    parser.add_argument("--readonly", action="store_true", help="look, change nothing")
    parser.add_argument("--ascii", action="store_true", help="draw with ASCII alone")
    parser.add_argument("--utc", action="store_true", help="show times in UTC, not local time")
    parser.add_argument("--author", metavar="NAME", help="who acts (default: your login name)")
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        default=os.environ.get("SPECDECK_TOKEN_FILE"),
        help="file with a token (SPECDECK_TOKEN_FILE); SPECDECK_TOKEN holds one directly",
    )
    return parser


def _token(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get("SPECDECK_TOKEN", "").strip() or None
    return Path(file).expanduser().read_text(encoding="utf-8").strip() or None


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        # A container without a user database has no login name.
        return "operator"


async def _first_look(client: ControlPlaneClient) -> tuple[About, list[EngineStatus]]:
    """Who answers and which engines there are, before the screen is taken."""
    async with client:
        return await client.about(), await client.engines()


def _fail(code: int, *lines: str) -> int:
    sys.stderr.write(f"specdeck console: {lines[0]}\n" + "".join(f"{text}\n" for text in lines[1:]))
    return code
