"""The command ``specdeck console``.  Exit codes: ``docs/cli.md``."""

from __future__ import annotations

import argparse
import asyncio
import gc
import getpass
import os
import sys
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path

from console.config import ConsoleConfig, ConsoleConfigError, read_config
from console.places import FIRST, PLACES
from controlplane.client import (
    DEFAULT_URL,
    ControlPlaneClient,
    ControlPlaneError,
    UnauthorisedError,
    UnreachableError,
)
from controlplane.messages import About

OK = 0
USAGE = 2
UNREACHABLE = 3
REFUSED = 4
CANNOT_START = 5
NAMED = 12
"""Engines named in a message."""
PICTURES_PER_S = 120
"""At most: a key right after a picture waits for up to two frames, 33 ms at Textual's usual 60."""


def run(argv: Sequence[str]) -> int:
    """Open the console on a control plane; returns the exit code."""
    try:
        words = parser("specdeck console").parse_args(list(argv))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else USAGE
    if words.keys:
        from console.keymap import table

        sys.stdout.write(table())
        return OK
    return start(words)


def start(words: argparse.Namespace) -> int:
    """Open the console as the parsed ``words`` say."""
    # What is loaded until the first picture stays for good: looking through it for garbage again
    # and again takes a tenth of the time to that picture.
    gc.disable()
    try:
        return _opened(words)
    finally:
        gc.enable()


def _opened(words: argparse.Namespace) -> int:
    words.url = words.url_option or words.url
    try:
        config = read_config(words.config)
        if config.keymap:
            from console.keymap import check

            check(config.keymap)
    except ConsoleConfigError as error:
        return _fail(USAGE, str(error))
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
        about, ids = asyncio.run(_first_look(client))
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
            f"it has {', '.join(ids[:NAMED])}{'' if len(ids) <= NAMED else ', ...'}",
        )
    # Textual draws on stderr; in a browser there is no terminal at all.
    in_browser = "WebDriver" in os.environ.get("TEXTUAL_DRIVER", "")
    if not in_browser and not (sys.stdin.isatty() and sys.stderr.isatty()):
        return _fail(
            CANNOT_START,
            "the console needs a terminal; 'specdeck status --json' prints the same for a script",
        )
    return _show(words, config, token, about, ids)


def _show(
    words: argparse.Namespace,
    config: ConsoleConfig,
    token: str | None,
    about: About,
    ids: Sequence[str],
) -> int:
    # Textual reads this when it is loaded, once it is known that there is something to show.
    os.environ.setdefault("TEXTUAL_FPS", str(PICTURES_PER_S))
    from console.app import Console, Options
    from console.theme import THEMES
    from console.window import follow_terminal

    names = [theme.name for theme in THEMES]
    if config.theme and config.theme not in names:
        return _fail(USAGE, f"theme {config.theme!r} is none of {', '.join(names)}")
    options = Options(
        engine_id=words.engine or ids[0],
        readonly=words.readonly or config.readonly,
        ascii=words.ascii or config.ascii,
        author=words.author or config.author or _login(),
        zone=UTC if words.utc or config.utc else None,
        no_color=bool(os.environ.get("NO_COLOR")),
        place=words.place,
        moment=words.moment,
        keymap=config.keymap,
        theme=config.theme,
        bell=config.bell,
    )
    follow_terminal()
    app = Console(ControlPlaneClient(words.url, token), options)
    app.about = about
    # A full collection over what was loaded would hold up a key for 100 ms and more.
    gc.freeze()
    gc.enable()
    app.run()
    return app.return_code or OK


def parser(program: str, *, link: bool = False) -> argparse.ArgumentParser:
    """The command line.

    Args:
        link: whether the URL is a link to a moment, which names engine and screen itself.
    """
    made = argparse.ArgumentParser(
        prog=program,
        description="Open the console at the moment that a link names."
        if link
        else "Watch and steer engines on a live screen.",
    )
    if link:
        made.add_argument("url", metavar="LINK", help="a link that L in the console copied")
        made.set_defaults(url_option=None, keys=False)
    else:
        made.add_argument(
            "url",
            nargs="?",
            default=os.environ.get("SPECDECK_URL", DEFAULT_URL),
            help="the control plane (SPECDECK_URL; default: %(default)s)",
        )
        made.add_argument("--url", dest="url_option", metavar="URL", help="the same, as an option")
        made.add_argument("--engine", metavar="ID", help="the engine to begin with")
        made.add_argument(
            "--screen",
            dest="place",
            choices=[entry.id for entry in PLACES],
            default=FIRST,
            help="the screen to begin with (default: %(default)s)",
        )
        made.add_argument(
            "--keys", action="store_true", help="print every binding id with its key, and leave"
        )
        made.set_defaults(moment=None)
    made.add_argument("--readonly", action="store_true", help="look, change nothing")
    made.add_argument("--ascii", action="store_true", help="draw with ASCII alone")
    made.add_argument("--utc", action="store_true", help="show times in UTC, not local time")
    made.add_argument("--author", metavar="NAME", help="who acts (default: your login name)")
    made.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        default=os.environ.get("SPECDECK_TOKEN_FILE"),
        help="file with a token (SPECDECK_TOKEN_FILE); SPECDECK_TOKEN holds one directly",
    )
    made.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        help="theme, keys and more (SPECDECK_CONSOLE_CONFIG; default: "
        "~/.config/specdeck/console.toml if it exists)",
    )
    return made


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


async def _first_look(client: ControlPlaneClient) -> tuple[About, list[str]]:
    """Who answers and which engines there are, before the screen is taken."""
    async with client:
        about, fleet = await client.about(), await client.fleet()
        return about, [row.engine_id for row in fleet.rows]


def _fail(code: int, *lines: str) -> int:
    sys.stderr.write(f"specdeck console: {lines[0]}\n" + "".join(f"{text}\n" for text in lines[1:]))
    return code
