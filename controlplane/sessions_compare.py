"""Two sessions of one setup, before and after a change: what differs at the same load.  Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from controlplane.setup_key import setup_key
from controlplane.whatif_answer import Subject
from controlplane.whatif_estimate import Z95
from controlplane.whatif_moments import Moment
from engine_patch.costs import bucket
from engine_patch.tier import OFF, Frozen
from store.errors import StoreError

BLOCK_MS = 5_000
"""Neighbouring samples are alike: rates are averaged over blocks of so many milliseconds."""
LEAST_BLOCKS = 3


class Mean(Frozen):
    """A mean with its 95 % interval.

    Args:
        low, high: None with too few blocks for an interval.
        blocks: blocks of ``BLOCK_MS`` it rests on.
    """

    value: float
    low: float | None
    high: float | None
    blocks: int


class Row(Frozen):
    """One tier at one batch bucket (0: any); None where a session has nothing there.

    Args:
        unit: "tok/s" or "tok" (accept length).
        differs: the intervals do not overlap; None if that cannot be told.
    """

    tier: str
    bucket: int
    unit: str
    one: Mean | None
    other: Mean | None
    differs: bool | None


class Comparison(Frozen):
    """What two sessions have in common and where they differ.

    Args:
        warnings: what makes the comparison doubtful.
        switches_per_hour: of each session.
    """

    names: tuple[str, str]
    setup_key: str
    rows: tuple[Row, ...]
    switches: tuple[int, int]
    switches_per_hour: tuple[float | None, float | None]
    warnings: tuple[str, ...] = ()


def compare(one: Subject, other: Subject, *, anyway: bool = False) -> Comparison:
    """Compare two sessions.

    Args:
        anyway: compare different setups too; the answer says so.

    Raises:
        StoreError: they are not comparable: another setup, or another accept formula.
    """
    warnings: list[str] = []
    keys = setup_key(one.config.facts), setup_key(other.config.facts)
    if keys[0] != keys[1]:
        text = f"the sessions have different setups: {keys[0]} and {keys[1]}"
        if not anyway:
            raise StoreError(f"{text}; with --anyway they are compared all the same")
        warnings.append(text)
    formulas = one.config.facts.plugin, other.config.facts.plugin
    accept = formulas[0] is formulas[1]
    if not accept:
        warnings.append(
            "accept lengths are left out: one is the plugin's (tokens per verify step), the other "
            "SGLang's own gauge"
        )
    rows = _rows(_rates(one), _rates(other), "tok/s")
    if accept:
        rows += _rows(_accepts(one), _accepts(other), "tok")
    hours = one.moments.seconds / 3600, other.moments.seconds / 3600
    counts = len(one.recorded.switches), len(other.recorded.switches)
    return Comparison(
        names=(one.name, other.name),
        setup_key=keys[0],
        rows=tuple(rows),
        switches=counts,
        switches_per_hour=(
            counts[0] / hours[0] if hours[0] else None,
            counts[1] / hours[1] if hours[1] else None,
        ),
        warnings=tuple(warnings),
    )


Blocks = dict[tuple[str, int], dict[int, list[tuple[float, float]]]]
"""By (tier, bucket) and block: (value, weight)."""


def _rates(subject: Subject) -> Blocks:
    found: Blocks = {}
    for moment, following in _pairs(subject.moments.moments):
        if moment.tokens is None or moment.total < 1 or following.total < 1:
            continue
        at = bucket(round((moment.total + following.total) / 2))
        if moment.tier is None or moment.tier != following.tier:
            continue
        block = found.setdefault((moment.tier, at), {})
        rate = moment.tokens * 1000 / moment.dt_ms
        block.setdefault(moment.now_ms // BLOCK_MS, []).append((rate, moment.dt_ms))
    return found


def _accepts(subject: Subject) -> Blocks:
    found: Blocks = {}
    for moment in subject.moments.moments:
        tier = moment.accept_tier
        if moment.accept is None or tier in (None, OFF) or tier != moment.tier:
            continue
        block = found.setdefault((tier, 0), {})
        weighted = (moment.accept, float(max(moment.accept_requests, 1)))
        block.setdefault(moment.now_ms // BLOCK_MS, []).append(weighted)
    return found


def _pairs(moments: Sequence[Moment]) -> list[tuple[Moment, Moment]]:
    return [(one, other) for one, other in itertools.pairwise(moments) if one.dt_ms]


def _rows(one: Blocks, other: Blocks, unit: str) -> list[Row]:
    rows = []
    for tier, at in sorted(one.keys() | other.keys()):
        left, right = _mean(one.get((tier, at))), _mean(other.get((tier, at)))
        rows.append(
            Row(
                tier=tier,
                bucket=at,
                unit=unit,
                one=left,
                other=right,
                differs=_apart(left, right),
            )
        )
    return rows


def _mean(blocks: dict[int, list[tuple[float, float]]] | None) -> Mean | None:
    if not blocks:
        return None
    means = []
    for values in blocks.values():
        weight = sum(one for _, one in values)
        means.append(sum(value * one for value, one in values) / weight)
    mean = sum(means) / len(means)
    if len(means) < LEAST_BLOCKS:
        return Mean(value=mean, low=None, high=None, blocks=len(means))
    spread = math.sqrt(sum((one - mean) ** 2 for one in means) / (len(means) - 1))
    # A little wider than the normal distribution's for few blocks.
    half = (Z95 + 4.0 / (len(means) - 1)) * spread / math.sqrt(len(means))
    return Mean(value=mean, low=mean - half, high=mean + half, blocks=len(means))


def _apart(one: Mean | None, other: Mean | None) -> bool | None:
    if one is None or other is None or one.low is None or other.low is None:
        return None
    assert one.high is not None
    assert other.high is not None
    return one.high < other.low or other.high < one.low
