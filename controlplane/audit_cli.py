"""The commands ``audit list`` and ``audit verify``.  Exit codes: ``docs/cli.md``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from controlplane.client import DEFAULT_URL, ControlPlaneClient
from controlplane.terminal import (
    CANNOT_START,
    DEGRADED,
    USAGE,
    Json,
    TokenFile,
    Url,
    ask_control_plane,
    run_app,
    say,
    show,
    show_list,
)
from store.audit_chain import AuditCheck
from store.records import AuditEntry

PAGE = 500
app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, help="Who changed what, and proof of it."
)


def run(argv: list[str]) -> int:
    """List the audit, or verify its hash chain."""
    return run_app(app, argv, "specdeck audit")


@app.command("list")
def list_entries(
    limit: Annotated[int, typer.Option(min=1, help="Most rows to print.")] = 50,
    target: Annotated[str | None, typer.Option(help="Only this engine.")] = None,
    actor: Annotated[str | None, typer.Option(help="Only acts of this name.")] = None,
    action: Annotated[str | None, typer.Option(help="Only actions that begin so.")] = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Print who changed what, newest first."""

    def wanted(one: AuditEntry) -> bool:
        return (
            target in (None, one.target)
            and actor in (None, one.actor)
            and (action is None or one.action.startswith(action))
        )

    async def ask(client: ControlPlaneClient) -> list[AuditEntry]:
        found: list[AuditEntry] = []
        before: int | None = None
        while len(found) < limit:
            page = await client.audit(PAGE, before)
            found += [one for one in page if wanted(one)]
            if len(page) < PAGE:
                break
            before = page[-1].id
        return found[:limit]

    found = ask_control_plane(url, token_file, ask)
    if as_json:
        show_list(found)
        return
    for one in found:
        at = datetime.fromtimestamp(one.at_utc_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        line = f"{one.id:>6}  {at}  {one.actor}  {one.action}  {one.target}  {one.detail}"
        show(line.rstrip())


@app.command("verify")
def verify(
    database: Annotated[
        str | None,
        typer.Option(help="Read this database (a path or URL) itself, without a control plane."),
    ] = None,
    head: Annotated[
        str, typer.Option(help="A head printed earlier: it must still be in the chain.")
    ] = "",
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Follow the hash chain; exits with 6 if a row was changed, removed or slipped in."""
    expected = head.strip().lower()
    if any(sign not in "0123456789abcdef" for sign in expected) or len(expected) > 64:
        say(f"--head {head!r} is no hash: up to 64 hexadecimal digits")
        raise typer.Exit(USAGE)
    if database is None:
        found = ask_control_plane(url, token_file, lambda client: client.check_audit(expected))
    else:
        found = _offline(database, expected)
    if as_json:
        show(found.model_dump_json())
    else:
        show(_text(found))
    if not found.intact:
        raise typer.Exit(DEGRADED)


def _offline(database: str, expected: str) -> AuditCheck:
    from store.db import Store
    from store.errors import StoreError

    try:
        with Store.open(database, read_only=True) as store:
            return store.check_audit(expected)
    except StoreError as error:
        say(str(error))
        raise typer.Exit(CANNOT_START) from error


def _text(found: AuditCheck) -> str:
    if found.broken_count:
        rows = ", ".join(map(str, found.broken))
        more = "" if found.broken_count == len(found.broken) else ", ..."
        return (
            f"NOT INTACT: {found.broken_count} of {found.rows} rows do not follow from the row "
            f"before: {rows}{more}"
        )
    if found.expected and found.found is None:
        return (
            f"NOT INTACT: head {found.expected} is not among the {found.rows} rows: the end was "
            "removed, or the whole chain was written anew"
        )
    place = "" if found.found is None else f", the head asked for stands at row {found.found}"
    return f"intact: {found.rows} rows{place}\nhead {found.head or '-'}"
