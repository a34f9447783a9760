"""Sampled outputs under switching come from the plain server's distribution.

Both servers answer the same prompts at temperature 0.6, the patched one while tiers change at
random.  At each place of the answer the pair of the token before and the token there is compared by
a two-sample chi-square test (``tests/engine/token_spread.py``).  Most prompts are one token long:
what a round does not see weighs most where there is little else to see.

Samples and bound are fixed ahead: the chance of one false alarm in the whole run is below
``--alarm``, shared out evenly over the tests.  A second plain run is compared in the same way, and
a server that is broken on purpose must fail.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aiohttp
from equality import switcher
from rounds import Server, connector, keep

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.engine.token_spread import compare, places


async def draw(server: Server, ids: list[int], samples: int, tokens: int) -> list[list[int]]:
    """Many answers to one prompt."""
    params = {"temperature": 0.6, "max_new_tokens": tokens, "ignore_eos": True}
    turn = asyncio.Semaphore(64)

    async def one() -> list[int]:
        async with (
            turn,
            server.session.post(
                server.url + "/generate", json={"input_ids": ids, "sampling_params": params}
            ) as reply,
        ):
            answer = await reply.json()
            if reply.status != 200:
                raise RuntimeError(f"{reply.status} {answer}")
            return list(answer["output_ids"])

    return list(await asyncio.gather(*(one() for _ in range(samples))))


def judged(
    one: list[list[list[int]]], other: list[list[list[int]]], z: float
) -> list[dict[str, Any]]:
    """One test for each prompt and place."""
    return [
        asdict(compare(places(mine, k), places(theirs, k), z=z))
        for mine, theirs in zip(one, other, strict=True)
        for k in range(len(mine[0]))
    ]


def over(tests: list[dict[str, Any]]) -> int:
    """Tests that speak against one distribution."""
    return sum(test["chi2"] > test["bound"] for test in tests)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plain", required=True)
    parser.add_argument("--patched", required=True)
    parser.add_argument("--tiers", required=True)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--tokens", type=int, default=5)
    parser.add_argument("--alarm", type=float, default=1e-3)
    parser.add_argument("--label", required=True)
    parser.add_argument("--out", required=True)
    chosen = parser.parse_args()
    z = statistics.NormalDist().inv_cdf(1 - chosen.alarm / chosen.prompts / chosen.tokens)
    rng = random.Random(17)
    asked = [
        [rng.randrange(5, 500) for _ in range(20 if number % 4 == 3 else 1)]
        for number in range(chosen.prompts)
    ]
    async with aiohttp.ClientSession(
        connector=connector(), timeout=aiohttp.ClientTimeout(total=600)
    ) as session:
        plain, patched = Server(session, "p", chosen.plain), Server(session, "s", chosen.patched)

        async def run(server: Server) -> list[list[list[int]]]:
            return [await draw(server, ids, chosen.samples, chosen.tokens) for ids in asked]

        want, again = await run(plain), await run(plain)
        stop = asyncio.Event()
        moving = asyncio.create_task(switcher(patched, chosen.tiers.split(","), stop))
        got = await run(patched)
        stop.set()
        taken = await moving
        tests = {"plain_again": judged(want, again, z), "switching": judged(want, got, z)}
        result = {
            "label": chosen.label, "samples": chosen.samples, "z": z, "commands_taken": taken,
            "over": {name: over(found) for name, found in tests.items()}, "tests": tests,
            "state": await patched.get("/speculation"),
        }  # fmt: skip
        print(json.dumps({"label": chosen.label, "over": result["over"], "of": len(asked) *
                          chosen.tokens, "commands": taken}), flush=True)  # fmt: skip
        keep(chosen.out, result)


if __name__ == "__main__":
    asyncio.run(main())
