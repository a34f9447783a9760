"""The commands ``serve``, ``status`` and ``override``.  Exit codes: ``docs/cli.md``.

Output goes to stdout, everything else to stderr.  Each command imports what it needs when it runs:
a client command loads nothing of the server.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from controlplane.client import DEFAULT_URL, ControlPlaneClient
from controlplane.messages import (
    About,
    EngineStatus,
    ExtendRequest,
    OverrideRequest,
    ReleaseRequest,
)
from controlplane.terminal import (
    CANNOT_START,
    DEGRADED,
    Author,
    DryRun,
    Engine,
    Json,
    Reason,
    TokenFile,
    Url,
    Wait,
    ask_control_plane,
    checked,
    login,
    read_seconds,
    read_wait,
    run_app,
    say,
    show,
)
from engine_patch.contract_words import Mode
from store.records import Guards, Override

serve_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
status_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
override_app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, help="Operators' overrides."
)


def run_serve(argv: list[str]) -> int:
    """Run the control plane."""
    return run_app(serve_app, argv, "specdeck serve")


def run_status(argv: list[str]) -> int:
    """Print what the control plane sees."""
    return run_app(status_app, argv, "specdeck status")


def run_override(argv: list[str]) -> int:
    """Set, extend or release an override."""
    return run_app(override_app, argv, "specdeck override")


def _print_ready(url: str) -> None:
    show(json.dumps({"ready": True, "url": url, "pid": os.getpid()}))


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
    database: Annotated[
        str | None, typer.Option(help="SQLite file of the store, or a PostgreSQL URL.")
    ] = None,
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
        serve_forever(config, arguments, verbose=verbose, say=say, ready=_print_ready)
    except CannotStartError as error:
        for line in str(error).splitlines():
            say(line)
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

    about, statuses = ask_control_plane(url, token_file, ask)
    troubles = {one.engine.engine_id: report.degraded(one) for one in statuses}
    if as_json:
        document = {
            "about": about.model_dump(mode="json"),
            "engines": [one.model_dump(mode="json") for one in statuses],
            "degraded": {name: found for name, found in troubles.items() if found},
        }
        show(json.dumps(document))
    else:
        show(report.text(about, statuses))
    if about.alarms or any(troubles.values()):
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
    wait: Wait = None,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Overrule automation for a limited time; replaces an override in force."""
    request = checked(
        lambda: OverrideRequest(
            mode=mode,
            tier=tier,
            length_s=read_seconds(length, "--for"),
            author=author or login(),
            reason=reason,
            guards=guards,
        )
    )
    wait_s = read_wait(wait)
    done = ask_control_plane(
        url,
        token_file,
        lambda client: client.set_override(engine, request, wait_s=wait_s, dry_run=dry_run),
    )
    _show(done, as_json, would=dry_run)


@override_app.command("show")
def show_override(
    engine: Engine, url: Url = DEFAULT_URL, token_file: TokenFile = None, as_json: Json = False
) -> None:
    """Print the override in force."""
    _show(ask_control_plane(url, token_file, lambda client: client.override(engine)), as_json)


@override_app.command("extend")
def extend_override(
    engine: Engine,
    by: Annotated[str, typer.Option("--by", help="How much longer: 90s, 10m, 1h30m.")],
    reason: Reason = "",
    author: Author = "",
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Give the override in force a later end."""
    request = checked(
        lambda: ExtendRequest(
            extra_s=read_seconds(by, "--by"), author=author or login(), reason=reason
        )
    )
    done = ask_control_plane(
        url,
        token_file,
        lambda client: client.extend_override(engine, request, dry_run=dry_run),
    )
    _show(done, as_json, would=dry_run)


@override_app.command("release")
def release_override(
    engine: Engine,
    reason: Reason = "",
    author: Author = "",
    wait: Wait = None,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """End the override in force; automation takes over at once."""
    request = checked(lambda: ReleaseRequest(author=author or login(), reason=reason))
    wait_s = read_wait(wait)
    done = ask_control_plane(
        url,
        token_file,
        lambda client: client.release_override(engine, request, wait_s=wait_s, dry_run=dry_run),
    )
    _show(done, as_json, would=dry_run)


def _show(override: Override | None, as_json: bool, *, would: bool = False) -> None:
    from controlplane.report import override_line

    if as_json:
        shown = None if override is None else override.model_dump(mode="json")
        show(json.dumps({"override": shown}))
    elif override is None:
        show("no override would be in force" if would else "no override is in force")
    else:
        left = (override.expires_utc_ms - override.created_utc_ms) / 1000
        name = "would be" if would else f"override {override.id}"
        show(f"{name}: {override_line(override, left)}")
