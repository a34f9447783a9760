"""10,000 switches under load on the real engine on a CPU: no failure, no growth, two steps each.

``tests/engine/test_plugin_tiers.py`` makes 300 of them.  Run on purpose, about 10 minutes:

    python -m pytest -m benchmark tests/benchmarks/test_switch_endurance.py -s

``SPECDECK_SWITCHES`` asks for another number.  Results: ``results/switch_endurance.json``.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.engine import tier_rig
from tests.engine.cpu_engine import make_models
from tests.engine.plugin_client import NO_JOURNAL
from tests.engine.tier_rig import tier_server

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

RESULT = Path(__file__).parent / "results/switch_endurance.json"
SWITCHES = int(os.environ.get("SPECDECK_SWITCHES", "10000"))
EVERY = max(1, SWITCHES // 10)
CLIENTS = 4
GROWTH_MB = 0.1
"""Most that a process may grow by in a minute: 40 bytes for each of 2,500 switches."""


def _processes(pid: int) -> dict[str, psutil.Process]:
    named = {"http": psutil.Process(pid)}
    for child in named["http"].children(recursive=True):
        words = " ".join(child.cmdline())
        for name in ("scheduler", "detokenizer"):
            if f"sglang::{name}" in words:
                named[name] = child
    return named


def _slope(rows: list[dict[str, Any]], process: str) -> float:
    """Growth of a process in MB per minute, by a least-squares line."""
    line = statistics.linear_regression(
        [row["seconds"] for row in rows], [row["rss_mb"][process] for row in rows]
    )
    return round(60 * line.slope, 3)


def test_switches_leave_nothing_behind(tmp_path: Path) -> None:
    make_models(tmp_path)
    known = tier_rig.reference(tmp_path, seed=3, count=20)
    texts = [job for job in known.jobs if job.kind == "text" and job.new_tokens > 30]
    right = {job.prompt: list(known.answers[known.jobs.index(job)].tokens[:30]) for job in texts}
    rows: list[dict[str, Any]] = []
    still: list[dict[str, Any]] = []
    steps: Counter[int] = Counter()
    refused: Counter[int] = Counter()
    taken: list[float] = []
    with tier_server(tmp_path, "endurance", tiers=tier_rig.MORE, overlap=True) as server:
        client = server.client
        version = client.state().versions.engine_version
        assert server.engine.process is not None
        processes = _processes(server.engine.process.pid)
        tiers = [tier.name for tier in client.state().tiers]
        # Before it listens, SGLang's own warm-up complains that nobody does.
        begun, started = time.monotonic(), len(server.engine.log)

        def note(done: int, rows: list[dict[str, Any]]) -> None:
            rss = {n: round(p.memory_info().rss / 2**20, 2) for n, p in processes.items()}
            rows.append({"switches": done, "rss_mb": rss, "overrides": server.overrides(),
                         "seconds": round(time.monotonic() - begun, 1)})  # fmt: skip
            print(json.dumps(rows[-1]), flush=True)

        with client.load(list(right), clients=CLIENTS, new_tokens=30) as answers:
            first, order = client.replica().switches, client.state(NO_JOURNAL).generation
            done = 0
            for turn in range(10**9):
                if done >= max(50, len(rows) * EVERY):
                    note(done, rows)
                if done >= SWITCHES:
                    break
                tier = tiers[turn % len(tiers)]
                body = {"mode": "on", "tier": tier}
                if tier == "off":
                    flavour = tier_rig.FLAVOURS[turn // len(tiers) % 3]
                    body = {"mode": "off", "off_flavour": flavour}
                order += 1
                begin = time.perf_counter()
                answer = client.put(**body, epoch=0, generation=order)
                if answer.status_code != 200:
                    refused[answer.status_code] += 1
                    continue
                replica = client.replica()
                while replica.ranks[0].tier != tier:
                    assert time.perf_counter() - begin < 60
                    replica = client.replica()
                taken.append((time.perf_counter() - begin) * 1000)
                done = replica.switches - first
                if (step := replica.ranks[0].confirm_steps) is not None:
                    steps[step] += 1
            # The same load without switches, for as long as the second half took.
            half = [row for row in rows if row["switches"] >= SWITCHES / 2]
            part_s = (half[-1]["seconds"] - half[0]["seconds"]) / (len(half) - 1)
            note(done, still)
            for _ in half[1:]:
                time.sleep(part_s)
                note(done, still)
        client.wait(lambda: client.replica().running == client.replica().queued == 0, "idle")
        client.wait(lambda: client.http.post("/flush_cache").status_code == 200, "an empty cache")
        used = client.http.get("/v1/loads").json()["loads"][0]["num_used_tokens"]
        since_start = server.engine.log[started:]
        _, *faulty = since_start.split("Traceback (most recent call last):")
    ordered = sorted(taken)
    growth = {name: _slope(half, name) for name in processes}
    growth_still = {name: _slope(still, name) for name in processes}
    result = {
        "at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "setup": {
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, shared with other work",
            "sglang": version,
            "load": f"{CLIENTS} closed-loop clients of 30 tokens, overlap loop",
            "tiers": tiers,
        },
        "switches": rows[-1]["switches"],
        "refused": dict(refused),
        "steps_to_confirm": dict(sorted(steps.items())),
        "put_to_seen_ms": {
            "median": round(statistics.median(ordered), 1),
            "p99": round(ordered[int(0.99 * (len(ordered) - 1))], 1),
        },
        "growth_mb_per_minute": growth,
        "growth_mb_per_minute_without_switches": growth_still,
        "switches_per_minute": round(
            60
            * (half[-1]["switches"] - half[0]["switches"])
            / (half[-1]["seconds"] - half[0]["seconds"])
        ),
        "slots_lost": used,
        "wrong_answers": sum(found != right[prompt] for prompt, found in answers.items()),
        "rows": rows,
        "rows_without_switches": still,
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    assert result["wrong_answers"] == 0
    assert used == 0
    assert not faulty, f"{len(faulty)} tracebacks, the first:{faulty[0][:4000]}"
    assert max(steps) <= 2
    assert rows[-1]["overrides"] <= rows[0]["overrides"] + 2
    assert all(growth[name] < GROWTH_MB for name in growth), result
