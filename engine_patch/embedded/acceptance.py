"""How many drafts a verify step accepts: one per-position model for every tier.

``sampled``: a draft at depth i is accepted if all before it were and it passes with probability
``a``, the same at each depth.  The accept length of a chain of n steps is then
``1 + a + a^2 + ... + a^n``; ``a`` is chosen so that the chain of three has the mean asked for, and
shorter or longer chains follow from the same ``a``.  For a tree no measurement of a real drafter
exists; it gets the mean of the chain of three (as in the measured load, where both ran at the same
simulated length), spread over its own depth.

``exact``: every request of a step accepts the same number, as SGLang's own simulated acceptance
does; the mean is capped at steps + 1.
"""

from __future__ import annotations

import random
from enum import StrEnum
from itertools import accumulate
from typing import Protocol

from engine_patch.tier import TierShape

REFERENCE_STEPS = 3
"""The chain whose mean accept length is asked for."""
_DITHER = 64
_DEEPEST = 64


class AcceptMode(StrEnum):
    """How accepted drafts are drawn."""

    SAMPLED = "sampled"
    EXACT = "exact"


class Sampler(Protocol):
    """Draws the accepted drafts of a verify step."""

    def draw(self, requests: int) -> bytes:
        """Accepted drafts of each request, bonus token not counted."""
        ...


def position_rate(accept_length: float, steps: int) -> float:
    """The ``a`` with ``1 + a + ... + a^steps == accept_length``.

    Raises:
        ValueError: no such rate exists.
    """
    if not 1.0 <= accept_length <= steps + 1:
        raise ValueError(
            f"an accept length of {steps} draft steps lies between 1 and {steps + 1}, "
            f"not {accept_length}"
        )
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if chain_length(middle, steps) < accept_length:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def chain_length(rate: float, steps: int) -> float:
    """Mean accept length of a chain whose drafts pass with ``rate`` at each depth."""
    return sum(rate**depth for depth in range(steps + 1))


def tier_rate(accept_length: float, shape: TierShape) -> float:
    """Per-position rate of a tier when the chain of three accepts ``accept_length`` on average."""
    if shape.num_steps == 0:
        return 0.0
    if shape.topk == 1:
        return position_rate(accept_length, REFERENCE_STEPS)
    return position_rate(min(accept_length, shape.num_steps + 1), shape.num_steps)


def mean_length(accept_length: float, shape: TierShape, mode: AcceptMode) -> float:
    """Mean accept length of a tier, bonus token included."""
    if mode is AcceptMode.EXACT:
        return min(accept_length, shape.num_steps + 1)
    return chain_length(tier_rate(accept_length, shape), shape.num_steps)


def sampler(
    accept_length: float, shape: TierShape, mode: AcceptMode, rng: random.Random
) -> Sampler:
    """The sampler of one tier; all samplers of an engine share its generator."""
    if mode is AcceptMode.EXACT:
        return Exact(mean_length(accept_length, shape, mode))
    return Geometric(tier_rate(accept_length, shape), shape.num_steps, rng)


class Exact:
    """The same count for every request of a step; a fractional mean alternates over steps."""

    def __init__(self, accept_length: float) -> None:
        self._whole, self._rest = divmod(accept_length - 1.0, 1.0)
        self._debt = 0.0

    def draw(self, requests: int) -> bytes:
        """See ``Sampler``."""
        self._debt += self._rest
        count = int(self._whole)
        if self._debt >= 1.0 - 1e-9:
            self._debt -= 1.0
            count += 1
        return bytes((count,)) * requests


class Geometric:
    """Independent draws by the per-position model.

    One random byte per request is looked up in a table of 256 counts.  The table is one of 64 that
    round the probabilities differently, so that the mean is right to about 1e-4 all the same.
    """

    def __init__(self, rate: float, steps: int, rng: random.Random) -> None:
        reached = list(accumulate([rate] * min(steps, _DEEPEST), lambda p, a: p * a))
        self._rng = rng
        self._tables = tuple(
            _table([int(256 * p + (place + 0.5) / _DITHER) for p in reached])
            for place in range(_DITHER)
        )

    def draw(self, requests: int) -> bytes:
        """See ``Sampler``."""
        table = self._tables[self._rng.getrandbits(6)]
        return self._rng.randbytes(requests).translate(table)


def _table(limits: list[int]) -> bytes:
    return bytes(sum(value < limit for limit in limits) for value in range(256))
