"""What applied thresholds reach: automation on them against every fixed tier, on a live engine.

    python -m tests.benchmarks.bench_applied --plane URL --engine-id ID --engine URL --bench FILE

Run by ``gpu/bench.sh`` after ``specdeck bench`` and ``bench apply``.  At each load the fixed tiers
are pinned forth and back by overrides, and automation runs in their middle: A B C auto auto C B A.
A window goes on until it has seen whole requests; the load never stops.  Only the engine differs
between a dry run and a GPU.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import httpx

from controlplane.bench_records import BenchFile
from controlplane.benchrun_flow import FlowProcess
from controlplane.benchrun_steady import saw_a_request
from controlplane.benchrun_window import Load
from controlplane.client import ControlPlaneClient
from controlplane.load_reports import FlowSettings
from controlplane.messages import OverrideRequest, ReleaseRequest
from engine_patch.contract_words import Mode
from engine_patch.tier import OFF

AUTHOR = "bench applied"
LONGEST = 4
"""Windows that one may last, until it has seen whole requests."""


class Bench:
    """One engine under one control plane, with its load."""

    def __init__(
        self, said: argparse.Namespace, client: ControlPlaneClient, flow: FlowProcess
    ) -> None:
        self.said, self.client, self.flow = said, client, flow
        self.engine = httpx.AsyncClient(base_url=said.engine, timeout=10, trust_env=False)

    async def tiers(self) -> set[str]:
        """The tiers that the ranks run now."""
        state = (await self.engine.get("/speculation")).json()
        return {rank["tier"] for replica in state["replicas"] for rank in replica["ranks"]}

    async def pin(self, tier: str) -> bool:
        """Pin a tier; False if the engine does not run it at this load."""
        mode = {"mode": Mode.OFF} if tier == OFF else {"mode": Mode.ON, "tier": tier}
        await self.client.set_override(
            self.said.engine_id,
            OverrideRequest(**mode, length_s=120, author=AUTHOR, reason="fixed tier"),
        )
        for _ in range(50):
            if await self.tiers() == {tier}:
                await asyncio.sleep(0.5)
                return True
            await asyncio.sleep(0.1)
        return False

    async def release(self) -> None:
        """Let automation decide, and give it the time its holds and dwell take."""
        await self.client.release_override(self.said.engine_id, ReleaseRequest(author=AUTHOR))
        await asyncio.sleep(self.said.settle)

    async def window(self) -> dict[str, Any]:
        """Tokens per second of a steady window, and the tiers seen in it."""
        first = self.flow.reports[-1]
        tiers: set[str] = set()
        passed = 0.0
        while True:
            await asyncio.sleep(0.2)
            tiers |= await self.tiers()
            seen = [one for one in self.flow.reports if one.at_ms >= first.at_ms]
            passed = (seen[-1].at_ms - first.at_ms) / 1000
            part = not saw_a_request(seen, self.flow.mean_output)
            if passed >= self.said.window and not (part and passed < LONGEST * self.said.window):
                break
        cpu = (seen[-1].cpu_s - first.cpu_s) / passed
        # Only a simulated engine tells how far it fell behind wall time.
        page = (await self.engine.get("/metrics")).text
        lag = re.search(r"^specdeck_simulation_lag(?:{.*})? (\S+)$", page, re.MULTILINE)
        return {
            "tok_s": round((seen[-1].tokens - first.tokens) / passed, 1),
            "seconds": round(passed, 2),
            "tiers": sorted(tiers),
            "client_cpu": round(cpu, 3),
            "simulation_lag": None if lag is None else round(float(lag[1]), 4),
            "failed": sum(bool(r.error) for one in seen[1:] for r in one.finished),
        }

    async def load(self, clients: int) -> dict[str, Any]:
        """Every fixed tier and automation at one load."""
        await self.flow.order(Load(clients))
        await self.flow.until(lambda report: report.settled >= clients, 60)
        rows: dict[str, list[dict[str, Any]]] = {}
        names = self.said.tiers.split(",")
        for name in (*names, "auto", *reversed(names)):
            if name == "auto":
                await self.release()
                rows[name] = [await self.window(), await self.window()]
            elif await self.pin(name):
                rows.setdefault(name, []).append(await self.window())
        mean = {name: fmean(row["tok_s"] for row in runs) for name, runs in rows.items()}
        best = max((name for name in mean if name != "auto"), key=lambda name: mean[name])
        return {
            "clients": clients,
            "tok_s": {name: round(value, 1) for name, value in mean.items()},
            "best_fixed": best,
            "auto_over_best": round(mean["auto"] / mean[best], 4),
            "auto_ran": sorted({tier for row in rows["auto"] for tier in row["tiers"]}),
            "runs": rows,
        }


async def measure(said: argparse.Namespace) -> dict[str, Any]:
    """All loads, from light to heavy."""
    flow = await FlowProcess.start(
        FlowSettings(
            url=said.engine,
            prompts=said.prompts,
            stream_interval=said.stream_interval,
            input_len=said.input_len,
            output_len=said.output_len,
            seed=2,
        )
    )
    try:
        async with ControlPlaneClient(said.plane) as client:
            bench = Bench(said, client, flow)
            status = await client.engine(said.engine_id)
            loads = []
            for clients in sorted(int(one) for one in said.clients.split(",")):
                loads.append(await bench.load(clients))
                sys.stderr.write(json.dumps(loads[-1] | {"runs": None}) + "\n")
            await flow.order(None)
            await client.release_override(said.engine_id, ReleaseRequest(author=AUTHOR))
    finally:
        await flow.close()
    measured = BenchFile.model_validate_json(said.bench.read_bytes())
    assert status.policy is not None
    return {
        "what": "thresholds of specdeck bench, applied, against every fixed tier",
        "label": said.label,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}",
        "setup_key": measured.setup_key,
        "simulated": measured.simulated,
        "bench": {
            "runs": len(measured.points),
            "seconds": round(sum(one.seconds or 0 for one in measured.points), 1),
            "left_out": sum(bool(one.not_comparable) for one in measured.points),
            "client": measured.client,
            "notes": measured.notes,
        },
        "policy": status.policy.model_dump(mode="json", include={"policy", "stance", "author"}),
        "worst_auto_over_best": min(one["auto_over_best"] for one in loads),
        "client": flow.account(),
        "loads": loads,
    }


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plane", required=True)
    parser.add_argument("--engine-id", required=True)
    parser.add_argument("--engine", required=True)
    parser.add_argument("--tiers", default="off,s3k1d4,s2k4d16")
    parser.add_argument("--clients", default="1,4,16,64,128,256")
    parser.add_argument("--window", type=float, default=3.0)
    parser.add_argument("--settle", type=float, default=12.0)
    parser.add_argument("--in", dest="input_len", type=int, default=128)
    parser.add_argument("--out", dest="output_len", type=int, default=256)
    parser.add_argument("--prompts", default="ids")
    parser.add_argument("--stream-interval", type=int, default=1)
    parser.add_argument("--bench", type=Path, required=True)
    parser.add_argument("--label", default="")
    parser.add_argument("--json", type=Path)
    said = parser.parse_args()
    found = asyncio.run(measure(said))
    worst = found["worst_auto_over_best"]
    sys.stderr.write(f"automation reached at worst {worst} of the best fixed tier\n")
    text = json.dumps(found, indent=1) + "\n"
    if said.json:
        said.json.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
