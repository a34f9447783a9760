"""The load generator, the only one: its command line, and its parts under one name.

``python -m controlplane.load --url http://127.0.0.1:PORT --phases FILE --json``

Bounded in requests and time, and to this machine unless told otherwise.  Exit codes: 0 all sent
(failed requests are counted in the result), 2 wrong usage, 3 nothing answers, 4 refused target,
130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from controlplane.load_plan import (
    MOST_REQUESTS,
    MOST_SECONDS,
    Bounds,
    LoadPhase,
    LoadPlan,
    PlanError,
    Target,
    Work,
)
from controlplane.load_records import LoadResult, PhaseRecord, Quantiles, RequestRecord, Steady
from controlplane.load_run import UnreachableError, run

__all__ = [
    "Bounds",
    "LoadPhase",
    "LoadPlan",
    "LoadResult",
    "PhaseRecord",
    "PlanError",
    "Quantiles",
    "RequestRecord",
    "Steady",
    "Target",
    "UnreachableError",
    "Work",
    "main",
    "run",
]

OK = 0
USAGE = 2
UNREACHABLE = 3
REFUSED = 4
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    options = _parser().parse_args(argv)
    if options.allow_remote and None in (options.max_requests, options.max_seconds):
        return _fail(USAGE, "--allow-remote needs --max-requests and --max-seconds")
    try:
        target = Target.parse(options.url, allow_remote=options.allow_remote)
    except PlanError as error:
        remote = "is not this machine" in str(error)
        return _fail(REFUSED if remote else USAGE, str(error))
    try:
        bounds = {
            "max_requests": options.max_requests,
            "max_seconds": options.max_seconds,
            "request_timeout_s": options.timeout,
        }
        work = Work(
            plan=LoadPlan.parse(options.phases.read_bytes()),
            bounds=Bounds(**{name: value for name, value in bounds.items() if value is not None}),
            stream=options.stream,
            repeat=options.repeat,
            seed=options.seed,
        )
    except OSError as error:
        return _fail(USAGE, f"cannot read {options.phases}: {error.strerror}")
    except PlanError as error:
        return _fail(USAGE, str(error))
    except ValidationError as error:
        return _fail(USAGE, error.errors()[0]["msg"].removeprefix("Value error, "))
    try:
        result = asyncio.run(_interruptible(target, work, keep=options.requests))
    except UnreachableError as error:
        return _fail(UNREACHABLE, str(error))
    if options.json:
        exclude = None if options.requests else {"requests"}
        sys.stdout.write(result.model_dump_json(by_alias=True, exclude=exclude) + "\n")
    else:
        sys.stdout.write(table(result))
    return INTERRUPTED if result.stopped_by == "stop" else OK


async def _interruptible(target: Target, work: Work, *, keep: bool) -> LoadResult:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return await run(target, work, keep_requests=keep, stop=stop)


def table(result: LoadResult) -> str:
    """The result for people; "-" where there is nothing to show."""
    lines = [
        f"load on {result.target}, {'streamed' if result.stream else 'not streamed'}, "
        f"{result.seconds:.1f} s",
        f"{'phase':>5} {'clients':>7} {'requests':>8} {'failed':>6} {'tok/s':>9} "
        f"{'steady tok/s':>12} {'TTFT p50 ms':>11} {'TPOT p50 ms':>11} {'e2e p50 s':>9} "
        f"{'accept tok':>10}",
    ]
    for phase in result.phases:
        cells = (
            _number(phase.tok_s, 9, 0),
            _number(phase.steady.tok_s if phase.steady else None, 12, 0),
            _number(phase.ttft_s.p50 * 1e3 if phase.ttft_s else None, 11, 1),
            _number(phase.tpot_s.p50 * 1e3 if phase.tpot_s else None, 11, 2),
            _number(phase.e2e_s.p50 if phase.e2e_s else None, 9, 2),
            _number(phase.accept_length, 10, 2),
        )
        lines.append(
            f"{phase.index:>5} {phase.concurrency:>7} {phase.requests:>8} {phase.failed:>6} "
            + " ".join(cells)
        )
    lag = result.own.lag_s
    lines.append(
        f"generator: {result.own.cpu_share * 100:.0f} % of one core, lag p99 "
        + ("-" if lag is None else f"{lag.p99 * 1e3:.1f} ms")
        + ("; these figures are the generator's, not the server's" * result.own.bottleneck)
    )
    lines += [f"{count} x {error}" for error, count in result.errors.items()]
    if result.stopped_by:
        lines.append(f"ended early by {result.stopped_by}")
    return "\n".join(lines) + "\n"


def _number(value: float | None, width: int, digits: int) -> str:
    return f"{'-' if value is None else f'{value:.{digits}f}':>{width}}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m controlplane.load",
        description="Send phases of fixed work to an SGLang server and measure its answers.",
    )
    parser.add_argument("--url", required=True, help="server, for example http://127.0.0.1:30000")
    parser.add_argument("--phases", required=True, type=Path, help="JSON file with the phases")
    parser.add_argument("--stream", action="store_true", help="ask for streamed answers")
    parser.add_argument(
        "--repeat", action="store_true", help="begin again after the last phase, up to a bound"
    )
    parser.add_argument("--seed", type=int, default=1, help="of prompts and arrivals (default 1)")
    parser.add_argument(
        "--max-requests", type=int, help=f"requests at most (default 20000, up to {MOST_REQUESTS})"
    )
    parser.add_argument(
        "--max-seconds", type=float, help=f"seconds at most (default 600, up to {MOST_SECONDS:.0f})"
    )
    parser.add_argument("--timeout", type=float, help="seconds per request (default 120)")
    parser.add_argument(
        "--allow-remote",
        action="store_true",
        help="load a machine other than this one; needs both bounds",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--requests", action="store_true", help="with --json: every request too")
    return parser


def _fail(code: int, message: str) -> int:
    sys.stderr.write(f"load: {message}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
