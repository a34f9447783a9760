"""The command ``policy``.  Exit codes: ``docs/cli.md``."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from controlplane.client import DEFAULT_URL, ControlPlaneClient
from controlplane.messages import (
    PolicyRequest,
    RollbackRequest,
)
from controlplane.policy_text import (
    changed_policy,
    changes_between,
    read_policy,
    read_window,
    thresholds_line,
    version_line,
    version_text,
)
from controlplane.terminal import (
    USAGE,
    Author,
    DryRun,
    Engine,
    Json,
    Reason,
    TokenFile,
    Url,
    Wait,
    as_usage,
    ask_control_plane,
    checked,
    login,
    read_wait,
    run_app,
    say,
    show,
    show_list,
)
from store.policies import Policy, PolicyConfig, Stance, Window

policy_app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, help="Policy versions of an engine."
)

IfVersion = Annotated[
    int | None, typer.Option(help="Refuse if another version is in force meanwhile.")
]


def run_policy(argv: list[str]) -> int:
    """Show, change or take back an engine's policy."""
    return run_app(policy_app, argv, "specdeck policy")


@policy_app.command("show")
def show_policy(
    engine: Engine, url: Url = DEFAULT_URL, token_file: TokenFile = None, as_json: Json = False
) -> None:
    """Print the version in force with all its numbers."""
    found = ask_control_plane(url, token_file, lambda client: client.policy(engine))
    show(found.model_dump_json() if as_json else version_text(found))


@policy_app.command("history")
def history(
    engine: Engine,
    limit: Annotated[int, typer.Option(min=1, help="Most versions to print.")] = 20,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Print the versions, newest first, with who made them and what differs."""
    found = ask_control_plane(url, token_file, lambda client: client.policies(engine))
    if as_json:
        show_list(found[:limit])
        return
    for index, one in enumerate(found[:limit]):
        show(version_line(one))
        older = found[index + 1] if index + 1 < len(found) else None
        lines = [thresholds_line(one.policy)] if older is None else changes_between(older, one)
        for line in lines:
            show(f"    {line}")


@policy_app.command("set")
def set_policy(
    engine: Engine,
    change: Annotated[
        list[str] | None, typer.Argument(help="KEY=VALUE, for example up_hold_s=4.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="hysteresis, goodput or fixed.")] = None,
    file: Annotated[
        Path | None, typer.Option(help="TOML or JSON file with a whole policy; - reads JSON.")
    ] = None,
    stance: Annotated[Stance | None, typer.Option(help="active, shadow or paused.")] = None,
    delegate: Annotated[
        bool | None,
        typer.Option(help="The engine applies the thresholds itself and is supervised."),
    ] = None,
    window: Annotated[
        list[str] | None,
        typer.Option(help="'mon-fri 22:00-06:00 paused', UTC; 'none' removes all."),
    ] = None,
    reason: Reason = "",
    author: Author = "",
    if_version: IfVersion = None,
    wait: Wait = None,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Make a new version: some numbers changed, another kind, or a whole policy from a file."""
    if not change and not window and all(one is None for one in (kind, file, stance, delegate)):
        say("nothing to set: give KEY=VALUE, --kind, --file, --stance or --delegate")
        raise typer.Exit(USAGE)
    windows, wait_s = _windows(window), read_wait(wait)
    whole = None if file is None else from_file(file)

    async def ask(client: ControlPlaneClient) -> tuple[PolicyConfig, PolicyConfig]:
        present = await client.policy(engine)
        request = PolicyRequest(
            policy=changed_policy(whole or present.policy, kind, change or ()),
            stance=stance,
            delegate=delegate,
            windows=windows,
            author=author or login(),
            reason=reason,
            if_version=present.version if if_version is None else if_version,
        )
        made = await client.set_policy(engine, request, wait_s=wait_s, dry_run=dry_run)
        return present, made

    try:
        before, after = ask_control_plane(url, token_file, ask)
    except ValueError as error:
        raise as_usage(error) from error
    _made(before, after, dry_run=dry_run, as_json=as_json)


@policy_app.command("rollback")
def roll_back(
    engine: Engine,
    version: Annotated[
        int | None, typer.Option("--to", help="The version to be like; else one policy back.")
    ] = None,
    reason: Reason = "",
    author: Author = "",
    wait: Wait = None,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Go back one policy, or to the version named; the stance stays."""
    request = checked(
        lambda: RollbackRequest(version=version, author=author or login(), reason=reason)
    )

    wait_s = read_wait(wait)

    async def ask(client: ControlPlaneClient) -> tuple[PolicyConfig, PolicyConfig]:
        present = await client.policy(engine)
        made = await client.roll_back(engine, request, wait_s=wait_s, dry_run=dry_run)
        return present, made

    before, after = ask_control_plane(url, token_file, ask)
    _made(before, after, dry_run=dry_run, as_json=as_json)


def _made(before: PolicyConfig, after: PolicyConfig, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        show(after.model_dump_json())
        return
    show(f"{'would be ' if dry_run else ''}{version_line(after)}")
    for line in changes_between(before, after):
        show(f"    {line}")


def _windows(given: list[str] | None) -> tuple[Window, ...] | None:
    if not given:
        return None
    if given == ["none"]:
        return ()
    try:
        return tuple(read_window(one) for one in given)
    except ValueError as error:
        raise as_usage(error) from error


def from_file(file: Path) -> Policy:
    """The policy of a TOML or JSON file; what is wrong with it is told."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        values: dict[str, Any] = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
        return read_policy(values.get("policy", values))
    except OSError as error:
        say(f"cannot read {file}: {error.strerror}")
        raise typer.Exit(USAGE) from error
    except (ValueError, AttributeError) as error:
        say(f"{file} holds no policy")
        raise as_usage(
            error if isinstance(error, ValueError) else ValueError(str(error))
        ) from error
