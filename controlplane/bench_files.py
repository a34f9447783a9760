"""``specdeck bench export|report|import|table``: what is done with results files.

Each command prints to stdout or writes one file; what a reader must know goes to stderr.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from controlplane.bench_choice import chosen
from controlplane.bench_export import ExportError, Keys, Target
from controlplane.bench_propose import Proposal, ProposalError
from controlplane.bench_read import BenchFileError, read
from controlplane.bench_records import BenchFile

USAGE = 2
REFUSED = 4
CANNOT_START = 5
MISSING_EXTRA = 7

Results = Annotated[
    Path, typer.Argument(metavar="FILE", help="Results: specdeck's JSON, CSV, or rows of the kit.")
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write here instead of to stdout.")
]
Backend = Annotated[str | None, typer.Option(help="Only this attention backend.")]
Tier = Annotated[str | None, typer.Option(help="Only this tier, beside plain and off.")]
Label = Annotated[str | None, typer.Option(help="Only runs with this label.")]
Replicas = Annotated[
    int, typer.Option("--dp", min=1, help="Replicas the load was spread over (DP size).")
]


def load(file: Path) -> BenchFile:
    """A results file, or the end of the command with its fault."""
    try:
        return read(file)
    except BenchFileError as error:
        raise stop(str(error)) from error


def export(
    file: Results,
    to: Annotated[Target, typer.Option(help="Whose format.")],
    output: Output = None,
    backend: Backend = None,
    tier: Tier = None,
    label: Label = None,
    dp: Replicas = 1,
    keys: Annotated[
        Keys, typer.Option(help="How the TensorRT-LLM release reads schedule keys.")
    ] = Keys.UPPER,
) -> None:
    """Thresholds from a results file for another engine, or the runs as CSV."""
    from controlplane import bench_export

    results = chosen(load(file), backend=backend, tier=tier, label=label)
    if to is Target.CSV:
        write(bench_export.as_csv(results.points), output)
        return
    proposal = proposed(results, dp, to)
    largest = max(one.concurrency for one in proposal.predicted)
    try:
        match to:
            case Target.SGLANG:
                text = bench_export.sglang(proposal)
            case Target.VLLM:
                text = bench_export.vllm(proposal, largest)
            case Target.TRTLLM:
                text = bench_export.trtllm(proposal, largest, keys)
            case _:
                text = bench_export.thresholds(proposal)
    except ExportError as error:
        raise stop(str(error), REFUSED) from error
    for warning in bench_export.warnings(proposal, to):
        say(warning)
    say(f"expected: {proposal.gain}")
    write(text, output)


def proposed(results: BenchFile, dp: int, to: Target) -> Proposal:
    """Thresholds for a target, or the end of the command with what is missing."""
    from controlplane.bench_propose import OffRule, propose

    off = OffRule.MEASURED
    if to in (Target.VLLM, Target.TRTLLM):
        # Their off is ordinary decode.
        off = OffRule.PLAIN
    elif to is Target.SGLANG and any(run.backend == "triton" for run in results.points):
        say("off left out: on triton SGLang's own step 0 is a quarter as fast as a plain server")
        off = OffRule.NONE
    try:
        return propose(results.points, dp_size=dp, only_chains=to is not Target.THRESHOLDS, off=off)
    except ProposalError as error:
        raise stop(str(error), REFUSED) from error


def report(
    file: Results,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")],
    backend: Backend = None,
    tier: Tier = None,
    label: Label = None,
    dp: Replicas = 1,
    title: Annotated[str, typer.Option(help="Its heading.")] = "Does speculation pay?",
) -> None:
    """One self-contained HTML file: verdict, plots, tables, proposed thresholds."""
    from controlplane.bench_analysis import analyse
    from controlplane.bench_propose import propose
    from controlplane.bench_report import html
    from engine_patch.dispatch import missing_extra

    results = chosen(load(file), backend=backend, tier=tier, label=label)
    proposal: Proposal | None
    try:
        proposal = propose(results.points, dp_size=dp)
    except ProposalError as error:
        proposal = None
        say(f"no thresholds in the report: {error}")
    try:
        text = html(results, analyse(results, file.name), proposal, int(time.time() * 1000), title)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "pygal":
            raise
        sys.stderr.write(missing_extra("bench report", "pygal", "report"))
        raise typer.Exit(MISSING_EXTRA) from error
    write(text, output)


def import_files(
    plain: Annotated[
        list[Path] | None, typer.Option(help="Results of the plain server; may be repeated.")
    ] = None,
    speculative: Annotated[
        list[Path] | None, typer.Option(help="Results of the speculative one; may be repeated.")
    ] = None,
    output: Output = None,
    tier: Annotated[str | None, typer.Option(help="What the speculative server ran.")] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="For results that do not say theirs.")
    ] = None,
    backend: Annotated[str | None, typer.Option(help="Attention backend of both.")] = None,
    gpu: Annotated[str | None, typer.Option(help="GPU of both.")] = None,
) -> None:
    """Results of sglang.benchmark.serving, aiperf or guidellm as a specdeck benchmark."""
    from controlplane.bench_import import import_results
    from engine_patch.tier import TierShape

    if not plain and not speculative:
        raise stop("nothing to import: give --plain FILE and --speculative FILE")
    if tier is not None:
        try:
            tier = TierShape.parse(tier).name
        except ValueError as error:
            raise stop(f"--tier: {error}") from error
    try:
        results = import_results(
            plain or [],
            speculative or [],
            tier=tier,
            concurrency=concurrency,
            backend=backend,
            gpu=gpu,
        )
    except BenchFileError as error:
        raise stop(str(error)) from error
    for note in results.notes:
        say(note)
    write(results.model_dump_json(by_alias=True, exclude_defaults=True, indent=1) + "\n", output)


def table(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Results to take step times from.")
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(help="The control plane's database (path or URL); its table is merged in."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--setup-key", help="The setup; default is that of FILE.")
    ] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Store the merged table (no control plane may run).")
    ] = False,
    dp: Replicas = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """The step-cost table of a setup, every cell with its age and source."""
    from controlplane import bench_table
    from store.db import Store
    from store.errors import StoreError

    now = int(time.time() * 1000)
    sources: list[bench_table.Contribution] = []
    if file is not None:
        results = load(file)
        own = results.setup_key or key
        if own is None:
            raise stop(f"{file} does not say its setup; give --setup-key")
        costs = bench_table.of_runs(results.points, dp_size=dp)
        key = key or own
        at = results.created_utc_ms or now
        sources.append(bench_table.Contribution(own, f"benchmark {file.name}", at, costs))
    if key is None:
        raise stop("give FILE or --setup-key")
    if save and (file is None or database is None):
        raise stop("--save needs FILE and --database")
    try:
        if database is None:
            merged = bench_table.merged(key, sources, now)
        else:
            with Store.open(database, read_only=not save) as store:
                stored = store.cost_table(key)
                if stored is not None:
                    sources.append(bench_table.of_stored(stored))
                if stored is not None and file is None:
                    merged = stored
                else:
                    merged = bench_table.merged(key, sources, now)
                if save:
                    store.write([merged]).result()
    except StoreError as error:
        raise stop(str(error), CANNOT_START) from error
    except bench_table.KeyDiffersError as error:
        raise stop(str(error), REFUSED) from error
    except ValueError as error:
        raise stop(f"{error} for setup key {key}", REFUSED) from error
    shown = merged.model_dump_json(indent=1) if as_json else bench_table.text(merged, now)
    write(shown if shown.endswith("\n") else shown + "\n", None)


def stop(message: str, code: int = USAGE) -> typer.Exit:
    """Say why, and the exit to raise."""
    say(message)
    return typer.Exit(code)


def say(message: str) -> None:
    """A line for the person at the terminal."""
    sys.stderr.write(f"specdeck bench: {harmless(message)}\n")


def harmless(text: str) -> str:
    """Text for a terminal: a label in somebody else's file may hold control characters."""
    return "".join(one if one.isprintable() or one == "\n" else "\ufffd" for one in text)


def for_terminal(text: str) -> str:
    """Text as it is printed: harmless, and no wider than a terminal if it goes to one."""
    from controlplane.bench_text import wrapped

    if not sys.stdout.isatty():
        return harmless(text)
    return harmless(wrapped(text, shutil.get_terminal_size().columns))


def write(text: str, output: Path | None) -> None:
    """To a file, or to stdout."""
    if output is None:
        # A name or a label may hold what this terminal cannot show.
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
        return
    try:
        output.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise stop(f"{output}: cannot be written: {error.strerror or error}") from error
