"""The live half of ``specdeck bench``: measure an engine, watch it, cancel, apply what follows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from controlplane.bench_records import BenchFile
from controlplane.benchrun_bar import ended_line, progress_line
from controlplane.benchrun_following import to_the_end
from controlplane.benchrun_messages import BenchRequest, BenchState, CancelRequest
from controlplane.client import DEFAULT_URL
from controlplane.terminal import (
    DEGRADED,
    INTERRUPTED,
    OK,
    USAGE,
    Author,
    Engine,
    TokenFile,
    Url,
    as_usage,
    ask_control_plane,
    login,
    read_seconds,
    run_app,
    say,
    show,
)
from store.policies import Stance

RUN = "run"

Benchmark = Annotated[str, typer.Argument(help="Its id; specdeck bench list ENGINE shows them.")]


def run(argv: list[str], app: typer.Typer) -> int:
    """A command line that names none of the sub-commands on files: those on live engines.

    Args:
        app: the sub-commands on files; the live ones are added to it.
    """
    names = install(app)
    if argv and not argv[0].startswith("-") and argv[0] not in names:
        argv = [RUN, *argv]
    return run_app(app, argv, "specdeck bench")


def read_prompts(text: str) -> str:
    """The prompts with an absolute path: the control plane has another working directory."""
    kind, colon, path = text.partition(":")
    if kind == "lengths" and path.partition(":")[0].isdecimal() and ":" in path:
        vocabulary, _, path = path.partition(":")
        kind = f"{kind}:{vocabulary}"
    if kind.partition(":")[0] in ("sharegpt", "lengths") and path:
        return f"{kind}:{Path(path).expanduser().resolve()}"
    return kind + colon + path


def numbers(text: str, option: str) -> tuple[int, ...]:
    """``1,4,16`` as numbers."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        say(f"{option}: {text!r} is no list of numbers: write it like 1,4,16")
        raise typer.Exit(USAGE) from None


def rates(text: str) -> tuple[float, ...]:
    """Rates of ``closed`` (none) or ``poisson:2,4``."""
    kind, _, rest = text.partition(":")
    if text == "closed":
        return ()
    try:
        if kind == "poisson":
            return tuple(float(part) for part in rest.split(","))
    except ValueError:
        pass
    say(f"--arrivals: {text!r}: write closed, or poisson:RATE with requests per second")
    raise typer.Exit(USAGE)


