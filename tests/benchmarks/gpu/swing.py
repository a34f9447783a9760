"""Load that swings between few and many clients, in phases of fixed work.

A phase is a closed loop of one width with a fixed number of requests, sized so that each phase
takes about ``--phase`` seconds on the plain server.  The same sequence then runs on every server
and tier, ``--repeats`` times, in turns.  The oracle is, phase by phase, the fastest fixed tier of
the same repeat; it knows the load ahead and pays for no switch.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from typing import Any

import aiohttp
from rounds import Server, closed_loop, connector, keep


def work_of(clients: int, tok_s: float, phase_s: float, new_tokens: int) -> int:
    """Requests of a phase: what plain serves in its time, at least one per client, whole turns."""
    turns = max(1, round(tok_s * phase_s / new_tokens / clients))
    return clients * turns


def oracle(rows: dict[str, list[float]], fixed: list[str]) -> float:
    """Seconds of the best fixed tier of each phase, one after the other."""
    return sum(min(seconds) for seconds in zip(*(rows[name] for name in fixed), strict=True))


def verdict(runs: list[dict[str, list[float]]], fixed: list[str]) -> dict[str, Any]:
    """How ``auto`` compares, as medians over the repeats (above 1: ``auto`` is faster)."""
    ratios: dict[str, list[float]] = {}
    for rows in runs:
        auto = sum(rows["auto"])
        ratios.setdefault("oracle", []).append(oracle(rows, fixed) / auto)
        for name, seconds in rows.items():
            if name != "auto":
                ratios.setdefault(name, []).append(sum(seconds) / auto)
    return {name: {"median": round(statistics.median(values), 4), "all": values}
            for name, values in ratios.items()}  # fmt: skip


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plain", required=True, help="URL of a server without speculation")
    parser.add_argument("--patched", required=True, help="URL of a server with the plugin")
    parser.add_argument("--upstream", help="URL of a server with SGLang's own adaptive policy")
    parser.add_argument("--tiers", required=True, help="fixed tiers to compare with")
    parser.add_argument(
        "--thresholds", required=True, help="file of rounds.py or of specdeck bench, or JSON itself"
    )
    parser.add_argument("--low", type=int, default=1)
    parser.add_argument("--high", type=int, default=256)
    parser.add_argument("--phases", type=int, default=6)
    parser.add_argument("--phase", type=float, default=6.0, help="seconds of a phase on plain")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--new-tokens", type=int, default=256)
    parser.add_argument("--limit", type=float, default=500, help="start nothing new after it")
    parser.add_argument("--label", required=True)
    parser.add_argument("--out", required=True)
    chosen = parser.parse_args()
    begin = time.perf_counter()
    text = chosen.thresholds
    if not text.lstrip().startswith("{"):
        with open(text, encoding="utf-8") as file:  # noqa: ASYNC230, PTH123
            read = json.load(file)
        text = json.dumps(read.get("thresholds", read))
    order, tiers = json.loads(text), chosen.tiers.split(",")
    async with aiohttp.ClientSession(
        connector=connector(), timeout=aiohttp.ClientTimeout(total=600)
    ) as session:
        plain, patched = (
            Server(session, "plain", chosen.plain),
            Server(session, "p", chosen.patched),
        )
        loads = [chosen.low, chosen.high]
        work = {}
        for clients in loads:
            row = await closed_loop(plain, clients, clients * 2, chosen.new_tokens)
            work[clients] = work_of(clients, row["tok_s"], chosen.phase, chosen.new_tokens)
        sequence = [loads[turn % 2] for turn in range(chosen.phases)]

        async def run(name: str) -> list[float]:
            server = patched
            if name == "plain":
                server = plain
            elif name == "upstream":
                server = Server(session, name, chosen.upstream)
            elif name == "auto":
                status, answer = await patched.put(mode="auto", thresholds=order)
                if status != 200:
                    raise RuntimeError(f"auto: {status} {answer}")
            else:
                await patched.tier(name)
            return [
                (await closed_loop(server, clients, work[clients], chosen.new_tokens))["seconds"]
                for clients in sequence
            ]

        names = ["plain", *tiers, "auto", *(["upstream"] if chosen.upstream else [])]
        runs: list[dict[str, list[float]]] = []
        for repeat in range(chosen.repeats):
            if time.perf_counter() - begin > chosen.limit:
                break
            # There and back, so that drift falls on all alike.
            turn = names if repeat % 2 == 0 else names[::-1]
            seconds: dict[str, list[float]] = {}
            for name in turn:
                seconds[name] = await run(name)
                whole = len(seconds) == len(names)
                if whole:
                    runs.append(seconds)
                keep(chosen.out, {
                    "label": chosen.label, "work": work, "sequence": sequence, "thresholds": order,
                    "runs": runs, "auto_over": verdict(runs, tiers),
                    "unfinished": {} if whole else seconds,
                    "state": await patched.get("/speculation"),
                })  # fmt: skip
                print(json.dumps({name: seconds[name]}), flush=True)
        print(json.dumps(verdict(runs, tiers)), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
