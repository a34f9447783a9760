"""``specdeck store``: back up, check and measure a database.  Exit codes: ``docs/cli.md``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from controlplane.terminal import (
    CANNOT_START,
    DEGRADED,
    INTERRUPTED,
    Json,
    run_app,
    say,
    show,
)
from store.errors import StoreError

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="The database: a copy while it is written, a check, what takes the room.",
)
Database = Annotated[
    str | None,
    typer.Option(help="The database (a path or URL).", show_default="that of the settings"),
]
Config = Annotated[
    Path | None, typer.Option(help="Settings file that names the database, as for serve.")
]


def run(argv: list[str]) -> int:
    """Back up, check or measure a database."""
    return run_app(app, argv, "specdeck store")


@app.command("backup")
def backup(
    target: Annotated[Path, typer.Argument(help="The copy: a new file.")],
    database: Database = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Copy the database, beside a running control plane or without one, and check the copy."""
    from store.backup import Checked, back_up

    found: Checked = _told(lambda: back_up(_location(database, config), target, progress=_progress))
    _answer(found, as_json, f"{target}: copied and checked")


@app.command("check")
def check(
    database: Annotated[
        str | None,
        typer.Argument(help="A database or a copy.", show_default="that of the settings"),
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Read a database through: pages, schema, and the audit's chain."""
    from store import backup as backups

    location = _location(database, config)
    _answer(_told(lambda: backups.check(location)), as_json, f"{location}: holds together")


@app.command("stats")
def stats(database: Database = None, config: Config = None, as_json: Json = False) -> None:
    """What takes the room: sizes, and rows by kind."""
    from store.stats import Stats, read

    location = _location(database, config)
    found: Stats = _told(lambda: read(location))
    if as_json:
        show(json.dumps(found._asdict()))
        return
    show(f"{'file':20}{found.file_bytes / 1e6:>14,.1f} MB")
    show(f"{'free in it':20}{found.free_bytes / 1e6:>14,.1f} MB")
    show(f"{'write-ahead log':20}{found.log_bytes / 1e6:>14,.1f} MB")
    for kind, rows in found.rows.items():
        show(f"{kind:20}{rows:>14,} rows")


def _answer(found: Any, as_json: bool, text: str) -> None:
    audit = found.audit
    if as_json:
        show(
            json.dumps(
                {
                    "path": str(found.path),
                    "bytes": found.size,
                    "schema": found.schema,
                    "engines": found.engines,
                    "sessions": found.sessions,
                    "audit": audit.model_dump(mode="json"),
                }
            )
        )
    else:
        show(
            f"{text}, {found.size / 1e6:,.1f} MB, schema {found.schema}, {found.engines} engines, "
            f"{audit.rows} audit rows, head {audit.head}"
        )
    if not audit.intact:
        say("the audit's chain is NOT INTACT: specdeck audit verify --database names the rows")
        raise typer.Exit(DEGRADED)


def _location(database: str | None, config: Path | None) -> str:
    from controlplane.settings_load import ConfigError, load

    if database is not None:
        return database
    try:
        return load(config, {})[0].database_location
    except ConfigError as error:
        say(str(error))
        raise typer.Exit(CANNOT_START) from error


def _told(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except StoreError as error:
        say(str(error))
        raise typer.Exit(CANNOT_START) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(INTERRUPTED) from error


def _progress(done: int, pages: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{done / max(pages, 1):.0%} ")
        sys.stderr.flush()
