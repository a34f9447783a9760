"""Measure a running SGLang server on a GPU: decode rounds, closed loops, switching, answers.

Runs on the GPU machine beside the server, with aiohttp as its only need.  A round is one decode
step of the whole batch.  Its time comes from windows of pure decode: every client's request runs,
no prompt is prefilled, none ends; rounds are counted by the engine (``decode_steps`` of
``GET /speculation``, or ``decode_moments`` of ``/v1/loads`` on a server without the plugin).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import os
import random
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import aiohttp
from bounds import BESIDE_PREFILL

PROMPT = 128
STOCK = "stock"
"""Names the rows of a server of one fixed tier without the plugin."""
AGAIN = "off-again"
"""Names the rows of off in a second server with the plugin."""


def connector() -> aiohttp.TCPConnector:
    """As many connections as clients, none kept as long as SGLang keeps them: 5 s.

    A request sent over one that the server closes just then is lost, and with it a whole read.
    """
    return aiohttp.TCPConnector(limit=0, keepalive_timeout=3)


class Count(NamedTuple):
    """What a server tells of itself at one moment, seconds by its own clock.

    Args:
        steps, tokens: decode rounds so far, and what they yielded.
        held: KV slots of the running requests.
    """

    at: float
    steps: int
    tokens: int
    running: int
    held: int


class Server:
    """One server: its address, and how its tier is set."""

    def __init__(self, session: aiohttp.ClientSession, name: str, url: str) -> None:
        self.session, self.name, self.url = session, name, url
        self.generation = self.epoch = 0
        self.random = random.Random(7)
        self.ids = (1000, 30_000)
        """Token ids of prompts; one beyond the vocabulary ends a server on a GPU."""
        self.flavour: str | None = None
        self.answered_s = 0.0
        self.answered_late = 0

    async def get(self, path: str) -> Any:
        async with self.session.get(self.url + path) as reply:
            return await reply.json(content_type=None)

    async def put(self, **body: Any) -> tuple[int, Any]:
        takeover = None
        if not self.generation:
            # Others, and earlier runs, have commanded this server; a claim may still stand.
            state, takeover = await self.get("/speculation"), True
            self.epoch = state["epoch"]
            self.generation = max(int(time.time()), state["generation"])
        self.generation += 1
        body |= {"holder": "bench", "epoch": self.epoch, "generation": self.generation}
        body |= {"takeover": takeover}
        given = {name: value for name, value in body.items() if value is not None}
        async with self.session.put(self.url + "/speculation", json=given) as reply:
            answer = await reply.json(content_type=None)
            self.epoch = answer.get("epoch", self.epoch)  # taking over makes a new one
            return reply.status, answer

    async def tier(self, name: str) -> float:
        """Ask for a tier; returns seconds until every rank reports it."""
        start = time.perf_counter()
        # "off-cold" is off in that flavour; a flavour stays until another is asked for.
        name, _, flavour = name.partition("-")
        if self.flavour is None:
            self.flavour = (await self.get("/speculation"))["off_flavour"]
        status, answer = await self.put(
            mode="off" if name == "off" else "on",
            tier=None if name == "off" else name,
            off_flavour=(flavour or self.flavour) if name == "off" else None,
        )
        self.answered_s = time.perf_counter() - start
        # A command that the ranks answer too late is in their queue and may still be obeyed.
        late = status == 503 and answer.get("code") == "timeout"
        self.answered_late += late
        if status != 200 and not late:
            raise RuntimeError(f"{self.name}: {name}: {status} {answer}")
        while time.perf_counter() - start < 20:
            state = await self.get("/speculation")
            ranks = [rank for replica in state["replicas"] for rank in replica["ranks"]]
            if all(rank["tier"] == name for rank in ranks if rank["observed"]):
                return time.perf_counter() - start
            await asyncio.sleep(0.002)
        raise RuntimeError(f"{self.name}: {name} was not confirmed within 20 s")

    async def generate(self, new_tokens: int, prompt: int = PROMPT) -> dict[str, Any]:
        body = {
            "input_ids": [self.random.randrange(*self.ids) for _ in range(prompt)],
            "sampling_params": {
                "temperature": 0, "max_new_tokens": new_tokens, "ignore_eos": True,
            },
        }  # fmt: skip
        async with self.session.post(self.url + "/generate", json=body) as reply:
            answer = await reply.json()
            if reply.status != 200:
                raise RuntimeError(f"{reply.status} {answer}")
            meta: dict[str, Any] = answer["meta_info"]
            return meta

    async def flush(self) -> None:
        """Empty the prefix cache, so that KV slots are handed out in order again.

        After hours of requests they lie scattered, and attention may read them more slowly.
        """
        for _ in range(50):
            async with self.session.post(self.url + "/flush_cache") as reply:
                if reply.status in (200, 404):  # 404: the embedded engine has nothing to flush
                    return
            await asyncio.sleep(0.1)  # refused while a request is still being ended
        raise RuntimeError(f"{self.name}: flush_cache: {reply.status}")

    async def count(self, patched: bool) -> Count:
        """The newest numbers that it tells."""
        if patched:
            state = (await self.get("/speculation"))["replicas"]
            when = time.perf_counter() - max(r["age_ms"] for r in state) / 1000
            steps, tokens = (sum(r[n] for r in state) for n in ("decode_steps", "decode_tokens"))
            held = sum(r["kv"]["committed"] for r in state)
            return Count(when, steps, tokens, sum(r["running"] for r in state), held)
        load = (await self.get("/v1/loads?include=all"))["loads"][0]
        moments = load.get("decode_moments") or [0]
        running = load["num_running_reqs"]
        # Without speculation a round is a token for each.
        steps = int(moments[0])
        held = load.get("num_used_tokens", 0)
        return Count(load["timestamp"], steps, steps * running, running, held)


async def rounds(
    server: Server,
    clients: int,
    patched: bool,
    seconds: float,
    expected: tuple[float, float],
    lead: float = 0.0,
) -> dict[str, Any]:
    """Round time at a constant batch, from the longest window in which all clients run.

    Args:
        expected: round time, ms, and tokens per round of one request; sizes the answers.
        lead: seconds at its beginning that are left out.

    Rows are compared with each other, so their windows begin and end alike: a later one runs on
    longer contexts.
    """
    round_ms, tokens_per_round = expected
    # A plain server tells its count each fifteenth round: at 256 those are 160 ms.
    seconds = max(seconds, clients * 0.0047)
    # The first are decoding while the last are still prefilled.
    span = seconds + lead + 0.6 + clients * 0.004
    tokens = int(min(1400, max(48, span * 1000 / round_ms * tokens_per_round)))
    jobs = [asyncio.create_task(server.generate(tokens)) for _ in range(clients)]
    points: list[Count] = []
    while not any(job.done() for job in jobs):
        told = await server.count(patched)
        if told.running == clients and (not points or told.steps > points[-1].steps):
            points.append(told)
        await asyncio.sleep(0.02)
    # Wall clock, to be held against that of cards.csv.
    ended = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    metas = await asyncio.gather(*jobs)
    seen = points[:-1]  # the last may stand beside an end
    begin = points[0].at + lead if points else 0.0
    points = [point for point in points if begin <= point.at <= begin + seconds + 0.6]
    points = points[BESIDE_PREFILL:-1]  # the last ones may stand beside an end
    if len(points) < 4:
        return {"clients": clients, "round_ms": None, "points": len(points)}
    pieces = [(b.at - a.at) * 1000 / (b.steps - a.steps) for a, b in itertools.pairwise(points)]
    first, last = points[0], points[-1]
    whole = (last.at - first.at) * 1000 / (last.steps - first.steps)
    accept = [m["spec_accept_length"] for m in metas if m.get("spec_accept_length")]
    return {
        "clients": clients,
        "ended": ended,
        "round_ms": round(whole, 4),
        "round_ms_median": round(statistics.median(pieces), 4),
        "rounds": last.steps - first.steps,
        "tok_s": round((last.tokens - first.tokens) / (last.at - first.at), 1),
        "accept_length": round(statistics.mean(accept), 4) if accept else None,
        # (seconds, rounds, KV slots a request holds on average), for comparison at equal contexts
        "contexts": [
            [round(one.at - seen[0].at, 5), one.steps - seen[0].steps, round(one.held / clients, 2)]
            for one in seen
        ],
    }


def keep(out: str, result: dict[str, Any]) -> None:
    """Write a result in place of the one before, so that whoever is cut off leaves a whole one."""
    with open(out + ".new", "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump(result, file, indent=1)
    os.replace(out + ".new", out)  # noqa: PTH105


async def closed_loop(
    server: Server, clients: int, requests: int, new_tokens: int = 256
) -> dict[str, Any]:
    """Output tokens per second of a fixed amount of work, ramp and prefill included."""
    left = iter(range(requests))

    async def client() -> int:
        done = 0
        for _ in left:
            done += (await server.generate(new_tokens))["completion_tokens"]
        return done

    start = time.perf_counter()
    tokens = sum(await asyncio.gather(*(client() for _ in range(clients))))
    seconds = time.perf_counter() - start
    return {"clients": clients, "tokens": tokens, "seconds": round(seconds, 3),
            "tok_s": round(tokens / seconds, 1)}  # fmt: skip


async def latencies(server: Server, tiers: list[str], clients: int) -> dict[str, Any]:
    """PUT to confirmed under decode load, and GET beside /v1/loads during an 8k prefill."""
    # A fresh server compiles on first use: serving first, then whatever a switch needs.
    await asyncio.gather(*(server.generate(40) for _ in range(clients)))
    jobs = [asyncio.create_task(server.generate(1200)) for _ in range(clients)]
    await asyncio.sleep(2.0)
    confirmed: list[float] = []
    answered: list[float] = []
    steps: list[int | None] = []
    for turn in range(60):
        confirmed.append(await server.tier(tiers[turn % len(tiers)]) * 1000)
        answered.append(server.answered_s * 1000)
        rank = (await server.get("/speculation"))["replicas"][0]["ranks"][0]
        steps.append(rank["confirm_steps"])
        await asyncio.sleep(0.02)
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)
    await asyncio.sleep(1.0)
    got: dict[str, list[float]] = {"/speculation": [], "/v1/loads": []}
    prefill = [asyncio.create_task(server.generate(2, prompt=8000)) for _ in range(8)]
    while not all(job.done() for job in prefill):
        for path, times in got.items():
            start = time.perf_counter()
            await server.get(path)
            times.append((time.perf_counter() - start) * 1000)
    await asyncio.gather(*prefill)
    return {
        "put_to_confirmed_ms": spread(confirmed),
        # The first move to each tier may compile a kernel.
        "put_to_confirmed_after_the_first_ms": spread(confirmed[len(tiers) :]),
        "put_answered_ms": spread(answered),
        "all": [
            {"ms": round(ms, 1), "answered_ms": round(put, 1), "confirm_steps": taken}
            for ms, put, taken in zip(confirmed, answered, steps, strict=True)
        ],
        "get_speculation_ms": spread(got["/speculation"]),
        "get_v1_loads_ms": spread(got["/v1/loads"]),
    }


def spread(values: list[float]) -> dict[str, float]:
    """Count, median, 99th percentile and maximum."""
    ordered = sorted(values)
    return {
        "n": len(ordered),
        "median": round(statistics.median(ordered), 2),
        "p99": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 2),
        "max": round(ordered[-1], 2),
    }


def table_of(rows: list[dict[str, Any]]) -> dict[str, dict[int, float]]:
    """Tokens per second of each tier at each concurrency, the mean of its readings."""
    readings: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        if row["round_ms"]:
            rate = row["clients"] * (row["accept_length"] or 1.0) / row["round_ms"] * 1000
            readings.setdefault(row["tier"], {}).setdefault(row["clients"], []).append(rate)
    return {
        tier: {clients: statistics.mean(rates) for clients, rates in seen.items()}
        for tier, seen in readings.items()
    }


def expectation(rows: list[dict[str, Any]], tier: str, clients: int) -> tuple[float, float]:
    """Round time, ms, and tokens per round: the last reading, or a guess."""
    for row in reversed(rows):
        if (row["tier"], row["clients"]) == (tier, clients) and row["round_ms"]:
            return row["round_ms"], row["accept_length"] or 1.0
    if tier.startswith(("plain", "off")):
        return 5 + clients / 44, 1.0
    return 6 + clients / 16, 2.0


def crossing(quiet: dict[int, float], busy: dict[int, float], low: int, high: int) -> float:
    """Concurrency at which the busier tier overtakes, between two measured ones.

    On logarithmic scales; half-way where one of the tiers was not read at both ends, or does not
    overtake between them.
    """
    ends = [(quiet.get(c, 0.0), busy.get(c, 0.0)) for c in (low, high)]
    share = 0.5
    if all(rate > 0 for pair in ends for rate in pair):
        lead_low, lead_high = (math.log(mine) - math.log(theirs) for mine, theirs in ends)
        if lead_low >= 0 >= lead_high and lead_low > lead_high:
            share = lead_low / (lead_low - lead_high)
    return float(low * (high / low) ** share)


def thresholds(table: dict[str, dict[int, float]]) -> dict[str, Any]:
    """Tiers from quiet to busy by measured tokens per second, with a gap at each boundary."""
    grid = sorted({clients for rates in table.values() for clients in rates})
    best = [max(table, key=lambda tier: table[tier].get(c, 0)) for c in grid]
    order, starts = [best[0]], [grid[0]]
    for clients, tier in zip(grid[1:], best[1:], strict=True):
        if tier != order[-1] and tier not in order:
            order.append(tier)
            starts.append(clients)
    boundaries: list[dict[str, int]] = []
    for (quiet, busy), high in zip(itertools.pairwise(order), starts[1:], strict=True):
        middle = crossing(table[quiet], table[busy], grid[grid.index(high) - 1], high)
        # Between neighbours of a fine grid rounding alone would leave no gap.
        up_at, down_at = max(2, round(middle * 1.1)), round(middle * 0.9)
        if boundaries:  # a tier that comes back may cross earlier than the one before it
            up_at = max(up_at, boundaries[-1]["up_at"] + 1)
            down_at = max(down_at, boundaries[-1]["down_at"] + 1)
        boundaries.append({"up_at": up_at, "down_at": min(down_at, up_at - 1)})
    return {"tiers": order, "boundaries": boundaries, "min_dwell_steps": 16}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plain", help="URL of a server without speculation")
    parser.add_argument("--patched", required=True, help="URL of a server with the plugin")
    parser.add_argument("--upstream", help="URL of a server with SGLang's own adaptive policy")
    parser.add_argument("--stock", help="URL of a server of one fixed tier, without the plugin")
    parser.add_argument("--stock-tier", default="s3k1d4", help="the tier of that server")
    parser.add_argument("--again", help="URL of a second server with the plugin: off there too")
    parser.add_argument("--again-what", default="", help="in what that server differs")
    parser.add_argument("--tiers", default="off,s3k1d4,s2k4d16")
    parser.add_argument("--clients", default="1,4,16,32,64,128,256")
    parser.add_argument("--seconds", type=float, default=1.2)
    parser.add_argument("--limit", type=float, default=400, help="start nothing new after it")
    parser.add_argument("--label", required=True)
    parser.add_argument("--flavours", default="", help="off in each of these, in the rounds")
    parser.add_argument(
        "--auto",
        help="auto in the rounds, on thresholds of files of this script, or of specdeck bench",
    )
    parser.add_argument(
        "--flush", action="store_true", help="empty the server's prefix cache before each window"
    )
    parser.add_argument("--parts", default="rounds,auto,latency")
    parser.add_argument("--out", required=True)
    chosen = parser.parse_args()
    begin = time.perf_counter()
    grid, tiers = [int(c) for c in chosen.clients.split(",")], chosen.tiers.split(",")
    parts = chosen.parts.split(",")
    result: dict[str, Any] = {"label": chosen.label, "rounds": [], "loops": []}

    def late() -> bool:
        return time.perf_counter() - begin > chosen.limit

    def save() -> None:
        result["seconds"] = round(time.perf_counter() - begin, 1)
        keep(chosen.out, result)

    patience = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(connector=connector(), timeout=patience) as session:
        patched = Server(session, "patched", chosen.patched)
        state = result["state"] = await patched.get("/speculation")
        limits = {tier["name"]: tier["max_batch"] or 10**6 for tier in state["tiers"]}
        servers: dict[str, tuple[Server, bool]] = {}
        if chosen.plain:
            servers["plain"] = (Server(session, "plain", chosen.plain), False)
        if chosen.stock:
            servers[STOCK] = (Server(session, STOCK, chosen.stock), False)
            result["stock_tier"] = chosen.stock_tier
        flavours = [f"off-{flavour}" for flavour in chosen.flavours.split(",") if flavour]
        given: dict[str, Any] = {}
        known: list[dict[str, Any]] = []
        for name in (chosen.auto or "").split(","):
            if name:
                with open(name, encoding="utf-8") as file:  # noqa: ASYNC230, PTH123
                    read = json.load(file)
                if "boundaries" in read:
                    given = read
                known += read.get("rounds", [])
        if known and not given:
            given = thresholds(
                {tier: rates for tier, rates in table_of(known).items() if tier in tiers}
            )
        if given:
            result["auto_on"] = given
        for tier in [*tiers, *flavours, *(["auto"] if given else [])]:
            servers[tier] = (patched, True)
        if chosen.again:
            servers[AGAIN] = (Server(session, AGAIN, chosen.again), True)
            result["again"] = chosen.again_what

        async def ready(name: str) -> Server:
            server, has_plugin = servers[name]
            if name == "auto":
                status, answer = await patched.put(mode="auto", thresholds=given)
                if status != 200:
                    raise RuntimeError(f"auto: {status} {answer}")
            elif has_plugin:
                await server.tier("off" if name == AGAIN else name)
            return server

        if "rounds" in parts:
            for clients in reversed(grid):
                # A B C C B A: drift falls on all alike.
                order = [*servers, *reversed(servers)]
                for name in order:
                    if late():
                        break
                    if clients > limits.get(name, 10**6):
                        continue
                    server = await ready(name)
                    if chosen.flush:
                        await server.flush()
                    row = await rounds(
                        server,
                        clients,
                        servers[name][1],
                        chosen.seconds,
                        expectation(
                            known + result["rounds"],
                            chosen.stock_tier if name == STOCK else name,
                            clients,
                        ),
                        # Automation comes to rest while the batch fills.
                        lead=0.4 if given else 0.0,
                    )
                    if name == STOCK:
                        row["tok_s"] = None  # its rounds are counted, its tokens are not
                    result["rounds"].append({"tier": name, **row})
                    print(name, json.dumps(row), flush=True)
                    save()  # whoever ends this script early keeps what it has read
        table = result["table_tok_s"] = table_of(result["rounds"])
        own = {tier: rates for tier, rates in table.items() if tier in tiers}
        if own:
            result["thresholds"] = thresholds(own)
            save()
        if "auto" in parts and own:
            order = result["thresholds"]
            upstream = Server(session, "upstream", chosen.upstream) if chosen.upstream else None
            for clients in grid:
                requests = clients * (3 if clients <= 16 else 2)
                runs: list[tuple[str, Callable[[], Any]]] = [
                    (name, lambda name=name: ready(name))
                    for name in ["plain", *tiers]
                    if name in servers and clients <= limits.get(name, 10**6)
                ]

                async def auto(order: dict[str, Any] = order) -> Server:
                    status, answer = await patched.put(mode="auto", thresholds=order)
                    if status != 200:
                        raise RuntimeError(f"auto: {status} {answer}")
                    return patched

                runs.append(("auto", auto))
                if upstream is not None:

                    async def theirs(server: Server = upstream) -> Server:
                        return server

                    runs.append(("upstream", theirs))
                for name, prepare in runs:
                    if late():
                        break
                    server = await prepare()
                    row = await closed_loop(server, clients, requests)
                    result["loops"].append({"tier": name, **row})
                    print("loop", name, json.dumps(row), flush=True)
                    save()
        if "latency" in parts and not late():
            result["latency"] = await latencies(
                patched, [*[t for t in tiers if t != "off"][:1], "off"], 64
            )
            print(json.dumps(result["latency"]), flush=True)
        result["state_after"] = await patched.get("/speculation")
        save()


if __name__ == "__main__":
    asyncio.run(main())
