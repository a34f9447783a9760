"""``specdeck bench servers``: a plain and a speculating server against each other."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Annotated

import typer

from controlplane.bench_records import BenchFile, BenchPoint
from controlplane.benchrun_bar import bar, point_line
from controlplane.benchrun_cli import numbers, rates, write
from controlplane.benchrun_flow import FlowError
from controlplane.benchrun_following import end_line, replace_line
from controlplane.benchrun_messages import BenchRequest
from controlplane.benchrun_servers import STOPPED, measure
from controlplane.benchrun_subject import Progress, StoppedError
from controlplane.durations import written
from controlplane.terminal import (
    CANNOT_START,
    DEGRADED,
    INTERRUPTED,
    as_usage,
    login,
    read_seconds,
    say,
    show,
)

API_KEY_VARIABLE = "SPECDECK_ENGINE_API_KEY"


def run_servers(
    plain: Annotated[str, typer.Option(help="URL of the server without speculation.")],
    spec: Annotated[str, typer.Option(help="URL of the speculating one.")],
    spec_tier: Annotated[
        str | None, typer.Option(help="Its shape, where it does not tell it: s3k1d4.")
    ] = None,
    concurrency: Annotated[str, typer.Option(help="Clients of the closed loop.")] = "1,4,16,64",
    repeats: Annotated[int, typer.Option(min=1, max=20, help="Passes over both.")] = 2,
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
        bool, typer.Option("--allow-traffic", help="Measure although others use a server.")
    ] = False,
    output: Annotated[
        str | None, typer.Option("--json", metavar="OUT", help="Write the results; - for stdout.")
    ] = None,
) -> None:
    """Measure a plain and a speculating server in turns; needs no plugin and no control plane.

    An API key is taken from SPECDECK_ENGINE_API_KEY.
    """
    try:
        request = BenchRequest(
            concurrency=numbers(concurrency, "--concurrency"),
            rates_s=rates(arrivals),
            repeats=repeats,
            budget_s=read_seconds(budget, "--budget"),
            window_s=None if window is None else read_seconds(window, "--window"),
            input_len=input_len,
            output_len=output_len,
            prompts=prompts,
            stream_interval=stream_interval,
            allow_traffic=allow_traffic,
            author=login(),
        )
    except ValueError as error:
        raise as_usage(error) from error
    try:
        file = asyncio.run(_measure(plain, spec, request, spec_tier))
    except (StoppedError, FlowError, ValueError) as error:
        end_line()
        say(str(error))
        raise typer.Exit(CANNOT_START) from error
    end_line()
    write(file, output)
    if file.points and output != "-":
        from controlplane.bench_analysis import analyse
        from controlplane.bench_files import for_terminal
        from controlplane.bench_text import text

        show(for_terminal(text(analyse(file, f"{plain} against {spec}"))))
    if not file.complete:
        raise typer.Exit(INTERRUPTED if STOPPED in file.notes else DEGRADED)


async def _measure(
    plain: str, spec: str, request: BenchRequest, spec_tier: str | None
) -> BenchFile:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return await measure(
        plain,
        spec,
        request,
        api_key=os.environ.get(API_KEY_VARIABLE) or None,
        told=_tell,
        stop=stop,
        spec_tier=spec_tier,
    )


def _tell(progress: Progress, point: BenchPoint | None) -> None:
    if point is not None:
        end_line()
        sys.stderr.write(point_line(point) + "\n")
        return
    share = progress.done / progress.total if progress.total else None
    left = "" if progress.left_s is None else f", at most {written(progress.left_s)} left"
    replace_line(f"{bar(share)} {progress.done}/{progress.total}  {progress.phase}{left}")
