"""How a recorded engine compares with its step-cost table, and what prompts cost beside it.  Pure.

While requests run, time goes into decode steps and into prefill passes in between::

    time = stretch * (decode tokens / table rate) + pass_s * passes + token_s * prompt tokens

A scheduler that prefills first makes a pass before a decode step whenever a request waits, so that
``k`` requests taken in over ``n`` steps make about ``n * (1 - exp(-k / n))`` passes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.whatif_costs import CostModel, band_of
from controlplane.whatif_moments import Moment

BLOCK_MS = 15_000
"""Length of a block over which the fit's error is taken, in milliseconds."""
TRUST = 3.0
"""Weight of the table against the recording while prompts may explain the difference."""
TRUST_ALONE = 0.1
"""The same where nothing else explains it."""
ALIKE = 4.0
"""Neighbouring intervals are alike: so many of them tell as much as one."""
BUSY = 4
"""Running requests from which on the engine counts as busy through a whole interval."""


@dataclass(frozen=True)
class Fit:
    """What was found.

    Args:
        stretch: time a decode step takes, over the table's.
        pass_s, token_s: seconds per prefill pass and per prompt token.
        prompt: prompt tokens per request.
        work: decode tokens per request; None if finished requests are not counted.
        token_error: standard error of ``token_s``.
        error: relative standard error of a time that the fit gives.
    """

    stretch: float
    pass_s: float
    token_s: float
    prompt: float
    work: float | None
    token_error: float
    error: float

    def prompts_s(self, requests: float, steps: float) -> float:
        """Seconds that the prompts of so many requests take between so many decode steps."""
        if requests <= 0:
            return 0.0
        return self.pass_s * passes(requests, steps) + self.token_s * self.prompt * requests

    def prompts_between(self, requests: float, step_s: float, seconds: float) -> float:
        """Seconds that prompts take within ``seconds``, the rest of which are decode steps."""
        if requests <= 0:
            return 0.0
        low, high = 0.0, seconds / step_s
        for _ in range(10):  # the number of steps that leaves time for its own passes
            steps = (low + high) / 2
            if steps * step_s + self.prompts_s(requests, steps) > seconds:
                high = steps
            else:
                low = steps
        return self.prompts_s(requests, (low + high) / 2)

    def busy_rate(self, tok_s: float, per_step: float) -> float:
        """Decode tokens per second where a request follows each that finishes.

        Args:
            tok_s: the table's rate.
            per_step: tokens of one step of the whole batch.
        """
        step_s = self.stretch * per_step / tok_s
        if self.work:
            step_s += self.prompts_s(per_step / self.work, 1.0)
        return per_step / step_s


def passes(requests: float, steps: float) -> float:
    """Prefill passes for ``requests`` that come at random over ``steps`` decode steps."""
    if steps <= 0:
        return min(requests, 1.0)
    return steps * -math.expm1(-requests / steps)


@dataclass(frozen=True, slots=True)
class _Sample:
    """One interval: seconds by the table, passes, prompt tokens, seconds measured."""

    now_ms: int
    parts: tuple[float, float, float]
    seconds: float


def fit(moments: Sequence[Moment], model: CostModel) -> Fit | None:
    """Compare a recording with the table; None where they have nothing in common."""
    used = _samples(moments, model, BUSY) or _samples(moments, model, 1)
    if not used:
        return None
    found, errors = _least_squares(used)
    tokens = sum(one.tokens or 0 for one in moments)
    prefill = sum(one.prefill or 0 for one in moments)
    finished = sum(one.finished or 0 for one in moments)
    return Fit(
        stretch=found[0],
        pass_s=found[1],
        token_s=found[2],
        prompt=prefill / finished if finished else 0.0,
        work=tokens / finished if finished else None,
        token_error=errors[2],
        error=_error(used, found),
    )


def _samples(moments: Sequence[Moment], model: CostModel, least: int) -> list[_Sample]:
    used: list[_Sample] = []
    for at, moment in enumerate(moments[:-1]):
        following = moments[at + 1]
        tier = moment.tier
        if not moment.dt_ms or tier is None or not moment.tokens or following.tier != tier:
            continue
        if min(moment.total, following.total) < least:
            continue
        batch = (moment.total + following.total) / 2
        rate = model.rate(tier, batch, band_of(moment))
        if rate is None or rate.tok_s <= 0:
            continue
        taken = max(following.total - moment.total + (moment.finished or 0), 0)
        steps = moment.steps or moment.tokens / (batch * model.accept(tier))
        parts = (moment.tokens / rate.tok_s, passes(taken, steps), float(moment.prefill or 0))
        used.append(_Sample(moment.now_ms, parts, moment.dt_ms / 1000))
    return used


Parts = tuple[float, float, float]


def _least_squares(used: Sequence[_Sample]) -> tuple[Parts, Parts]:
    """The parts and their standard errors; parts that would come out negative are left out."""
    free = [part for part in range(3) if any(one.parts[part] for one in used)]
    while True:
        trust = TRUST if len(free) > 1 else TRUST_ALONE
        found, errors = _solved(used, free, trust)
        worst = min((part for part in free if part), key=lambda part: found[part], default=None)
        if worst is None or found[worst] >= 0:
            return found, errors
        free.remove(worst)


def _solved(used: Sequence[_Sample], free: Sequence[int], trust: float) -> tuple[Parts, Parts]:
    square = [[sum(o.parts[i] * o.parts[j] for o in used) for j in free] for i in free]
    right = [sum(one.parts[i] * one.seconds for one in used) for i in free]
    right[0] += trust * square[0][0]  # as if the table had been measured so often besides
    square[0][0] *= 1 + trust
    found = [0.0, 0.0, 0.0]
    for part, value in zip(free, _eliminated(square, right), strict=True):
        found[part] = value
    off = [one.seconds - sum(a * b for a, b in zip(found, one.parts, strict=True)) for one in used]
    variance = ALIKE * sum(one * one for one in off) / max(len(used) - len(free), 1)
    errors = [0.0, 0.0, 0.0]
    for at, part in enumerate(free):
        unit = [1.0 if i == at else 0.0 for i in range(len(free))]
        errors[part] = math.sqrt(max(variance * _eliminated(square, unit)[at], 0.0))
    return (found[0], found[1], found[2]), (errors[0], errors[1], errors[2])


def _eliminated(square: list[list[float]], right: list[float]) -> list[float]:
    """Gauss for a small symmetric system; a part that the others determine becomes 0."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(square, right, strict=True)]
    dead: set[int] = set()
    for i in range(size):
        if abs(rows[i][i]) <= 1e-9 * max(square[i][i], 1e-30):
            dead.add(i)
            continue
        for j in range(size):
            if j != i and rows[j][i]:
                share = rows[j][i] / rows[i][i]
                rows[j] = [a - share * b for a, b in zip(rows[j], rows[i], strict=True)]
    return [0.0 if i in dead else rows[i][size] / rows[i][i] for i in range(size)]


def _error(used: Sequence[_Sample], found: Parts) -> float:
    """Spread of the blocks' times around the fit, for the mean of all blocks."""
    blocks: dict[int, list[float]] = {}
    for one in used:
        block = blocks.setdefault(one.now_ms // BLOCK_MS, [0.0, 0.0])
        block[0] += one.seconds
        block[1] += sum(a * b for a, b in zip(found, one.parts, strict=True))
    off = [told / took - 1 for took, told in blocks.values()]
    return math.sqrt(sum(one * one for one in off) / len(off)) / math.sqrt(len(off))
