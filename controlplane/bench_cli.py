"""The command ``bench``.  Exit codes: ``docs/cli.md``.

``specdeck bench analyze|export|report|import|table`` work on files.  What is printed goes to
stdout, everything else to stderr.  Each sub-command imports what it needs when it runs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from controlplane.bench_choice import chosen
from controlplane.bench_files import (
    Backend,
    Label,
    Results,
    Tier,
    export,
    for_terminal,
    import_files,
    load,
    report,
    table,
    write,
)

OK = 0

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def run(argv: list[str]) -> int:
    """Measure up to where speculation pays, and use the result."""
    names = {one.name or getattr(one.callback, "__name__", "") for one in app.registered_commands}
    if not argv or argv[0] not in names:
        # Imported here because it talks to the control plane, and work on files does not.
        from controlplane import benchrun_cli

        return benchrun_cli.run(argv, app)
    try:
        app(args=argv, prog_name="specdeck bench")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else OK
    return OK


@app.callback()
def _commands() -> None:
    """Measure up to where speculation pays, and use the result.

    specdeck bench ENGINE measures a live engine (the same as run ENGINE).
    """


@app.command()
def analyze(
    file: Results,
    as_json: Json = False,
    backend: Backend = None,
    tier: Tier = None,
    label: Label = None,
    tolerance: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Share that counts as a tie without repeats."),
    ] = None,
) -> None:
    """Speed-ups with intervals, crossover, floor and verdict of a results file."""
    from controlplane.bench_analysis import analyse
    from controlplane.bench_text import text

    results = chosen(load(file), backend=backend, tier=tier, label=label)
    found = analyse(results, file.name, tolerance)
    shown = found.model_dump_json(by_alias=True, indent=2) + "\n" if as_json else None
    write(for_terminal(text(found)) if shown is None else shown, None)


app.command()(export)
app.command()(report)
app.command("import")(import_files)
app.command()(table)
