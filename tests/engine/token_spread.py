"""Whether two servers draw their tokens from the same distribution.

Both answer the same prompt many times; how often a pair of neighbouring tokens comes at a place of
the answer is compared with a two-sample chi-square test.  Rare pairs are put together, so that
every cell holds enough for the test's bound to be true.  Answers are drawn independently, and each
counts once per test.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx

LEAST = 20
"""Tokens of both servers together that a cell must hold."""


@dataclass(frozen=True)
class Spread:
    """How far two samples are apart.

    Args:
        chi2: the statistic.
        bound: what it exceeds with the stated probability if both servers draw alike.
        cells: number of cells.
        distance: half the sum of the differences of the shares (total variation).
    """

    chi2: float
    bound: float
    cells: int
    distance: float

    @property
    def same(self) -> bool:
        """Whether nothing speaks against one distribution."""
        return self.chi2 <= self.bound


def places(answers: Sequence[Sequence[int]], at: int) -> list[tuple[int, ...]]:
    """The token at a place of each answer, with the one before it."""
    return [tuple(answer[max(at - 1, 0) : at + 1]) for answer in answers]


def compare(one: Sequence[Hashable], other: Sequence[Hashable], *, z: float) -> Spread:
    """Compare two samples.

    Args:
        z: standard normal quantile of the false alarms that are accepted, 3.72 for 1 in 10,000.
    """
    first, second = Counter(one), Counter(other)
    both = first + second
    cells = [[first[token], second[token]] for token in both if both[token] >= LEAST]
    rest = [
        sum(counts[token] for token in both if both[token] < LEAST) for counts in (first, second)
    ]
    if sum(rest) >= LEAST or not cells:
        cells.append(rest)
    else:
        smallest = min(cells, key=sum)
        smallest[0] += rest[0]
        smallest[1] += rest[1]
    total = len(one) + len(other)
    chi2 = sum(
        (count - sum(cell) * size / total) ** 2 / (sum(cell) * size / total)
        for cell in cells
        for count, size in zip(cell, (len(one), len(other)), strict=True)
        if sum(cell)
    )
    distance = sum(abs(a / len(one) - b / len(other)) for a, b in cells) / 2
    return Spread(chi2, _bound(max(1, len(cells) - 1), z), len(cells), distance)


def _bound(freedom: int, z: float) -> float:
    """A quantile of chi-square (Wilson and Hilferty's approximation)."""
    share = 2 / (9 * freedom)
    return float(freedom * (1 - share + z * math.sqrt(share)) ** 3)


def draw(
    client: httpx.Client,
    prompt: str,
    *,
    samples: int,
    new_tokens: int,
    at_once: int,
    temperature: float,
) -> list[list[int]]:
    """Ask a server for many answers to one prompt."""
    params = {"max_new_tokens": new_tokens, "temperature": temperature, "ignore_eos": True}
    drawn: list[list[int]] = []
    while len(drawn) < samples:
        texts = [prompt] * min(at_once, samples - len(drawn))
        reply = client.post("/generate", json={"text": texts, "sampling_params": params})
        reply.raise_for_status()
        drawn += [answer["output_ids"] for answer in reply.json()]
    return drawn
