"""The command ``fleet``: engines, groups of them, and claims.  Exit codes: ``docs/cli.md``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from controlplane.client import DEFAULT_URL
from controlplane.messages import (
    AddEngineRequest,
    EngineStatus,
    GroupPolicyRequest,
    RemoveEngineRequest,
    StopAnswer,
    TakeoverRequest,
)
from controlplane.policy_cli import from_file
from controlplane.policy_text import version_line
from controlplane.terminal import (
    DEGRADED,
    REFUSED,
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
    read_wait,
    run_app,
    say,
    show,
    show_list,
)
from store.policies import Stance

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Engines that are looked after, groups of them, and who may command them.",
)


def run(argv: list[str]) -> int:
    """Add and remove engines, give a group a policy, take a claim over."""
    return run_app(app, argv, "specdeck fleet")


@app.command("list")
def list_engines(
    group: Annotated[str | None, typer.Option(help="Only engines of this group.")] = None,
    retired: Annotated[
        bool, typer.Option("--retired", help="Those that are looked after no more.")
    ] = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Print the engines with group, address and stance."""
    found = ask_control_plane(url, token_file, lambda client: client.engines(retired=retired))
    found = [one for one in found if group in (None, one.engine.group)]
    if as_json:
        show_list(found)
        return
    for one in found:
        show(_line(one))


@app.command("sources")
def sources(
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Print the file and the routers that name engines; exits with 6 if one cannot be followed."""
    found = ask_control_plane(url, token_file, lambda client: client.sources())
    if as_json:
        show_list(found)
    for one in found:
        if not as_json:
            show(f"{one.name}  {len(one.engines)} engines: {' '.join(one.engines) or '-'}")
            for reason in one.skipped:
                show(f"    not looked after: {reason}")
        if one.alarm is not None:
            say(one.alarm.text)
    if any(one.alarm is not None for one in found):
        raise typer.Exit(DEGRADED)


@app.command("rules")
def rules(
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Print the stops and policies that hold for engines to come."""
    found = ask_control_plane(url, token_file, lambda client: client.rules())
    if as_json:
        show_list(found)
        return
    for one in found:
        what = one.kind if one.policy is None else f"{one.kind} {one.policy.kind}"
        show(f"{one.group or 'every engine'}  {what}  by {one.author}  {one.reason}".rstrip())


@app.command("add")
def add(
    engine_url: Annotated[str, typer.Argument(metavar="URL", help="The engine's base URL.")],
    engine_id: Annotated[
        str, typer.Option("--id", help="Its id; made from the URL if left out.")
    ] = "",
    name: Annotated[str, typer.Option(help="Name shown to people.")] = "",
    group: Annotated[str, typer.Option(help="Group it belongs to.")] = "",
    stance: Annotated[Stance | None, typer.Option(help="active, shadow or paused.")] = None,
    poll_s: Annotated[float, typer.Option(help="Seconds between two polls.")] = 0.5,
    reason: Reason = "",
    author: Author = "",
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Look after one more engine, from now on and after each start of the control plane."""
    request = checked(
        lambda: AddEngineRequest(
            url=engine_url,
            id=engine_id,
            name=name,
            group=group,
            stance=stance,
            poll_s=poll_s,
            author=author or login(),
            reason=reason,
        )
    )
    made = ask_control_plane(
        url, token_file, lambda client: client.add_engine(request, dry_run=dry_run)
    )
    would = "would be " if dry_run else ""
    show(made.model_dump_json() if as_json else f"{would}{_line(made)}")


@app.command("remove")
def remove(
    engine: Engine,
    reason: Reason = "",
    author: Author = "",
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Leave an engine alone that was added by request; what was recorded stays."""
    request = checked(lambda: RemoveEngineRequest(author=author or login(), reason=reason))
    left = ask_control_plane(
        url, token_file, lambda client: client.remove_engine(engine, request, dry_run=dry_run)
    )
    if as_json:
        show(left.model_dump_json())
    else:
        show(f"{engine} {'would not be' if dry_run else 'is not'} looked after any more")


@app.command("policy")
def policy(
    group: Annotated[str, typer.Argument(help="The group.")],
    file: Annotated[Path, typer.Option(help="TOML or JSON file with a policy; - reads JSON.")],
    stance: Annotated[Stance | None, typer.Option(help="active, shadow or paused.")] = None,
    delegate: Annotated[
        bool | None, typer.Option(help="The engines apply the thresholds themselves.")
    ] = None,
    reason: Reason = "",
    author: Author = "",
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Run one policy on every engine of a group; exits with 4 if one of them cannot."""
    request = checked(
        lambda: GroupPolicyRequest(
            policy=from_file(file),
            stance=stance,
            delegate=delegate,
            author=author or login(),
            reason=reason,
        )
    )
    answers: list[StopAnswer] = ask_control_plane(
        url, token_file, lambda client: client.set_group_policy(group, request, dry_run=dry_run)
    )
    if as_json:
        show_list(answers)
    for one in answers:
        if one.problem:
            say(f"{one.engine_id}: {one.problem}")
        elif not as_json and one.policy is not None:
            would = "would be " if dry_run else ""
            show(f"{one.engine_id}  {would}{version_line(one.policy)}")
    if any(one.problem for one in answers):
        raise typer.Exit(REFUSED)


@app.command("takeover")
def takeover(
    engine: Engine,
    holder: Annotated[
        str, typer.Option(help="Who holds it now: the name must be repeated to confirm.")
    ],
    reason: Annotated[str, typer.Option(help="Why; it is recorded.")],
    author: Author = "",
    wait: Wait = None,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Take the claim on an engine from another control plane."""
    request = checked(
        lambda: TakeoverRequest(holder=holder, author=author or login(), reason=reason)
    )
    wait_s = read_wait(wait)
    done = ask_control_plane(
        url,
        token_file,
        lambda client: client.take_over(engine, request, wait_s=wait_s, dry_run=dry_run),
    )
    if as_json:
        show(done.model_dump_json())
    else:
        would = "would be" if dry_run else "is"
        show(f"{engine}: the claim of {done.from_holder} {would} taken over by {done.holder}")


def _line(status: EngineStatus) -> str:
    engine, config = status.engine, status.policy
    stance = "-" if config is None else f"{config.stance} {config.policy.kind}"
    return f"{engine.engine_id}  {engine.group or '-'}  {engine.url}  {stance}"