def bench(
    engine: Engine,
    concurrency: Annotated[str, typer.Option(help="Clients of the closed loop.")] = "1,4,16,64",
    tiers: Annotated[
        str | None, typer.Option(help="Tiers, comma-separated.", show_default="all built ones")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, max=20, help="Passes over all tiers.")] = 2,
    budget: Annotated[str, typer.Option(help="How long in all: 90s, 10m.")] = "10m",
    window: Annotated[
        str | None, typer.Option(help="Length of each window.", show_default="from the budget")
    ] = None,
    input_len: Annotated[int, typer.Option("--in", min=1, help="Input tokens.")] = 128,
    output_len: Annotated[int, typer.Option("--out", min=2, help="Output tokens.")] = 256,
    arrivals: Annotated[str, typer.Option(help="closed, or poisson:RATE[,RATE].")] = "closed",
    prompts: Annotated[
        str,
        typer.Option(
            help="builtin, ids, ids:VOCABULARY, sharegpt:FILE or lengths:[VOCABULARY:]FILE."
        ),
    ] = "builtin",
    stream_interval: Annotated[
        int, typer.Option(min=1, max=1000, help="Tokens of an answer that are sent together.")
    ] = 1,
    allow_traffic: Annotated[
        bool, typer.Option("--allow-traffic", help="Measure although others use the engine.")
    ] = False,
    apply: Annotated[
        Stance | None,
        typer.Option(help="Afterwards propose thresholds and apply them: active or shadow."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Apply without asking.")] = False,
    output: Annotated[
        str | None, typer.Option("--json", metavar="OUT", help="Write the results; - for stdout.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Why; it is recorded.")] = "",
    author: Author = "",
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Measure an engine's tiers against each other under rising load.

    The control plane pins one tier after another and makes the load; automation rests until the
    end.  Interrupting it cancels the benchmark and releases the engine.
    """
    try:
        request = BenchRequest(
            concurrency=numbers(concurrency, "--concurrency"),
            rates_s=rates(arrivals),
            tiers=tuple(tiers.split(",")) if tiers else None,
            repeats=repeats,
            budget_s=read_seconds(budget, "--budget"),
            window_s=None if window is None else read_seconds(window, "--window"),
            input_len=input_len,
            output_len=output_len,
            prompts=read_prompts(prompts),
            stream_interval=stream_interval,
            allow_traffic=allow_traffic,
            author=author or login(),
            reason=reason,
        )
    except ValueError as error:
        raise as_usage(error) from error
    status, file = ask_control_plane(
        url, token_file, lambda client: to_the_end(client, engine, request)
    )
    say(ended_line(status))
    write(file, output)
    if status.state is BenchState.CANCELLED:
        raise typer.Exit(INTERRUPTED)
    if status.points and output != "-":
        from controlplane.bench_analysis import analyse
        from controlplane.bench_files import for_terminal
        from controlplane.bench_text import text

        show(for_terminal(text(analyse(file, f"benchmark {status.id}"))))
    if status.state is not BenchState.DONE:
        raise typer.Exit(DEGRADED)
    if apply is not None:
        from controlplane.benchrun_apply_cli import apply_benchmark

        raise typer.Exit(
            apply_benchmark(engine, status.id, apply, request.author, yes, url, token_file)
        )
    raise typer.Exit(OK)


def write(file: BenchFile, output: str | None) -> None:
    """The results where they are wanted."""
    if output is None:
        return
    text = file.model_dump_json(by_alias=True, indent=1)
    if output == "-":
        show(text)
        return
    try:
        Path(output).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        say(f"cannot write {output}: {error.strerror}; the control plane keeps the results")


def run_cancel(
    engine: Engine,
    benchmark: Benchmark,
    author: Author = "",
    reason: Annotated[str, typer.Option(help="Why; it is recorded.")] = "",
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """End a running benchmark; the engine goes back to what it did before."""
    request = CancelRequest(author=author or login(), reason=reason)
    status = ask_control_plane(
        url, token_file, lambda client: client.cancel_benchmark(engine, benchmark, request)
    )
    show(ended_line(status))


def run_list(engine: Engine, url: Url = DEFAULT_URL, token_file: TokenFile = None) -> None:
    """The engine's benchmarks with its present setup, newest first."""
    for status in ask_control_plane(url, token_file, lambda client: client.benchmarks(engine)):
        if status.state is BenchState.RUNNING:
            show(f"{status.id}  {progress_line(status, 100)}")
        else:
            show(ended_line(status))


def run_results(
    engine: Engine,
    benchmark: Benchmark,
    output: Annotated[str, typer.Option("--json", metavar="OUT", help="- for stdout.")] = "-",
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Fetch a benchmark's results file."""
    file = ask_control_plane(
        url, token_file, lambda client: client.benchmark_file(engine, benchmark)
    )
    write(file, output)


def run_apply(
    engine: Engine,
    benchmark: Benchmark,
    stance: Annotated[
        Stance, typer.Option("--as", help="active, or shadow: compute and record only.")
    ] = Stance.SHADOW,
    yes: Annotated[bool, typer.Option("--yes", help="Apply without asking.")] = False,
    author: Author = "",
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Show the thresholds a benchmark proposes, and apply them after one question."""
    from controlplane.benchrun_apply_cli import apply_benchmark

    raise typer.Exit(
        apply_benchmark(engine, benchmark, stance, author or login(), yes, url, token_file)
    )


def install(app: typer.Typer) -> set[str]:
    """Add the live sub-commands; returns the names of all."""
    from controlplane.benchrun_servers_cli import run_servers

    live: dict[str, Callable[..., None]] = {
        RUN: bench,
        "servers": run_servers,
        "list": run_list,
        "cancel": run_cancel,
        "results": run_results,
        "apply": run_apply,
    }
    there = {one.name or getattr(one.callback, "__name__", "") for one in app.registered_commands}
    for name, command in live.items():
        if name not in there:
            app.command(name)(command)
    return there | set(live)
