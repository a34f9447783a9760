"""The commands ``policy``, ``pause``, ``resume`` and ``pin``.  Exit codes: ``docs/cli.md``."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from controlplane.client import DEFAULT_URL, ControlPlaneClient, RefusedError
from controlplane.messages import (
    OverrideRequest,
    PolicyRequest,
    ReleaseRequest,
    RollbackRequest,
    StopAnswer,
    StopRequest,
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
    REFUSED,
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
    read_seconds,
    read_wait,
    run_app,
    say,
    show,
)
from engine_patch.contract import Mode
from engine_patch.tier import OFF
from store.policies import Policy, PolicyConfig, Stance, Window
from store.records import Guards, Override

policy_app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, help="Policy versions of an engine."
)
pause_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
resume_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
pin_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

IfVersion = Annotated[
    int | None, typer.Option(help="Refuse if another version is in force meanwhile.")
]


def run_policy(argv: list[str]) -> int:
    """Show, change or take back an engine's policy."""
    return run_app(policy_app, argv, "specdeck policy")


def run_pause(argv: list[str]) -> int:
    """Stop automation on many engines."""
    return run_app(pause_app, argv, "specdeck pause")


def run_resume(argv: list[str]) -> int:
    """Let automation act again."""
    return run_app(resume_app, argv, "specdeck resume")


def run_pin(argv: list[str]) -> int:
    """Hold one tier for an evaluation."""
    return run_app(pin_app, argv, "specdeck pin")


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
        show(json.dumps([one.model_dump(mode="json") for one in found[:limit]]))
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


Engines = Annotated[list[str] | None, typer.Argument(help="Ids of engines.")]
All = Annotated[bool, typer.Option("--all", help="Every engine.")]
Group = Annotated[str | None, typer.Option(help="Only engines of this group.")]


@pause_app.command()
def pause(
    engines: Engines = None,
    every: All = False,
    group: Group = None,
    reason: Reason = "",
    author: Author = "",
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Let automation rest; engines go on as their leases say, and overrides stay in force."""
    request = _stop(engines, every, group, reason, author)
    _stopped(
        ask_control_plane(url, token_file, lambda client: client.pause(request, dry_run=dry_run)),
        as_json,
    )


@resume_app.command()
def resume(
    engines: Engines = None,
    every: All = False,
    group: Group = None,
    reason: Reason = "",
    author: Author = "",
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Give engines the stance back that they had before ``specdeck pause``."""
    request = _stop(engines, every, group, reason, author)
    _stopped(
        ask_control_plane(url, token_file, lambda client: client.resume(request, dry_run=dry_run)),
        as_json,
    )


def _stop(
    engines: list[str] | None, every: bool, group: str | None, reason: str, author: str
) -> StopRequest:
    if every == bool(engines) and group is None:
        say("give ids of engines, or --all for every one")
        raise typer.Exit(USAGE)
    return checked(
        lambda: StopRequest(
            engines=tuple(engines or ()), group=group, author=author or login(), reason=reason
        )
    )


def _stopped(answers: list[StopAnswer], as_json: bool) -> None:
    if as_json:
        show(json.dumps([one.model_dump(mode="json") for one in answers]))
    for one in answers:
        if not as_json and one.policy is not None:
            show(f"{one.engine_id}  {one.policy.stance}  version {one.policy.version}")
        if one.problem:
            say(f"{one.engine_id}: {one.problem}")
    if any(one.problem for one in answers):
        raise typer.Exit(REFUSED)


@pin_app.command(context_settings={"ignore_unknown_options": True})
def pin(
    engine: Engine,
    tier: Annotated[str, typer.Argument(help="The tier to hold: off, or like s3k1d4.")],
    length: Annotated[str, typer.Option("--for", help="How long at most: 90s, 10m, 1h30m.")],
    command: Annotated[
        list[str] | None, typer.Argument(help="After --: what to run while it is held.")
    ] = None,
    reason: Reason = "evaluation",
    guards: Annotated[
        Guards, typer.Option(help="suspend: not even a KV or retraction guard moves it.")
    ] = Guards.SUSPEND,
    wait: Annotated[str, typer.Option(help="Wait so long for every rank to confirm it.")] = "30s",
    author: Author = "",
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Hold one tier, confirmed by every rank, while a command runs; then let go.

    Without a command it holds until its time is up.  The exit code is the command's.
    """
    who = author or login()
    request = checked(
        lambda: OverrideRequest(
            mode=Mode.OFF if tier == OFF else Mode.ON,
            tier=None if tier == OFF else tier,
            length_s=read_seconds(length, "--for"),
            author=who,
            reason=reason,
            guards=guards,
        )
    )
    wait_s = read_seconds(wait, "--wait")
    held = ask_control_plane(
        url, token_file, lambda client: client.set_override(engine, request, wait_s=wait_s)
    )
    say(f"{engine} holds {tier}, confirmed by every observed rank")
    if as_json:
        shown = None if held is None else held.model_dump(mode="json")
        show(json.dumps({"override": shown}))
    if not command:
        return
    try:
        code = subprocess.run(command, check=False).returncode
    except OSError as error:
        say(f"{command[0]}: {error.strerror}")
        code = USAGE
    finally:
        over = ask_control_plane(url, token_file, lambda client: _let_go(client, engine, held, who))
    if not over:
        say(f"{engine} was not held to the end: another override, or its time was up")
        code = code or REFUSED
    raise typer.Exit(code)


async def _let_go(
    client: ControlPlaneClient, engine: str, held: Override | None, author: str
) -> bool:
    """Release the pin; False if it was not in force any more."""
    present = await client.override(engine)
    if held is None or present is None or present.id != held.id:
        return False
    try:
        await client.release_override(
            engine, ReleaseRequest(author=author, reason="the evaluation ended")
        )
    except (RefusedError, asyncio.CancelledError):
        return False
    return True
