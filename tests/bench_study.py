"""A synthetic server with a known answer: the embedded engine's speeds, noise and drift.

Speeds are those of closed loops on the embedded engine's measured tables (virtual time).  A run's
speed is that times noise (5 %, normal) times drift (linear over the whole benchmark, 10 %).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cache

from controlplane.bench_analysis import analyse
from controlplane.bench_crossover import Crossover
from controlplane.bench_records import BenchFile, BenchPoint
from controlplane.bench_refine import next_block
from engine_patch.embedded.acceptance import AcceptMode
from engine_patch.embedded.closed_loop import run_closed_loop
from engine_patch.embedded.core import Engine, EngineConfig
from engine_patch.embedded.table import load
from engine_patch.tier import OFF

GRID = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SCENARIOS = (
    ("fa3", 1.5),
    ("fa3", 1.8),
    ("fa3", 2.0),
    ("triton", 2.0),
    ("triton", 2.5),
    ("triton", 3.0),
)
"""Backend and accept length; in each the chain of three crosses ``off`` within the grid."""
TIER = "s3k1d4"
NOISE = 0.05
DRIFT = 0.10
FULL_BLOCKS = 4
"""Blocks (A B B A) of the full grid at each concurrency."""
REQUESTS_PER_CLIENT = 2


@cache
def speed(backend: str, accept_length: float, tier: str, clients: int) -> float:
    """Tokens per second of a closed loop without any noise."""
    config = EngineConfig(
        table=load(backend),
        tiers=(tier,),
        launch_tier=tier,
        accept_length=accept_length,
        accept_mode=AcceptMode.EXACT,
    )
    work = [(128, 256)] * (REQUESTS_PER_CLIENT * clients)
    return run_closed_loop(Engine(config), work, clients).tok_s


def true_ratio(scenario: tuple[str, float], clients: int) -> float:
    """The speed-up without noise."""
    return speed(*scenario, TIER, clients) / speed(*scenario, OFF, clients)


def true_band(scenario: tuple[str, float]) -> tuple[int, int]:
    """Places in the grid between which speculation stops paying."""
    high = next(place for place, at in enumerate(GRID) if true_ratio(scenario, at) < 1)
    return high - 1, high


def price(clients: int) -> int:
    """Requests of one block."""
    return 4 * REQUESTS_PER_CLIENT * clients


FULL_PRICE = FULL_BLOCKS * sum(price(at) for at in GRID)


@dataclass
class NoisyServer:
    """Runs blocks; drift goes with the requests that were sent, over ``length`` of them."""

    scenario: tuple[str, float]
    seed: int
    length: float
    noise: float = NOISE
    drift: float = DRIFT
    sent: float = 0.0
    points: list[BenchPoint] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._slope = self.drift * self._rng.choice((-1, 1))

    def block(self, clients: int, tier: str = TIER, base: str = OFF) -> None:
        """Measure base, tier, tier, base."""
        done = sum(point.concurrency == clients and point.tier == base for point in self.points)
        for repeat, which in ((1, base), (1, tier), (2, tier), (2, base)):
            factor = 1 + self._slope * self.sent / self.length
            noisy = speed(*self.scenario, which, clients) * self._rng.gauss(1, self.noise)
            self.points.append(
                BenchPoint(
                    tier=which,
                    concurrency=clients,
                    tok_s=max(noisy, 1e-6) * factor,
                    repeat=done + repeat,
                    block=done // 2,
                    accept_length=None if which == OFF else self.scenario[1],
                )
            )
            self.sent += price(clients) / 4

    @property
    def file(self) -> BenchFile:
        """What was measured so far."""
        return BenchFile(points=tuple(self.points))


UNEVEN = (0.02, 0.10)
"""Noise below and from 128 requests on where it is not the same at all loads."""


def full_grid(
    scenario: tuple[str, float], seed: int, blocks: int, *, uneven: bool = False
) -> NoisyServer:
    """Every concurrency, the same number of blocks."""
    server = NoisyServer(scenario, seed, blocks * sum(price(at) for at in GRID))
    for at in GRID:
        if uneven:
            server.noise = UNEVEN[at >= 128]
        for _ in range(blocks):
            server.block(at)
    return server


def refined(scenario: tuple[str, float], seed: int, budget: float) -> NoisyServer:
    """Blocks where ``next_block`` wants them, until the budget is spent."""
    server = NoisyServer(scenario, seed, budget)
    while True:
        chosen = next_block(
            server.points,
            base=OFF,
            tiers=(TIER,),
            grid=GRID,
            left=budget - server.sent,
            price=price,
        )
        if chosen is None:
            return server
        server.block(chosen.concurrency)


def covered(server: NoisyServer) -> dict[int, bool]:
    """By concurrency, whether the interval holds the true ratio."""
    return {
        point.concurrency: point.interval.low
        <= true_ratio(server.scenario, point.concurrency)
        <= point.interval.high
        for point in analyse(server.file).points
        if point.interval is not None
    }


def within_one_step(band: Crossover, scenario: tuple[str, float]) -> bool:
    """Whether both ends of a band lie within one grid step of the true ones."""
    low, high = true_band(scenario)
    if band.high is None:
        return False
    seen_low = -1 if band.low is None else GRID.index(band.low)
    return abs(seen_low - low) <= 1 and abs(GRID.index(band.high) - high) <= 1
