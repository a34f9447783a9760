"""A first policy for an engine: from its step-cost table where there is one, else careful defaults.

Tokens per second of a tier at ``b`` running requests are ``b * accept length / step time``: the
accept length never changes a step time, so the two are looked up apart.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping

from controlplane.off_note import OffWorth, off_note
from engine_patch.costs import ContextBand, StepCost
from engine_patch.tier import OFF, Boundary, TierShape
from store.observations import EngineFacts
from store.policies import HysteresisPolicy

ASSUMED_CHAIN = 0.6
"""Share of first drafts assumed to be accepted on a chain when no accept length is known."""
ASSUMED_TREE = 0.75
"""The same for a tree, whose branches catch more."""
VERIFIED_TOKENS = 64
"""Without a table a tier is used while running requests x draft tokens stay at or below this.

Measured crossings on an H200 (8B shape, chain of 4 draft tokens) lie at 80 verified tokens on
triton and at 400 on FA3; a tree of 16 paid up to 64.  So this errs towards too little speculation.
"""
GAP = 0.2
"""Gap between ``up_at`` and ``down_at``, as a share of the crossing, which is ``up_at``.

It lies below the crossing: there the quieter tier is ahead by little, above it the busier one is
ahead by more and more.
"""


def default_policy(
    facts: EngineFacts,
    costs: tuple[StepCost, ...] = (),
    accept_lengths: Mapping[str, float] | None = None,
) -> HysteresisPolicy:
    """Tiers and boundaries for this engine.

    With cells for at least two of the built tiers, each boundary lies where the busier tier
    overtakes the quieter one in tokens per second; tiers that never win are left out.  ``off`` is
    left out where it is known to be slower than plain, and kept otherwise even if it never wins,
    because it is what gives KV slots back.

    Args:
        costs: the step-cost table of this setup; the shortest context band is used.
        accept_lengths: measured tokens per verify step and request, by tier; a tier without one
            takes it from the table's tokens per step, else an assumed one.
    """
    tiers = _quiet_to_busy(facts)
    if len(tiers) < 2:
        return HysteresisPolicy(tiers=tiers or (OFF,))
    steps = _step_times(tiers, costs)
    known = [tier for tier in tiers if tier in steps]
    shared = sorted(set.intersection(*(set(steps[tier]) for tier in known))) if known else []
    if len(known) < 2 or len(shared) < 2:
        return _careful(tiers)
    accepts = {tier: _accept_length(tier, costs, accept_lengths or {}) for tier in known}
    return _measured(known, steps, shared, accepts)


def assumed_accept_length(tier: str) -> float:
    """Tokens per verify step and request when nothing was measured: a geometric acceptance."""
    shape = TierShape.parse(tier)
    share = ASSUMED_CHAIN if shape.topk == 1 else ASSUMED_TREE
    return sum(share**depth for depth in range(shape.num_steps + 1))


def _quiet_to_busy(facts: EngineFacts) -> tuple[str, ...]:
    """Built tiers, the one that verifies most tokens per request first, ``off`` last."""
    speculating = sorted(
        (tier for tier in facts.tiers if tier.name != OFF),
        key=lambda tier: (-tier.num_draft_tokens, -tier.num_steps, tier.name),
    )
    names = [tier.name for tier in speculating]
    has_off = any(tier.name == OFF for tier in facts.tiers)
    if has_off and off_note(facts).worth is not OffWorth.WORSE:
        names.append(OFF)
    return tuple(names)


def _careful(tiers: tuple[str, ...]) -> HysteresisPolicy:
    """Boundaries from the number of verified tokens alone, rising."""
    boundaries: list[Boundary] = []
    for tier in tiers[:-1]:
        up_at = max(VERIFIED_TOKENS // TierShape.parse(tier).num_draft_tokens, 1)
        boundaries.append(_boundary(up_at, up_at * 3 // 4, boundaries))
    return HysteresisPolicy(tiers=tiers, boundaries=tuple(boundaries))


def _boundary(up_at: int, down_at: int, earlier: list[Boundary]) -> Boundary:
    """A valid boundary next to these numbers that lies above the earlier ones."""
    if earlier:
        up_at = max(up_at, earlier[-1].up_at + 1)
        down_at = max(down_at, earlier[-1].down_at + 1)
    up_at = max(up_at, 1)
    return Boundary(up_at=up_at, down_at=max(min(down_at, up_at - 1), 0))


def _step_times(tiers: tuple[str, ...], costs: tuple[StepCost, ...]) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for cost in costs:
        if cost.tier in tiers and cost.band is ContextBand.UP_TO_1K:
            found.setdefault(cost.tier, {})[cost.bucket] = cost.mean_ms
    return found


def _accept_length(tier: str, costs: tuple[StepCost, ...], given: Mapping[str, float]) -> float:
    if tier == OFF:
        return 1.0
    if tier in given:
        return given[tier]
    rates = [
        cost.tokens_per_step / cost.bucket
        for cost in costs
        if cost.tier == tier and cost.tokens_per_step and cost.measured
    ]
    # A bucket's steps hold at most that many requests, so the largest quotient is the least
    # diluted one; more than every draft accepted is not possible.
    if rates:
        return min(max(max(rates), 1.0), TierShape.parse(tier).num_steps + 1.0)
    return assumed_accept_length(tier)


def _measured(
    tiers: list[str],
    steps: dict[str, dict[int, float]],
    buckets: list[int],
    accepts: dict[str, float],
) -> HysteresisPolicy:
    def rate(index: int, bucket: int) -> float:
        return bucket * accepts[tiers[index]] / steps[tiers[index]][bucket]

    # The best tier by bucket, never quieter again once a busier one has won: noise in the table
    # must not order tiers against the load.
    best: list[int] = []
    for bucket in buckets:
        winner = max(range(len(tiers)), key=lambda index: rate(index, bucket))
        best.append(max([winner, *best[-1:]]))
    used = sorted(set(best))
    if tiers[used[-1]] != OFF and tiers[-1] == OFF:
        used.append(len(tiers) - 1)
    if used == [len(tiers) - 1] and tiers[-1] == OFF:
        # Speculation never pays in the table: keep one tier for an idle engine, so that a better
        # acceptance can be noticed at all.
        used.insert(0, len(tiers) - 2)
    boundaries: list[Boundary] = []
    for quiet, busy in itertools.pairwise(used):
        crossing = _crossing(quiet, busy, buckets, rate)
        if crossing is None:
            up_at, down_at = buckets[-1] + 1, math.floor(buckets[-1] * (1 - GAP))
        else:
            up_at = math.ceil(crossing)
            down_at = math.floor(crossing * (1 - GAP))
        boundaries.append(_boundary(up_at, down_at, boundaries))
    return HysteresisPolicy(
        tiers=tuple(tiers[index] for index in used),
        boundaries=tuple(boundaries),
        min_accept_length=_floors([tiers[index] for index in used], steps, buckets[0]),
    )


def _crossing(
    quiet: int, busy: int, buckets: list[int], rate: Callable[[int, int], float]
) -> float | None:
    """Running requests at which ``busy`` overtakes ``quiet`` for good; None if it never does."""
    lead = [math.log(rate(quiet, bucket) / rate(busy, bucket)) for bucket in buckets]
    if lead[-1] > 0:
        return None
    last_ahead = max((i for i, value in enumerate(lead) if value > 0), default=None)
    if last_ahead is None:
        return buckets[0] / 2
    low, high = buckets[last_ahead], buckets[last_ahead + 1]
    share = lead[last_ahead] / (lead[last_ahead] - lead[last_ahead + 1])
    return low + share * (high - low)


def _floors(tiers: list[str], steps: dict[str, dict[int, float]], bucket: int) -> dict[str, float]:
    """Break-even accept lengths against ``off`` at the quietest bucket.

    Below it the tier loses even where speculation pays most.  Without a measured ``off`` there is
    nothing to break even with, and no floor.
    """
    if OFF not in tiers or bucket not in steps.get(OFF, {}):
        return {}
    floors: dict[str, float] = {}
    for tier in tiers:
        if tier == OFF or bucket not in steps.get(tier, {}):
            continue
        even = steps[tier][bucket] / steps[OFF][bucket]
        most = TierShape.parse(tier).num_steps + 1
        floors[tier] = round(min(max(even, 1.05), most), 2)
    return floors
