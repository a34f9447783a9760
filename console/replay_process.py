"""A private replay of one recording in a process of its own, on loopback.

A console reaches a recording as it reaches a control plane: by the client alone.  The process ends
with its standard input, so that none is left behind however the console ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Self

READY_S = 120.0
"""Opening a long recording on a slow machine."""
END_S = 10.0


class ReplayError(Exception):
    """The recording cannot be replayed; the message says why and what to do."""


class ReplayProcess:
    """A running replay.

    Args:
        url: where it answers.
    """

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self._process = process
        self.url = url

    @classmethod
    async def start(cls, file: Path) -> Self:
        """Replay ``file``.

        Raises:
            ReplayError: the file or this installation cannot do so.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # a folder of the user's is no part of the program
            "-m",
            "controlplane.replay_serving",
            str(file),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(READY_S):
                told = await process.stdout.readline()
            url = str(json.loads(told)["url"])
        except asyncio.CancelledError:
            # Nobody wants it any more.
            process.kill()
            await process.communicate()
            raise
        except (TimeoutError, ValueError, KeyError, TypeError) as error:
            why = await _end(process)
            raise ReplayError(why or f"{file} cannot be replayed: no answer") from error
        return cls(process, url)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    async def stop(self) -> None:
        """End it and wait for it."""
        await _end(self._process)


async def _end(process: asyncio.subprocess.Process) -> str:
    """End the process; the last thing it said."""
    if process.returncode is None and process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(END_S):
            _, said = await process.communicate()
    except (TimeoutError, ValueError):
        if process.returncode is None:
            process.kill()
        await process.wait()
        return ""
    lines = said.decode(errors="replace").strip().splitlines()
    if lines and lines[-1].startswith("ModuleNotFoundError: "):
        return f"{lines[-1].partition(': ')[2]}; run: pip install 'specdeck[controlplane]'"
    return lines[-1] if lines else ""
