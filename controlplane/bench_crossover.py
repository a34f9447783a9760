"""Up to where speculation pays: a band of concurrencies, never a point.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from engine_patch.tier import Frozen


class Sign(StrEnum):
    """Which of two is faster, as far as the measurement can tell."""

    FASTER = "faster"
    SLOWER = "slower"
    TIE = "tie"


class Crossover(Frozen):
    """Where speculation stops paying.

    Args:
        low: the highest measured concurrency at which it surely pays; None: not bounded below.
        high: the lowest measured concurrency from which on it surely costs; None: not bounded
            above.
        reason: both ends in a sentence.
    """

    low: int | None
    high: int | None
    reason: str


def crossover(signs: Mapping[int, Sign], limit: str | None = None) -> Crossover:
    """The band between the last sure gain and the first sure loss.

    Args:
        signs: by concurrency, comparable points only.
        limit: why nothing is said above the last comparable point; then there is no upper bound
            unless a loss was seen below it.
    """
    order = sorted(signs)
    faster = [at for at in order if signs[at] is Sign.FASTER]
    slower = [at for at in order if signs[at] is Sign.SLOWER]
    tail = f"; {limit}" if limit else ""
    if not order:
        return Crossover(low=None, high=None, reason=f"no comparable point{tail}")
    span = str(order[0]) if len(order) == 1 else f"{order[0]} to {order[-1]}"
    if not faster and not slower:
        reason = f"a tie at every measured concurrency ({span}): neither side is surely faster"
        return Crossover(low=None, high=None, reason=reason + tail)
    if not slower:
        ties = [at for at in order if at > faster[-1]]
        after = f", a tie at {_listed(ties)}" if ties else ""
        reason = f"pays at {faster[-1]}{after}; no crossing seen up to {order[-1]}"
        return Crossover(low=faster[-1], high=None, reason=reason + tail)
    if not faster:
        ties = [at for at in order if at < slower[0]]
        before = f"a tie at {_listed(ties)}, " if ties else ""
        reason = f"never surely pays: {before}costs from {slower[0]} on"
        return Crossover(low=None, high=slower[0], reason=reason + tail)
    low = max((at for at in faster if at < slower[0]), default=None)
    high = min((at for at in slower if at > faster[-1]), default=None)
    if slower[0] < faster[-1]:
        reason = (
            f"not in order: costs at {_listed([at for at in slower if at < faster[-1]])} and pays "
            f"at {_listed([at for at in faster if at > slower[0]])}; the band holds both"
        )
        return Crossover(low=low, high=high, reason=reason + tail)
    ties = [at for at in order if low is not None and high is not None and low < at < high]
    between = f", a tie at {_listed(ties)}" if ties else ""
    reason = f"pays at {low}{between}, costs at {high}"
    return Crossover(low=low, high=high, reason=reason + tail)


def _listed(values: list[int]) -> str:
    return ", ".join(str(value) for value in values)
