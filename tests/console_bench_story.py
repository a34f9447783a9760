"""A benchmark of the told engine: constructed points for frames and board tests.

Shaped like the measured H200 results (a chain that pays up to about 128 requests), and no
measurement.
"""

from __future__ import annotations

from typing import Any

from controlplane.bench_analysis import analyse
from controlplane.bench_findings import Analysis
from controlplane.bench_propose import Proposal, ProposalError, propose
from controlplane.bench_records import BenchPoint
from controlplane.benchrun_job import file_of
from controlplane.benchrun_messages import BenchRequest, BenchState, BenchStatus
from engine_patch.contract_words import OffKind
from tests.console_story import DEEP, ENGINE, NARROW, OFF, START_MS

SPEEDS: dict[str, dict[int, float]] = {
    OFF: {1: 198, 4: 640, 16: 2050, 64: 5400, 128: 7900},
    NARROW: {1: 262, 4: 820, 16: 2500, 64: 5900, 128: 7200},
    DEEP: {1: 305, 4: 930, 16: 2640, 64: 5500, 128: 6300},
}
SPREAD = {OFF: (0.0, 0.01, -0.015), NARROW: (-0.012, 0.0, 0.02), DEEP: (0.02, -0.01, 0.0)}
"""How far each repeat lies from the mean, as a share."""
ACCEPT = {OFF: None, NARROW: 1.55, DEEP: 2.05}
ID = "20261129-120000"


def points(repeats: int = 3, most: int = 128, **changes: Any) -> tuple[BenchPoint, ...]:
    """Every tier at every concurrency up to ``most``."""
    return tuple(
        BenchPoint(
            **{
                "tier": tier,
                "concurrency": at,
                "tok_s": speed * (1 + SPREAD[tier][repeat - 1]),
                "repeat": repeat,
                "accept_length": ACCEPT[tier],
                "cap": 256,
                "off_kind": OffKind.PLAIN_PATH if tier == OFF else None,
                "backend": "fa3",
            }
            | changes
        )
        for at in SPEEDS[OFF]
        if at <= most
        for repeat in range(1, repeats + 1)
        for tier, speed in ((name, SPEEDS[name][at]) for name in (OFF, NARROW, DEEP))
    )


def request(**changes: Any) -> BenchRequest:
    """What was asked for."""
    return BenchRequest(
        **{"concurrency": (1, 4, 16, 64, 128), "repeats": 3, "author": "op1"} | changes
    )


def status(**changes: Any) -> BenchStatus:
    """A benchmark that was done a minute before the story."""
    known: dict[str, Any] = {
        "id": ID,
        "engine_id": ENGINE,
        "state": BenchState.DONE,
        "author": "op1",
        "request": request(),
        "setup_key": "sglang-0.5.23_Qwen3-8B",
        "started_utc_ms": START_MS - 660_000,
        "ended_utc_ms": START_MS - 60_000,
        "phase": "ended",
        "done_runs": 45,
        "total_runs": 45,
        "elapsed_s": 600.0,
        "points": points(),
    }
    return BenchStatus(**known | changes)


def running(**changes: Any) -> BenchStatus:
    """One that is under way."""
    known: dict[str, Any] = {
        "id": "20261129-120230",
        "state": BenchState.RUNNING,
        "phase": f"{DEEP} at 16 clients, repeat 2",
        "done_runs": 22,
        "left_s": 312.0,
        "ended_utc_ms": None,
        "points": points(repeats=2, most=16),
    }
    return status(**known | changes)


def judged(one: BenchStatus) -> tuple[Analysis, Proposal | None]:
    """What follows from it."""
    try:
        proposal = propose(one.points)
    except ProposalError:
        proposal = None
    return analyse(file_of(one), one.id), proposal
