"""A server with trees, chains and off, random commands under load, and the comparison."""

from __future__ import annotations

import contextlib
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.engine import (
    kept_kv,
    overlap_loop,
    sampled_verify,
    tier_checks,
    tier_workload,
    token_spread,
)
from tests.engine.cpu_engine import PROMPTS, CpuEngine, EngineError
from tests.engine.plugin_client import PluginClient
from tests.engine.tier_workload import Job, Outcome
from tests.engine.token_spread import Spread

ALL = "off,s1k1d2,s3k1d4,s2k4d8"
MORE = "off,s1k1d2,s3k1d4,s3k2d4,s2k4d8,s3k4d16,s1k4d4"
"""Three shapes with equal steps, two with equal steps and draft tokens."""
WIDE = "off,s1k1d2,s2k4d8,s5k4d8"
"""Launched on a tier that needs fewer slots than the last."""
TREE = ("--speculative-num-steps", "2", "--speculative-eagle-topk", "4",
        "--speculative-num-draft-tokens", "8")  # fmt: skip
FLAVOURS = ("keep", "warm", "cold")
RETRACTIONS = {"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "9"}
"""SGLang's own switch for tests: retract requests every few decode steps."""


@dataclass(frozen=True)
class Reference:
    """Jobs and what the plain server answered."""

    jobs: list[Job]
    answers: list[Outcome]
    drawn: list[list[int]]


def reference(
    work: Path, seed: int, count: int, *, samples: int = 0, paths: Sequence[Path] = ()
) -> Reference:
    """Ask a plain server.

    Args:
        samples: answers to draw at a temperature, for a comparison of distributions.
        paths: folders in front of the module search path, for another SGLang.
    """
    asked = tier_workload.jobs(seed, count)
    with CpuEngine(work, f"plain-{seed}", algorithm=None, plugin=False, paths=paths) as engine:
        asked = tier_workload.without_ties(engine.url, asked)
        first = tier_workload.run(engine.url, asked, concurrency=8, aborts=False)
        asked = tier_workload.with_stops(asked, first)
        answers = tier_workload.run(engine.url, asked, concurrency=8, aborts=False)
        drawn = sampled(engine.url, samples)
    return Reference(asked, answers, drawn)


SHORT = "a"
"""One token: what a round does not see weighs most where there is little else to see."""


def sampled(url: str, samples: int) -> list[list[int]]:
    """Short answers drawn at a temperature at which the tiny model still has a choice."""
    with httpx.Client(base_url=url, timeout=180) as client:
        return token_spread.draw(
            client, SHORT, samples=samples, new_tokens=4, at_once=64, temperature=0.6
        )


def spreads(one: Sequence[Sequence[int]], other: Sequence[Sequence[int]]) -> list[Spread]:
    """One test per place that a verify step filled; one false alarm in 10,000 each."""
    return [
        token_spread.compare(token_spread.places(one, at), token_spread.places(other, at), z=3.72)
        for at in (1, 2, 3)
    ]


@dataclass(frozen=True)
class TierServer:
    """A server under test, and where the watched slots are written."""

    engine: CpuEngine
    client: PluginClient
    slots: Path

    def overrides(self) -> int:
        """Length of SGLang's record of changed settings; it is written every few rounds."""
        file = self.slots.with_suffix(".overrides")
        self.client.wait(file.exists, "some rounds")
        return tier_checks.overrides(file)

    def kept(self) -> kept_kv.Counts:
        """What was compared of the drafter's KV, where it is."""
        return kept_kv.counts(self.slots.with_suffix(".kept"))


@contextmanager
def tier_server(
    work: Path,
    name: str,
    *,
    tiers: str = ALL,
    algorithm: str = "EAGLE3",
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    overlap: bool = False,
    kept: bool = False,
    fault: tier_checks.Fault | None = None,
    paths: Sequence[Path] = (),
) -> Iterator[TierServer]:
    """Start a server with trees that watches its slots; stop it at the end.

    Args:
        kept: whether it compares the drafter's KV of off rounds, too.
    """
    plugins = ["specdeck", tier_checks.NAME, sampled_verify.NAME]
    folders = [
        *paths,
        tier_checks.install(work / f"{name}-checks"),
        sampled_verify.install(work / f"{name}-sampled"),
    ]
    if overlap:
        plugins.append(overlap_loop.NAME)
        folders.append(overlap_loop.install(work / f"{name}-overlap"))
    if kept:
        plugins.append(kept_kv.NAME)
        folders.append(kept_kv.install(work / f"{name}-kept"))
    slots = work / f"{name}-slots.json"
    variables = {
        "SGLANG_PLUGINS": ",".join(plugins),
        tier_checks.SLOTS_VARIABLE: str(slots),
        tier_checks.OVERRIDES_VARIABLE: str(slots.with_suffix(".overrides")),
        kept_kv.COUNTS_VARIABLE: str(slots.with_suffix(".kept")),
    } | dict(env or {})
    if fault is not None:
        variables[tier_checks.FAULT_VARIABLE] = fault
    server = CpuEngine(
        work,
        name,
        algorithm=algorithm,
        tiers=tiers,
        args=[*TREE, *args],
        env=variables,
        paths=folders,
    )
    with server, PluginClient(server) as client:
        yield TierServer(server, client, slots)


def commanded(
    client: PluginClient, seed: int, *, flavours: Sequence[str] = FLAVOURS, rest_s: float = 0.03
) -> tuple[threading.Thread, threading.Event]:
    """A thread that sends random commands until its event is set.

    Args:
        flavours: of off that are asked for.
        rest_s: longest time between two commands.
    """
    rng, stop = random.Random(seed), threading.Event()
    tiers = [tier.name for tier in client.state().tiers if tier.name != "off"]

    def send() -> None:
        # A server that dies is noticed by the requests.
        with contextlib.suppress(httpx.HTTPError, AssertionError):
            while not stop.is_set():
                put()

    def put() -> None:
        draw = rng.random()
        if draw < 0.4:
            client.put("off", off_flavour=rng.choice(flavours))
        elif draw < 0.9:
            client.put("on", tier=rng.choice(tiers))
        else:
            order = rng.sample(tiers, 2)
            client.put(
                "auto",
                thresholds={
                    "tiers": [*order, "off"],
                    "boundaries": [{"up_at": 4, "down_at": 2}, {"up_at": 9, "down_at": 6}],
                    "min_dwell_steps": rng.choice([1, 3, 8]),
                },
            )
        time.sleep(rng.random() * rest_s)

    return threading.Thread(target=send), stop


@dataclass(frozen=True)
class Report:
    """What a run showed.

    Args:
        kinds: kinds of switches seen, as ("s2k4d8", "off").
    """

    wrong: list[str]
    aborted: int
    switches: int
    kinds: int
    retractions: int
    used: int
    highest_used: int


def compare(
    server: TierServer,
    known: Reference,
    *,
    seed: int,
    concurrency: int,
    flavours: Sequence[str] = FLAVOURS,
    rest_s: float = 0.03,
) -> Report:
    """Run the reference's jobs under random commands."""
    client, start = server.client, server.client.replica().switches
    sender, stop = commanded(client, seed, flavours=flavours, rest_s=rest_s)
    kinds: set[tuple[str, str]] = set()
    highest = 0

    def watch() -> None:
        with contextlib.suppress(httpx.HTTPError, AssertionError):
            look()

    def look() -> None:
        nonlocal highest
        seen = start
        while not stop.is_set():
            state = client.state(since=seen)
            kinds.update((entry.from_tier, entry.to_tier) for entry in state.journal)
            seen = state.journal[-1].seq if state.journal else seen
            kv = state.replicas[0].kv
            highest = max(highest, kv.committed + kv.reserve)
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    for thread in (sender, watcher):
        thread.start()
    try:
        got = tier_workload.run(server.engine.url, known.jobs, concurrency=concurrency, aborts=True)
    finally:
        stop.set()
        for thread in (sender, watcher):
            thread.join()
    client.wait(lambda: client.replica().running == client.replica().queued == 0, "idle")
    client.wait(lambda: client.http.post("/flush_cache").status_code == 200, "an empty cache")
    load = client.http.get("/v1/loads").json()["loads"][0]
    replica = client.replica()
    return Report(
        wrong=tier_workload.differences(known.jobs, known.answers, got),
        aborted=sum(outcome.aborted for outcome in got),
        switches=replica.switches - start,
        kinds=len(kinds),
        retractions=replica.retractions,
        used=load["num_used_tokens"],
        highest_used=highest,
    )


@contextmanager
def commands(server: TierServer, seed: int) -> Iterator[None]:
    """Random commands for the length of a block."""
    sender, stop = commanded(server.client, seed)
    sender.start()
    try:
        yield
    finally:
        stop.set()
        sender.join()


def notices(
    work: Path,
    name: str,
    known: Reference,
    fault: tier_checks.Fault,
    *,
    env: Mapping[str, str] | None = None,
    look: Callable[[TierServer], object] = str,
) -> str:
    """What is wrong with a server that has a fault; "" if nothing is noticed.

    Args:
        look: called with the server before the fault is provoked.
    """
    # An early return at equal step counts shows where tiers have them; candidates show where a tree
    # needs no more slots than a chain, for which it would have to wait anyway.
    tiers = MORE if fault in ("early-return", "candidates") else WIDE
    try:
        with tier_server(work, name, tiers=tiers, fault=fault, env=env) as server:
            look(server)
            if fault == "candidates":
                chain_to_tree(server)
            provoked = _all_off(server, known) if fault == "length" else _all_moves(server, known)
            if provoked:
                return provoked
            for seed in range(3):
                report = compare(server, known, seed=seed, concurrency=12)
                if report.wrong:
                    return report.wrong[0]
    except (AssertionError, httpx.HTTPError, EngineError) as error:
        log = (work / f"{name}.log").read_text(errors="replace")
        # The last line of a traceback; SGLang's own diagnostics of a crash come after it.
        crash = [line for line in log.splitlines() if re.match(r"[\w.]*(Error|Exception)\b", line)]
        return crash[-1] if crash else repr(error)
    return ""


def chain_to_tree(server: TierServer) -> None:
    """Under load from a chain to a tree that needs no more slots, some rounds of each."""
    client = server.client
    with client.load(PROMPTS, clients=len(PROMPTS), new_tokens=140):
        for tier in ("s3k1d4", "s1k4d4"):
            client.command("on", tier=tier)
            client.wait_runs(tier)
            steps = client.replica().decode_steps
            client.wait(lambda n=steps: client.replica().decode_steps > n + 25, "25 steps", 30)  # type: ignore[misc]


def _all_off(server: TierServer, known: Reference) -> str:
    """The first wrong answer of a server that runs off and nothing else."""
    server.client.command("off")
    server.client.wait_runs("off", 30)
    got = tier_workload.run(server.engine.url, known.jobs, concurrency=12, aborts=False)
    wrong = tier_workload.differences(known.jobs, known.answers, got)
    return wrong[0] if wrong else ""


def _all_moves(server: TierServer, known: Reference) -> str:
    """The first wrong answer while every tier is entered from off and left again, under load."""
    client = server.client
    asked = [job for job in known.jobs if job.kind == "text" and job.new_tokens > 30]
    right = {job.prompt: known.answers[known.jobs.index(job)].tokens[:30] for job in asked}
    with client.load([job.prompt for job in asked], clients=8, new_tokens=30) as answers:
        for tier in [tier.name for tier in client.state().tiers if tier.name != "off"] * 2:
            client.command("off", off_flavour="warm")
            client.wait_runs("off", 30)
            client.command("on", tier=tier)
            client.wait_runs(tier, 30)
    wrong = [prompt for prompt, found in answers.items() if tuple(found) != right[prompt]]
    return f"{wrong[0]}: other tokens" if wrong else ""
