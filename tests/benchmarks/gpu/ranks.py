"""Two TP ranks under a stream of commands and load: they must never run different tiers.

Ranks publish their tier with the number of the decode step.  Two ranks at the same step must name
the same tier; the journals they keep are compared through the switches each reports.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from typing import Any

import aiohttp
from rounds import Server, connector, keep, spread


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patched", required=True)
    parser.add_argument("--tiers", required=True)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--clients", type=int, default=48)
    parser.add_argument("--label", required=True)
    parser.add_argument("--out", required=True)
    chosen = parser.parse_args()
    tiers, rng = chosen.tiers.split(","), random.Random(5)
    patience = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(connector=connector(), timeout=patience) as session:
        server = Server(session, "tp2", chosen.patched)
        end = time.perf_counter() + chosen.seconds
        seen = {"polls": 0, "same_step": 0, "differ_at_same_step": 0, "unobserved": 0}

        async def client() -> int:
            done = 0
            while time.perf_counter() < end:
                await server.generate(rng.randrange(40, 400))
                done += 1
            return done

        async def commander() -> tuple[int, list[int]]:
            taken, statuses = 0, []
            while time.perf_counter() < end:
                name = rng.choice(tiers)
                mode: dict[str, Any] = {"mode": "off"} if name == "off" else {
                    "mode": "on", "tier": name,
                }  # fmt: skip
                status, _ = await server.put(**mode)
                taken += status == 200
                statuses.append(status)
                await asyncio.sleep(0.05)
            return taken, statuses

        async def watcher() -> None:
            while time.perf_counter() < end:
                ranks = (await server.get("/speculation"))["replicas"][0]["ranks"]
                seen["polls"] += 1
                seen["unobserved"] += sum(not rank["observed"] for rank in ranks)
                if len({rank["step"] for rank in ranks}) == 1:
                    seen["same_step"] += 1
                    seen["differ_at_same_step"] += len({rank["tier"] for rank in ranks}) > 1
                await asyncio.sleep(0.005)

        jobs = [asyncio.create_task(client()) for _ in range(chosen.clients)]
        (taken, statuses), _ = await asyncio.gather(commander(), watcher())
        finished = sum(await asyncio.gather(*jobs))
        times = [await server.tier(tiers[turn % len(tiers)]) * 1000 for turn in range(12)]
        state = await server.get("/speculation")
        result = {
            "label": chosen.label, **seen, "commands": len(statuses), "taken": taken,
            "refused": sorted({s for s in statuses if s != 200}), "requests_finished": finished,
            "switches": state["replicas"][0]["switches"],
            "idle_put_to_confirmed_ms": spread(times), "state": state,
        }  # fmt: skip
        print(json.dumps({k: v for k, v in result.items() if k != "state"}), flush=True)
        keep(chosen.out, result)


if __name__ == "__main__":
    asyncio.run(main())
