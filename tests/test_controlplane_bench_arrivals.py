"""Runs under Poisson arrivals: compared by time per token, never by tokens per second."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.bench_analysis import analyse
from controlplane.bench_propose import ProposalError, propose
from controlplane.bench_records import BenchFile, BenchPoint
from controlplane.bench_text import text


def run(tier: str, rate_s: float, tpot_s: float, running: int, **changes: Any) -> BenchPoint:
    """A window in which the server kept up: the tokens are those that were asked for."""
    return BenchPoint(
        tier=tier, concurrency=running, tok_s=64 * rate_s, arrivals="poisson", rate_s=rate_s,
        running=running, ttft_s=0.03, tpot_s=tpot_s, **changes,
    )  # fmt: skip


RUNS = (
    run("off", 2, 0.005, 1),
    run("s3k1d4", 2, 0.0035, 1),
    run("off", 8, 0.006, 3),
    run("s3k1d4", 8, 0.004, 2),
    run("s3k1d4", 8, 0.003, 2, repeat=2),
)


def test_no_speed_up_is_read_from_tokens_that_were_asked_for() -> None:
    found = analyse(BenchFile(points=RUNS))
    assert found.series == ()
    assert found.points == ()
    assert (found.crossover.low, found.crossover.high) == (None, None)
    assert found.verdict == (
        "At 8 requests/s a token takes 3.5 ms on s3k1d4 and 6.0 ms on off; a crossover needs a "
        "closed loop: tokens per second follow the arrivals."
    )
    assert [(one.rate_s, one.tier, one.runs) for one in found.arrivals] == [
        (2, "off", 1), (2, "s3k1d4", 1), (8, "off", 1), (8, "s3k1d4", 2),
    ]  # fmt: skip
    with pytest.raises(ProposalError):
        propose(RUNS)


def test_they_are_printed_by_rate_and_what_was_spoiled_is_named() -> None:
    late = run("off", 9, 0.1, 4, not_comparable=("arrivals were late",), repeat=3)
    shown = text(analyse(BenchFile(points=(*RUNS, late))))
    assert "      8  s3k1d4        2      2.0       512    30.0 ms    3.5 ms" in shown.splitlines()
    assert "not comparable: off at 4 (repeats 3): arrivals were late" in shown.splitlines()
    assert "      9" not in shown


def test_a_closed_loop_beside_them_is_analysed_by_itself() -> None:
    closed = [
        BenchPoint(tier="off", concurrency=1, tok_s=200),
        BenchPoint(tier="s3k1d4", concurrency=1, tok_s=300),
    ]
    found = analyse(BenchFile(points=(*RUNS, *closed)))
    assert [point.speedup for point in found.points] == [pytest.approx(1.5)]
    assert "50 % more tokens per second" in found.verdict
    assert len(found.arrivals) == 4
