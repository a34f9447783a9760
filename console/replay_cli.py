"""The console of ``specdeck replay FILE``: opened on a private replay, with which it ends."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from datetime import UTC
from pathlib import Path

from console.config import ConsoleConfig, ConsoleConfigError, read_config
from console.replay_process import ReplayError, ReplayProcess
from controlplane.client import ControlPlaneClient

OK = 0
USAGE = 2
CANNOT_START = 5


def show(file: Path, *, ascii_only: bool = False, utc: bool = False) -> int:
    """Open ``file`` on a terminal; returns the exit code.

    The settings file of ``specdeck console`` counts here too.
    """
    try:
        config = read_config(None)
        if config.keymap:
            from console.keymap import check

            check(config.keymap)
    except ConsoleConfigError as error:
        return _fail(USAGE, str(error))
    try:
        return asyncio.run(_show(file, config, ascii_only or config.ascii, utc or config.utc))
    except ReplayError as error:
        return _fail(CANNOT_START, str(error))


async def _show(file: Path, config: ConsoleConfig, ascii_only: bool, utc: bool) -> int:
    # Textual is loaded only once it is known that there is something to show.
    process = await ReplayProcess.start(file)
    try:
        from console.options import Options
        from console.replay_app import ReplayConsole
        from console.theme import THEMES
        from console.window import follow_terminal

        names = [theme.name for theme in THEMES]
        if config.theme and config.theme not in names:
            return _fail(USAGE, f"theme {config.theme!r} is none of {', '.join(names)}")
        options = Options(
            ascii=ascii_only,
            zone=UTC if utc else None,
            no_color=bool(os.environ.get("NO_COLOR")),
            keymap=config.keymap,
            theme=config.theme,
        )
        follow_terminal()
        app = ReplayConsole(ControlPlaneClient(process.url), options)
        # As in ``specdeck console``: a full collection would hold up a key.
        gc.collect()
        gc.freeze()
        await app.run_async()
        return app.return_code or OK
    finally:
        await process.stop()


def _fail(code: int, text: str) -> int:
    sys.stderr.write(f"specdeck replay: {text}\n")
    return code
