"""Proposed thresholds, applied to the embedded engine in ``auto``, against its best fixed tier.

Judged on decode rounds in the steady part of a closed loop: tokens over decode time in its middle
half.  Output lengths differ from request to request, so that clients do not end in step.
"""

from __future__ import annotations

import random

import pytest

from controlplane.bench_propose import propose
from controlplane.bench_records import BenchPoint
from engine_patch.contract_words import Mode, OffKind
from engine_patch.embedded.acceptance import mean_length
from engine_patch.embedded.closed_loop import run_closed_loop
from engine_patch.embedded.core import Engine, EngineConfig, Kind, Pass
from engine_patch.embedded.table import load
from engine_patch.tier import OFF, Thresholds, TierShape
from engine_patch.wire import RankCommand

TIERS = (OFF, "s3k1d4", "s2k4d16")
GRID = (1, 4, 16, 64, 128, 256)
REQUESTS_PER_CLIENT = 6


def _tok_s(
    backend: str, accept_length: float, clients: int, tier: str, order: Thresholds | None = None
) -> float:
    """Tokens per second of decode rounds on one tier, or by thresholds."""
    rounds: list[tuple[str, int, float]] = []

    def note(done: Pass) -> None:
        if done.kind is Kind.DECODE:
            rounds.append((done.tier, len(done.requests), done.end_ms - done.start_ms))

    config = EngineConfig(
        table=load(backend), tiers=TIERS, launch_tier=tier, accept_length=accept_length
    )
    engine = Engine(config, on_pass=note)
    if order is not None:
        engine.command(RankCommand(mode=Mode.AUTO, thresholds=order, epoch=1, generation=1))
    lengths = random.Random(1)
    work = [(128, lengths.randint(128, 384)) for _ in range(REQUESTS_PER_CLIENT * clients)]
    run_closed_loop(engine, work, clients)
    steady = rounds[len(rounds) // 4 : -len(rounds) // 4]
    tau = {
        name: mean_length(accept_length, TierShape.parse(name), config.accept_mode)
        for name in TIERS
    }
    tokens = sum(batch * tau[name] for name, batch, _ in steady)
    return 1000 * tokens / sum(ms for _, _, ms in steady)


@pytest.mark.parametrize(("backend", "accept_length"), [("fa3", 2.0), ("triton", 3.0)])
def test_they_reach_98_percent_of_the_best_fixed_tier_at_each_measured_concurrency(
    backend: str, accept_length: float
) -> None:
    fixed = {(tier, at): _tok_s(backend, accept_length, at, tier) for tier in TIERS for at in GRID}
    proposal = propose(
        [
            BenchPoint(
                tier=tier,
                concurrency=at,
                tok_s=speed,
                accept_length=None if tier == OFF else accept_length,
                off_kind=OffKind.PLAIN_PATH if tier == OFF else None,
            )
            for (tier, at), speed in fixed.items()
        ]
    )
    assert len(proposal.thresholds.tiers) >= 2
    assert proposal.worst_share_of_best >= 0.98
    for at in GRID:
        best = max(fixed[tier, at] for tier in TIERS)
        quiet = proposal.thresholds.tiers[0]
        applied = _tok_s(backend, accept_length, at, quiet, proposal.thresholds)
        assert applied >= 0.98 * best, (at, applied / best, proposal.thresholds)
