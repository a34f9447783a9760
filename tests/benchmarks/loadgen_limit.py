"""The load generator's own limit on this machine: how much it can read before it is the bottleneck.

    python -m tests.benchmarks.loadgen_limit [--json tests/benchmarks/results/loadgen_limit.json]

A process that only writes canned answers stands at the other end: each answer is a stream of events
as SGLang sends them, written as fast as the generator reads.  What is left is the generator itself.
Nothing here says anything about a server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from controlplane.benchrun_flow import FlowProcess
from controlplane.benchrun_window import Load
from controlplane.load_reports import FlowSettings

EVENTS = 64
"""Events of one answer: a request of 64 decode steps."""
PACED_STEPS_S = 40.0
"""Steps per second of the paced source, as a busy server has them."""
SECONDS = 3.0


def event(tokens: int) -> bytes:
    """One event of about the size SGLang sends."""
    meta = {"id": "0" * 32, "finish_reason": None, "prompt_tokens": 128}
    body = {"text": "word " * tokens, "meta_info": meta | {"completion_tokens": tokens}}
    data = f"data: {json.dumps(body)}\n\n".encode()
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
PARTS = [event(number + 1) for number in range(EVENTS)]
TAIL = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pace: float) -> None:
    """Serve one connection."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            writer.write(HEAD)
            if pace:
                for part in PARTS:
                    if writer.is_closing():
                        return
                    writer.write(part)
                    await asyncio.sleep(1 / pace)
                writer.write(TAIL)
            else:
                writer.write(b"".join(PARTS) + TAIL)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def serve(pace: float) -> None:
    """Serve until killed; the port is the first line."""
    server = await asyncio.start_server(
        lambda reader, writer: answer(reader, writer, pace), "127.0.0.1", 0, backlog=2048
    )
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


async def measure(url: str, clients: int) -> dict[str, Any]:
    """One number of clients."""
    flow = await FlowProcess.start(
        FlowSettings(url=url, prompts="ids", input_len=128, output_len=EVENTS)
    )
    try:
        await flow.order(Load(clients))
        await flow.until(lambda report: report.warm >= clients, 20)
        await asyncio.sleep(0.5)
        first = flow.reports[-1]
        await asyncio.sleep(SECONDS)
        last = flow.reports[-1]
        inside = [one for one in flow.reports if first.at_ms < one.at_ms <= last.at_ms]
    finally:
        await flow.close()
    seconds = (last.at_ms - first.at_ms) / 1000
    requests = sum(len(one.finished) for one in inside)
    errors = sum(bool(request.error) for one in inside for request in one.finished)
    lags = sorted(lag for one in inside for lag in one.lags_ms)
    return {
        "clients": clients,
        "requests_per_s": round(requests / seconds, 1),
        "tokens_per_s": round((last.tokens - first.tokens) / seconds),
        "cpu_share": round((last.cpu_s - first.cpu_s) / seconds, 3),
        "lag_ms_mean": round(sum(lags) / len(lags), 2) if lags else None,
        "lag_ms_p99": round(lags[int(0.99 * (len(lags) - 1))], 2) if lags else None,
        "errors": errors,
    }


def run(pace: float, clients: tuple[int, ...]) -> list[dict[str, Any]]:
    """Every number of clients against one source."""
    command = [sys.executable, "-m", "tests.benchmarks.loadgen_limit", "--serve", str(pace)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as source:
        try:
            assert source.stdout is not None
            url = f"http://127.0.0.1:{source.stdout.readline().strip()}"
            return [asyncio.run(measure(url, count)) for count in clients]
        finally:
            source.kill()


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", type=float)
    said = parser.parse_args()
    if said.serve is not None:
        asyncio.run(serve(said.serve))
        return
    load = os.getloadavg()
    found = {
        "what": "own limit of controlplane/load_flow.py",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, shared with other work",
        "load_average": [round(one, 1) for one in load],
        "python": platform.python_version(),
        "answer": f"{EVENTS} events, {sum(map(len, PARTS)) / 1000:.0f} kB, cumulative text",
        "as_fast_as_possible": run(0.0, (1, 16, 64, 256)),
        "paced": {"steps_per_s": PACED_STEPS_S, "runs": run(PACED_STEPS_S, (16, 64, 256, 512))},
    }
    text = json.dumps(found, indent=1)
    sys.stdout.write(text + "\n")
    if said.json:
        said.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
