"""What the GPU does in one decode round: kernels, their times, and the time it waits.

Runs on the GPU machine beside the servers.  Each ``--case NAME=URL[,TIER]`` is put under a constant
batch, SGLang's own profiler records a few dozen rounds (GPU activity alone), and its trace is
reduced to a table: per kernel how often in a round and how long, apart for what a CUDA graph
replays and what is launched by itself.  A recorded round is slower than an unrecorded one; compare
cases with each other, and take times of rounds from ``rounds.py``.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import aiohttp
from rounds import PROMPT, Server, connector, keep

KV_SLOTS = 100_000
"""Fewer than a server with room for 256 clients has in beside.sh: all must run while rounds are
recorded, else there is an error."""
LONGEST_ROUND_S = 0.02
GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")


def short(name: str) -> str:
    """A kernel's name without its template arguments' depths."""
    return name.replace("void ", "").replace("at::native::", "")[:160]


def reduce_trace(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The table of a trace's rounds, times in microseconds."""
    work = sorted(
        (e for e in events if e.get("ph") == "X" and e.get("cat") in GPU_WORK),
        key=lambda e: e["ts"],
    )
    # One kernel per round marks where it ends: verify, else greedy sampling's argmax (a chain's
    # draft has more of those).
    verified = [e["ts"] for e in work if "verifytree" in e["name"].lower().replace("_", "")]
    marks = verified or [e["ts"] for e in work if "ArgMax" in e["name"]]
    if len(marks) < 3:
        raise RuntimeError(f"{len(marks)} rounds in the trace: nothing to compare")
    first, last, rounds = marks[0], marks[-1], len(marks) - 1
    inside = [e for e in work if first <= e["ts"] < last]
    busy, end = 0.0, 0.0
    table: dict[tuple[bool, str], list[float]] = defaultdict(list)
    for event in inside:
        start, stop = event["ts"], event["ts"] + event["dur"]
        busy += max(0.0, stop - max(start, end))
        end = max(end, stop)
        graph = bool(event.get("args", {}).get("graph node id"))
        table[graph, short(event["name"])].append(event["dur"])
    rows = [
        {
            "kernel": name,
            "in_graph": graph,
            "per_round": round(len(times) / rounds, 2),
            "us_each": round(sum(times) / len(times), 2),
            "us_per_round": round(sum(times) / rounds, 2),
        }
        for (graph, name), times in table.items()
    ]
    middle = marks[len(marks) // 2], marks[len(marks) // 2 + 1]
    span = (last - first) / rounds
    return {
        "rounds": rounds,
        "round_us": round(span, 1),
        "busy_us": round(busy / rounds, 1),
        "idle_us": round(span - busy / rounds, 1),
        "launched_alone_us": round(sum(r["us_per_round"] for r in rows if not r["in_graph"]), 1),
        "kernels": sorted(rows, key=lambda row: -row["us_per_round"]),
        # One round in order, without what a graph replays.
        "one_round": [
            [
                round(e["ts"] - middle[0], 1),
                e["dur"],
                e["args"].get("stream"),
                short(e["name"])[:90],
            ]
            for e in inside
            if middle[0] <= e["ts"] < middle[1] and not e.get("args", {}).get("graph node id")
        ],
    }


def written(folder: Path) -> list[Path]:
    """Traces in a folder that are more than begun."""
    return [path for path in folder.rglob("*.trace.json.gz") if path.stat().st_size]


async def idle(server: Server, patched: bool) -> None:
    """Wait until no request runs."""
    for _ in range(300):
        if not (await server.count(patched)).running:
            return
        await asyncio.sleep(0.1)
    raise RuntimeError(f"{server.name}: requests still ran after 30 s")


async def record(server: Server, clients: int, steps: int, patched: bool) -> dict[str, Any]:
    """Profile ``steps`` forward passes at a constant batch."""
    folder = Path(tempfile.mkdtemp(prefix="profile-"))
    await idle(server, patched)  # whoever was measured here before may have left requests
    await server.flush()
    answer = min(1200, KV_SLOTS // clients - PROMPT)
    jobs = [asyncio.create_task(server.generate(answer)) for _ in range(clients)]
    running = 0
    while running < clients and not any(job.done() for job in jobs):
        await asyncio.sleep(0.05)
        running = (await server.count(patched)).running
    await asyncio.sleep(0.2)
    held = (await server.count(patched)).held
    body = {"output_dir": str(folder), "num_steps": steps, "activities": ["GPU"],
            "with_stack": False, "record_shapes": False}  # fmt: skip
    async with server.session.post(server.url + "/start_profile", json=body) as reply:
        if reply.status != 200:
            raise RuntimeError(f"{reply.status} {await reply.text()}")
    await asyncio.sleep(steps * LONGEST_ROUND_S)
    if any(job.done() for job in jobs):
        raise RuntimeError(f"not all {clients} requests ran while rounds were recorded")
    for _ in range(300):
        await asyncio.sleep(0.1)
        traces = written(folder)
        if traces:
            break
    else:
        raise RuntimeError("SGLang wrote no trace within 30 s")
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)
    # A server that decodes on for nobody would share the card with the next case.
    async with server.session.post(server.url + "/abort_request", json={"abort_all": True}):
        await idle(server, patched)
    for _ in range(50):
        try:
            with gzip.open(traces[0], "rt", encoding="utf-8") as file:
                found = reduce_trace(json.load(file)["traceEvents"])
            return {"kv_slots_per_request": round(held / clients, 1), **found}
        except (EOFError, ValueError):
            await asyncio.sleep(0.2)  # still being written
    raise RuntimeError(f"{traces[0]} does not become readable")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", required=True, help="NAME=URL[,TIER]")
    parser.add_argument("--clients", default="1,16")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--label", required=True)
    parser.add_argument("--out", required=True)
    chosen = parser.parse_args()
    result: dict[str, Any] = {"label": chosen.label, "cases": []}
    async with aiohttp.ClientSession(
        connector=connector(), timeout=aiohttp.ClientTimeout(total=120)
    ) as session:
        for clients in (int(c) for c in chosen.clients.split(",")):
            for case in chosen.case:
                name, _, where = case.partition("=")
                url, _, tier = where.partition(",")
                server = Server(session, name, url)
                row: dict[str, Any] = {"name": name, "clients": clients}
                try:
                    if tier:
                        await server.tier(tier)
                    row |= await record(server, clients, chosen.steps, bool(tier))
                except (RuntimeError, aiohttp.ClientError, TimeoutError) as error:
                    row["error"] = repr(error)
                result["cases"].append(row)
                print({k: v for k, v in row.items() if not isinstance(v, list)}, flush=True)
                keep(chosen.out, result)
                await asyncio.sleep(1.0)


if __name__ == "__main__":
    asyncio.run(main())
