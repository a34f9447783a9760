"""The tiers that thresholds may choose from, and how fast each is at each load.  Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from controlplane.bench_cells import Series, beyond_caps, series_of
from controlplane.bench_noise import tolerance
from controlplane.bench_records import PLAIN, BenchPoint
from engine_patch.contract_words import OffKind
from engine_patch.tier import OFF, TierShape


class ProposalError(ValueError):
    """No thresholds can be proposed; the text says what is missing."""


class OffRule(StrEnum):
    """What stands for ``off``."""

    MEASURED = "measured"
    """The measured ``off``; where it was not measured, the plain server."""
    PLAIN = "plain"
    """The plain server first: for an engine whose off is ordinary decode."""
    NONE = "none"
    """Nothing: for an engine whose off is known to be slow."""


def candidates(
    points: Sequence[BenchPoint], notes: list[str], *, only_chains: bool
) -> dict[str, Series]:
    """The speculating tiers of one setup.

    Args:
        notes: takes what a reader must know.

    Raises:
        ProposalError: none was measured, or several setups were.
    """
    every = series_of(points)
    first = next((series for series in every if series.tier not in (PLAIN, OFF)), None)
    if first is None:
        raise ProposalError("no speculating tier was measured")
    for other in every:
        is_yardstick = other.tier in (PLAIN, OFF)
        if not other.setup.fits(first.setup) or not (is_yardstick or other.label == first.label):
            raise ProposalError(
                f"several setups in one file ({first.name}; {other.name}): choose one with "
                "--backend, --tier or --label"
            )
    found: dict[str, Series] = {}
    for series in every:
        if series.tier in (PLAIN, OFF):
            continue
        if only_chains and TierShape.parse(series.tier).topk != 1:
            notes.append(f"{series.tier} left out: a tree cannot be written in this format")
            continue
        found[series.tier] = series
    return found


def add_off(
    points: Sequence[BenchPoint], found: dict[str, Series], notes: list[str], rule: OffRule
) -> bool:
    """Add what stands for ``off``; True if there is an off and it must not be used."""
    if rule is OffRule.NONE:
        return True
    every = [series for series in series_of(points) if series.cells]
    plain = next((series for series in every if series.tier == PLAIN), None)
    offs = [series for series in every if series.tier == OFF]
    offs.sort(key=lambda series: series.off_kind is OffKind.ONE_TOKEN_VERIFY)
    if plain is not None and (rule is OffRule.PLAIN or not offs):
        notes.append("the plain server's speed stands in for off")
        found[OFF] = plain
    elif offs and plain is not None and _much_slower(offs[0], plain):
        notes.append(
            f"{offs[0].tier_text} is slower than a plain server by more than the noise: it is not "
            "proposed"
        )
        return True
    elif offs:
        found[OFF] = offs[0]
        lacking = [] if plain is None else sorted(plain.cells.keys() - offs[0].cells.keys())
        if plain is not None and lacking:
            notes.append(
                f"off was not measured at {', '.join(map(str, lacking))}: there the plain server's "
                "speed stands in for it"
            )
            found[OFF] = replace(offs[0], cells=plain.cells | offs[0].cells)
    return False


def _much_slower(off: Series, plain: Series) -> bool:
    shared = [at for at in off.cells if at in plain.cells and not beyond_caps(off, plain, at)]
    return any(
        off.cells[at].tok_s
        < plain.cells[at].tok_s * (1 - tolerance(off.cells[at].runs[0], plain.cells[at].runs[0]))
        for at in shared
    )


def rates_of(names: Sequence[str], tiers: Mapping[str, Series]) -> dict[str, dict[int, float]]:
    """Tokens per second of each tier at each concurrency where there is something to choose.

    With ``off`` among them: where its speed is known.

    Between two measured concurrencies a tier is interpolated (both axes logarithmic), beyond them
    it is not known.
    """
    several = [tiers[name] for name in names]
    measured = sorted(
        at
        for at in {at for series in several for at in series.cells}
        if not any(beyond_caps(a, b, at) for a, b in itertools.combinations(several, 2))
    )
    rates: dict[str, dict[int, float]] = {
        name: {at: speed for at in measured if (speed := _speed(tiers[name], at)) is not None}
        for name in names
    }
    least = min(2, len(names))
    known = {at for at in measured if sum(at in speeds for speeds in rates.values()) >= least}
    if OFF in rates:
        # Without off's speed nothing says whether a tier pays there, and off is the busiest.
        known &= rates[OFF].keys()
    return {
        name: {at: speed for at, speed in speeds.items() if at in known}
        for name, speeds in rates.items()
    }


def _speed(series: Series, at: int) -> float | None:
    if at in series.cells:
        return series.cells[at].tok_s
    low = max((known for known in series.cells if known < at), default=None)
    high = min((known for known in series.cells if known > at), default=None)
    if low is None or high is None:
        return None
    share = math.log(at / low) / math.log(high / low)
    ends = (math.log(series.cells[low].tok_s), math.log(series.cells[high].tok_s))
    return math.exp(ends[0] + share * (ends[1] - ends[0]))


def quiet_first(tier: str) -> tuple[int, int, str]:
    shape = TierShape.parse(tier)
    return (-shape.num_draft_tokens, -shape.num_steps, tier)
