"""The command ``bench``.  Exit codes: ``docs/cli.md``.

``specdeck bench analyze|export|report|import|table`` work on files.  What is printed goes to
stdout, everything else to stderr.  Each sub-command imports what it needs when it runs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from controlplane.bench_read import BenchFileError, read
from controlplane.bench_records import BenchFile

OK = 0
USAGE = 2

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Measure up to where speculation pays, and use the result.",
)

Results = Annotated[
    Path, typer.Argument(metavar="FILE", help="Results: specdeck's JSON, CSV, or rows of the kit.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def run(argv: list[str]) -> int:
    """Measure up to where speculation pays, and use the result."""
    try:
        app(args=argv, prog_name="specdeck bench")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else OK
    return OK


@app.callback()
def _commands() -> None:
    """Measure up to where speculation pays, and use the result."""


@app.command()
def analyze(
    file: Results,
    as_json: Json = False,
    backend: Annotated[str | None, typer.Option(help="Only this attention backend.")] = None,
    tier: Annotated[str | None, typer.Option(help="Only this tier, beside plain and off.")] = None,
    label: Annotated[str | None, typer.Option(help="Only runs with this label.")] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Share that counts as a tie without repeats."),
    ] = None,
) -> None:
    """Speed-ups with intervals, crossover, floor and verdict of a results file."""
    from controlplane.bench_analysis import analyse
    from controlplane.bench_choice import chosen
    from controlplane.bench_text import text

    results = chosen(_read(file), backend=backend, tier=tier, label=label)
    found = analyse(results, file.name, tolerance)
    _print(found.model_dump_json(by_alias=True, indent=2) if as_json else text(found))


def _read(file: Path) -> BenchFile:
    try:
        return read(file)
    except BenchFileError as error:
        raise _stop(str(error)) from error


def _stop(message: str) -> typer.Exit:
    sys.stderr.write(f"specdeck bench: {message}\n")
    return typer.Exit(USAGE)


def _print(text: str) -> None:
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    sys.stdout.flush()
