"""``specdeck compare`` and ``specdeck report``: what recordings show, for people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from controlplane.sessions_terminal import File, told, write_new
from controlplane.terminal import Json, show

compare_app = typer.Typer()
report_app = typer.Typer()


@compare_app.command()
def compare(
    one: File,
    other: File,
    anyway: Annotated[bool, typer.Option(help="Compare different setups too.")] = False,
    as_json: Json = False,
) -> None:
    """Two sessions at the same load: tokens per second, accept length, switches."""
    from controlplane.sessions_compare import compare as compared
    from controlplane.sessions_text import comparison_text
    from controlplane.whatif_answer import subject_of
    from store.session_reader import SessionFile

    with told(), SessionFile.open(one) as left, SessionFile.open(other) as right:
        found = compared(subject_of(left), subject_of(right), anyway=anyway)
    show(found.model_dump_json() if as_json else comparison_text(found))


@report_app.command()
def report(
    file: File,
    out: Annotated[Path | None, typer.Option(help="The page to write; default NAME.html.")] = None,
) -> None:
    """A session as one self-contained HTML page."""
    from controlplane.sessions_report import render
    from controlplane.version import VERSION
    from store.session_reader import SessionFile

    target = out or file.with_suffix(".html")
    with told():
        with SessionFile.open(file) as session:
            page = render(session, VERSION)
        write_new(target, page)
    show(str(target))
