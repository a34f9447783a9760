"""Following a benchmark on a terminal: its points as lines, its progress in the last one."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from contextlib import aclosing, suppress

from controlplane.bench_records import BenchFile
from controlplane.benchrun_bar import point_line, progress_line
from controlplane.benchrun_messages import BenchRequest, BenchState, BenchStatus, CancelRequest
from controlplane.client import ControlPlaneClient, RefusedError, UnreachableError
from controlplane.terminal import say

WATCH_AGAIN_S = 1.0


async def to_the_end(
    client: ControlPlaneClient, engine: str, request: BenchRequest
) -> tuple[BenchStatus, BenchFile]:
    """Start a benchmark and follow it until it ended; SIGINT and SIGTERM cancel it."""
    status = await client.start_benchmark(engine, request)
    say(f"benchmark {status.id} of {engine}; interrupt to cancel it")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    watching = asyncio.create_task(_watch(client, status))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({watching, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if stop.is_set() and not watching.done():
        watching.cancel()
        replace_line("cancelling")
        with suppress(RefusedError):
            cancel = CancelRequest(author=request.author, reason="interrupted")
            await client.cancel_benchmark(engine, status.id, cancel)
        status = await client.benchmark(engine, status.id)
    else:
        status = await watching
    end_line()
    return status, await client.benchmark_file(engine, status.id)


async def _watch(client: ControlPlaneClient, status: BenchStatus) -> BenchStatus:
    """Follow it to its end; a broken stream is taken up again."""
    seen = 0
    failures = 0
    while status.state is BenchState.RUNNING:
        try:
            stream = client.benchmark_progress(status.engine_id, status.id)
            async with aclosing(stream) as progress:
                async for status in progress:
                    failures = 0
                    for point in status.points[seen:]:
                        end_line()
                        sys.stderr.write(point_line(point) + "\n")
                    seen = len(status.points)
                    if status.state is BenchState.RUNNING:
                        replace_line(progress_line(status, _width()))
        except UnreachableError:
            failures += 1
            if failures > 5:
                raise
            await asyncio.sleep(WATCH_AGAIN_S)
            with suppress(UnreachableError):
                status = await client.benchmark(status.engine_id, status.id)
    return status


def _width() -> int:
    return shutil.get_terminal_size().columns - 1


def replace_line(text: str) -> None:
    """Replace the last line of a terminal; nothing where nobody watches."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text[: _width()]}")
        sys.stderr.flush()


def end_line() -> None:
    """Take the progress line away."""
    replace_line(text="")
