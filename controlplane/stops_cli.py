"""The commands ``pause``, ``resume`` and ``pin``.  Exit codes: ``docs/cli.md``."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import Annotated

import typer

from controlplane.client import DEFAULT_URL, ControlPlaneClient, RefusedError
from controlplane.messages import (
    OverrideRequest,
    ReleaseRequest,
    StopAnswer,
    StopRequest,
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
    ask_control_plane,
    checked,
    login,
    read_seconds,
    run_app,
    say,
    show,
    show_list,
)
from engine_patch.contract_words import Mode
from engine_patch.tier import OFF
from store.records import Guards, Override

pause_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
resume_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
pin_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

Engines = Annotated[list[str] | None, typer.Argument(help="Ids of engines.")]
All = Annotated[bool, typer.Option("--all", help="Every engine.")]
Group = Annotated[str | None, typer.Option(help="Only engines of this group.")]


def run_pause(argv: list[str]) -> int:
    """Stop automation on many engines."""
    return run_app(pause_app, argv, "specdeck pause")


def run_resume(argv: list[str]) -> int:
    """Let automation act again."""
    return run_app(resume_app, argv, "specdeck resume")


def run_pin(argv: list[str]) -> int:
    """Hold one tier for an evaluation."""
    return run_app(pin_app, argv, "specdeck pin")


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
        show_list(answers)
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
