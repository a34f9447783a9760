"""The load of a benchmark seen from outside: a flow in a process of its own, and its reports."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from pydantic import ValidationError

from controlplane.benchrun_window import Load
from controlplane.load_reports import (
    REPORT_EVERY_S,
    FlowHello,
    FlowOrder,
    FlowReport,
    FlowSettings,
)

KEPT = 3000
"""Reports kept, five minutes of them."""
A_SECOND = round(1 / REPORT_EVERY_S)
START_S = 30.0
END_S = 2.0
MOST_IN_FLIGHT = 1024
"""Requests an open loop may have in flight."""


class FlowError(Exception):
    """The load cannot be made; the message is a sentence that says what to do."""


class FlowProcess:
    """One load process; it ends with whoever holds its pipe.

    Use ``await FlowProcess.start(settings)``, then ``order``; always ``close`` at the end.
    """

    def __init__(self, process: asyncio.subprocess.Process, said: FlowHello) -> None:
        self.prompts = said.prompts
        """What it sends, in words."""
        self.mean_output = said.mean_output
        """Output tokens per request on average."""
        self.reports: deque[FlowReport] = deque(maxlen=KEPT)
        self.cpu_most = 0.0
        self.late_ms_most = 0.0
        self._process = process
        self._ended = False
        self._news = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, settings: FlowSettings) -> FlowProcess:
        """Start one and try a request.

        Raises:
            FlowError: the server does not serve it.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "controlplane.load_flow",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**22,
        )
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            # On the pipe, not on the command line: it may hold a key.
            process.stdin.write(settings.model_dump_json().encode() + b"\n")
            wait_s = START_S + settings.request_timeout_s
            async with asyncio.timeout(wait_s):
                line = await process.stdout.readline()
            said = FlowHello.model_validate_json(line)
            if said.problem:
                raise FlowError(said.problem)
        except TimeoutError:
            await _end(process)
            raise FlowError(f"{settings.url} did not answer a short request in time") from None
        except (ValidationError, OSError):
            await _end(process)
            raise FlowError("the load generator did not start; its error is in the log") from None
        except BaseException:
            await _end(process)
            raise
        return cls(process, said)

    async def order(self, load: Load | None) -> None:
        """Change the load; None ends it.

        Raises:
            FlowError: the process is gone.
        """
        if load is None:
            order = FlowOrder(clients=0)
        elif load.rate_s is not None:
            order = FlowOrder(clients=MOST_IN_FLIGHT, rate_s=load.rate_s)
        else:
            order = FlowOrder(clients=load.clients)
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(order.model_dump_json().encode() + b"\n")
            await self._process.stdin.drain()
        except (OSError, RuntimeError):
            raise FlowError("the load generator ended unexpectedly") from None

    async def until(self, condition: Callable[[FlowReport], bool], seconds: float) -> bool:
        """Wait for a report that fulfils ``condition``; False if none came in time.

        Raises:
            FlowError: the process is gone.
        """

        def there() -> bool:
            return self._ended or (bool(self.reports) and condition(self.reports[-1]))

        try:
            async with asyncio.timeout(seconds), self._news:
                await self._news.wait_for(there)
        except TimeoutError:
            return False
        if self._ended:
            raise FlowError("the load generator ended unexpectedly")
        return True

    def account(self) -> str:
        """What the load generator says of itself over the whole run."""
        return (
            f"load generator: at most {100 * self.cpu_most:.0f} % of a core, "
            f"at most {self.late_ms_most:.0f} ms late"
        )

    async def close(self) -> None:
        """End the load and the process."""
        self._reading.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await self._reading
        await _end(self._process)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            while line := await self._process.stdout.readline():
                report = FlowReport.model_validate_json(line)
                self.late_ms_most = max(self.late_ms_most, *report.lags_ms, 0.0)
                if len(self.reports) >= A_SECOND:
                    early = self.reports[-A_SECOND]
                    seconds = (report.at_ms - early.at_ms) / 1000
                    if seconds > 0:
                        share = (report.cpu_s - early.cpu_s) / seconds
                        self.cpu_most = max(self.cpu_most, share)
                async with self._news:
                    self.reports.append(report)
                    self._news.notify_all()
        finally:
            self._ended = True
            async with self._news:
                self._news.notify_all()


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
