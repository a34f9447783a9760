"""A benchmark's progress as a line of text: for a terminal, and for the console.  Pure."""

from __future__ import annotations

from controlplane.bench_records import BenchPoint
from controlplane.benchrun_messages import BenchState, BenchStatus
from controlplane.durations import written

BAR_CELLS = 20


def bar(share: float | None, cells: int = BAR_CELLS) -> str:
    """``[#####-----]``; all dots while nothing is known."""
    if share is None:
        return "[" + "." * cells + "]"
    filled = round(min(max(share, 0.0), 1.0) * cells)
    return "[" + "#" * filled + "-" * (cells - filled) + "]"


def share_of(status: BenchStatus) -> float | None:
    """Windows measured of those planned; None before there is a plan."""
    return status.done_runs / status.total_runs if status.total_runs else None


def progress_line(status: BenchStatus, width: int = 80) -> str:
    """How far it is, in one line of at most ``width`` characters."""
    left = "" if status.left_s is None else f", at most {written(status.left_s)} left"
    counts = f"{status.done_runs}/{status.total_runs}" if status.total_runs else ""
    head = f"{bar(share_of(status))} {counts}".rstrip()
    line = f"{head}  {status.phase}{left}"
    return line if len(line) <= width else line[: max(width - 1, 0)] + "~"


def point_line(point: BenchPoint) -> str:
    """One measured run; a missing value is "-"."""
    load = f"{point.concurrency} req" if point.rate_s is None else f"{point.rate_s:g} req/s"
    marks = "" if not point.not_comparable else f"  ! {'; '.join(point.not_comparable)}"
    return (
        f"{point.tier:<9} {load:>9} {point.tok_s:>9.0f} tok/s"
        f"  accept {_number(point.accept_length)}"
        f"  TTFT {_milliseconds(point.ttft_s)}  TPOT {_milliseconds(point.tpot_s)}{marks}"
    )


def ended_line(status: BenchStatus) -> str:
    """How it ended, in one sentence."""
    runs = f"{status.done_runs} of {status.total_runs} runs" if status.total_runs else "no run"
    took = written(status.elapsed_s)
    if status.state is BenchState.DONE:
        return f"benchmark {status.id} done: {runs} in {took}"
    return f"benchmark {status.id} {status.state.value} after {runs} in {took}: {status.message}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.1f} ms"
