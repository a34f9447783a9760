"""10,000 switches under load: no failure, no growth of the host's or the card's memory.

Reads the resident memory of the server's processes below ``--pid`` from /proc, and the card's used
memory from nvidia-smi where there is one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
from rounds import Server, connector, keep, spread


def family(pid: int) -> list[int]:
    """A process and all below it."""
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        found.append(one)
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            todo += [int(word) for word in task.read_text().split()]
    return found


def resident_mb(pid: int) -> float:
    """Resident memory of a process and all below it."""
    pages = 0
    for one in family(pid):
        pages += int(Path(f"/proc/{one}/statm").read_text().split()[1])
    return round(pages * 4096 / 2**20, 1)


async def card_mb() -> list[int] | None:
    """Used memory of each card, None without nvidia-smi."""
    if shutil.which("nvidia-smi") is None:
        return None
    asked = await asyncio.create_subprocess_exec(
        "nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await asked.communicate()
    return [int(line) for line in out.split()]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patched", required=True)
    parser.add_argument("--pid", type=int, required=True, help="the server's first process")
    parser.add_argument("--tiers", required=True)
    parser.add_argument("--switches", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--limit", type=float, default=540, help="seconds after which it ends")
    parser.add_argument("--ids", default="1000,30000", help="token ids of prompts, from and below")
    parser.add_argument("--label", required=True)
    parser.add_argument("--out", required=True)
    chosen = parser.parse_args()
    tiers, begin = chosen.tiers.split(","), time.perf_counter()
    async with aiohttp.ClientSession(
        connector=connector(), timeout=aiohttp.ClientTimeout(total=120)
    ) as session:
        server, stop = Server(session, "s", chosen.patched), asyncio.Event()
        low, high = chosen.ids.split(",")
        server.ids = int(low), int(high)

        async def client() -> int:
            done = 0
            while not stop.is_set():
                await server.generate(200)
                done += 1
            return done

        jobs = [asyncio.create_task(client()) for _ in range(chosen.clients)]
        rows: list[dict[str, Any]] = []
        steps: Counter[int] = Counter()
        taken: list[float] = []
        first, turn, done = (await server.get("/speculation"))["replicas"][0]["switches"], 0, 0
        ended_by = ""
        try:
            while done < chosen.switches and time.perf_counter() - begin < chosen.limit:
                taken.append(await server.tier(tiers[turn % len(tiers)]) * 1000)
                replica = (await server.get("/speculation"))["replicas"][0]
                done, turn = replica["switches"] - first, turn + 1
                if replica["ranks"][0].get("confirm_steps"):
                    steps[replica["ranks"][0]["confirm_steps"]] += 1
                if done >= len(rows) * chosen.switches / 10:
                    rows.append({"switches": done, "resident_mb": resident_mb(chosen.pid),
                                 "card_mb": await card_mb()})  # fmt: skip
                    print(json.dumps(rows[-1]), flush=True)
        except (RuntimeError, aiohttp.ClientError) as error:
            ended_by = repr(error)  # what was measured before it is still told
        stop.set()
        answers = await asyncio.gather(*jobs, return_exceptions=True)
        finished = sum(answer for answer in answers if isinstance(answer, int))
        failed = [repr(answer) for answer in answers if not isinstance(answer, int)]
        half = rows[len(rows) // 2 :]
        slope = None
        if len(half) > 1:
            slope = (
                1000
                * statistics.linear_regression(
                    [r["switches"] for r in half], [r["resident_mb"] for r in half]
                ).slope
            )
        result = {
            "label": chosen.label, "switches": done, "ended_by": ended_by,
            "requests_finished": finished, "clients_failed": failed,
            "answered_late": server.answered_late,
            "put_to_confirmed_ms": spread(taken) if taken else None,
            "steps_to_confirm": dict(sorted(steps.items())),
            "growth_mb_per_1000": slope, "rows": rows,
            "state": None if ended_by else await server.get("/speculation"),
        }  # fmt: skip
        print(json.dumps({k: v for k, v in result.items() if k not in ("rows", "state")}))
        keep(chosen.out, result)


if __name__ == "__main__":
    asyncio.run(main())
