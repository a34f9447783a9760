"""Greedy equality on a GPU with real (tiny) weights: plain server against a switching one.

Compares token by token.  Where floating point ties make two servers part, the first parting must be
at a token that the plain server itself rated within ``--tie`` of its choice (log-probability, among
its eight best); anything else is an error.  Against a server that is broken on purpose it must find
errors.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from typing import Any

import aiohttp
from rounds import Server, connector, keep

R = random.Random(11)


def prompts(count: int) -> list[list[int]]:
    """Token ids of mixed lengths, the same in every run."""
    return [[R.randrange(5, 500) for _ in range(R.choice((1, 3, 9, 30, 90)))] for _ in range(count)]


async def ask(
    server: Server, ids: list[int], tokens: int, *, rated: bool
) -> tuple[list[int], list[Any]]:
    """An answer, and where it is rated the eight best tokens of each place.

    A batch with log-probabilities goes through SGLang's verify while off, one without is a plain
    decode step: both are compared.
    """
    body: dict[str, Any] = {
        "input_ids": ids,
        "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True},
    }
    if rated:
        body |= {"return_logprob": True, "top_logprobs_num": 8}
    async with server.session.post(server.url + "/generate", json=body) as reply:
        answer = await reply.json()
        if reply.status != 200:
            raise RuntimeError(f"{reply.status} {answer}")
    meta = answer["meta_info"]
    return list(answer["output_ids"]), list(meta.get("output_top_logprobs") or [])


def parting(want: list[int], tops: list[Any], got: list[int], tie: float) -> tuple[str, float]:
    """Same, tie or error, and how far the plain server rated the other token below its own."""
    for place, (a, b) in enumerate(zip(want, got, strict=True)):
        if a != b:
            rated = {token: value for value, token, *_ in tops[place]}
            gap = rated[a] - rated[b] if b in rated else float("inf")
            return ("tie" if gap <= tie else "error"), gap
    return "same", 0.0


async def switcher(server: Server, tiers: list[str], stop: asyncio.Event) -> int:
    """Random tiers and flavours until told to stop; returns how many were taken."""
    rng, taken = random.Random(3), 0
    while not stop.is_set():
        name = rng.choice(tiers)
        body: dict[str, Any] = {"mode": "on", "tier": name}
        if name == "off":
            body = {"mode": "off", "off_flavour": rng.choice(("keep", "warm", "cold"))}
        status, _ = await server.put(**body)
        taken += status == 200
        await asyncio.sleep(0.03)
    return taken


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plain", required=True)
    parser.add_argument("--patched", required=True)
    parser.add_argument("--tiers", required=True)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--tie", type=float, required=True)
    parser.add_argument("--label", required=True)
    parser.add_argument("--out", required=True)
    chosen = parser.parse_args()
    limits = aiohttp.ClientTimeout(total=200)
    async with aiohttp.ClientSession(connector=connector(), timeout=limits) as session:
        plain, patched = Server(session, "p", chosen.plain), Server(session, "s", chosen.patched)
        asked = prompts(chosen.requests)
        turn = asyncio.Semaphore(48)

        async def run(server: Server, *, rated: bool) -> list[tuple[list[int], list[Any]]]:
            async def one(ids: list[int]) -> tuple[list[int], list[Any]]:
                async with turn:
                    return await ask(server, ids, chosen.tokens, rated=rated)

            return list(await asyncio.gather(*(one(ids) for ids in asked)))

        want = await run(plain, rated=True)
        again = await run(plain, rated=False)
        stop = asyncio.Event()
        moving = asyncio.create_task(switcher(patched, chosen.tiers.split(","), stop))
        got = await run(patched, rated=False)
        got_rated = await run(patched, rated=True)
        stop.set()
        switches = await moving

        def verdicts(other: list[tuple[list[int], list[Any]]]) -> dict[str, Any]:
            found = [
                parting(w[0], w[1], o[0], chosen.tie) for w, o in zip(want, other, strict=True)
            ]
            kinds = {kind: sum(f[0] == kind for f in found) for kind in ("same", "tie", "error")}
            return kinds | {
                "largest_gap": max((f[1] for f in found if f[1] < 1e9), default=0.0),
                "not_among_eight": sum(f[1] > 1e9 for f in found),
            }

        distinct = len({tuple(tokens) for tokens, _ in want})
        result = {
            "label": chosen.label, "requests": chosen.requests, "tokens": chosen.tokens,
            "tie": chosen.tie, "distinct_outputs": distinct,
            "distinct_tokens_per_output": sum(len(set(t)) for t, _ in want) / len(want),
            "plain_again": verdicts(again), "switching": verdicts(got),
            "switching_with_logprobs": verdicts(got_rated),
            "commands_taken": switches,
            "state": await patched.get("/speculation"),
        }  # fmt: skip
        print(json.dumps({k: v for k, v in result.items() if k != "state"}), flush=True)
        keep(chosen.out, result)


if __name__ == "__main__":
    asyncio.run(main())
