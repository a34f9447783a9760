"""What a change of tier brought: decode speed before and after it, at equal load.

A change that made things worse by more than noise is taken back once, and its tier is left alone at
that load for a time that grows with each repetition, never for good.  Pure.
"""

from __future__ import annotations

import math
from dataclasses import replace

from controlplane.hold_off import HoldOff, Judgement
from controlplane.meter import METER_MS, Meter
from controlplane.step_table import StepTable
from controlplane.watch import BEFORE_MS, HOUR_MS, Seen, Watch
from engine_patch.costs import bucket

SIGMAS = 3.0
"""Standard errors that count as noise."""
SCALING = 0.05
"""Noise added by comparing with half or twice the batch."""
WAIT_MS = 180_000
"""A change that could not be judged in this time is not judged."""
PREFILL_MORE = 1.5
PREFILL_SHARE = 0.1
"""Prefill slows decoding: a window with more prompt tokens per decoded token than this factor and
share is no comparison."""
ACCEPT_MOVED = 0.15
"""Share by which an accept length may move before decode speed is measured anew."""


def measured(watch: Watch, seen: Seen) -> tuple[Watch, int]:
    """Take a sample in; returns the decode tokens since the last one, 0 if they cannot be told."""
    tier = seen.tier or ""
    meters, trial, decoded = watch.meters, watch.trial, 0
    accept, earlier = watch.accept, watch.earlier
    if tier != watch.tier:
        if any(one.usable(BEFORE_MS) for one in meters):
            others = tuple(one for one in earlier if one[0] != watch.tier)
            earlier = (*others[-3:], (watch.tier, meters, seen.now_ms))
        meters, accept = (), seen.accept
        if trial is not None and tier not in ("", trial.from_tier):
            trial = replace(trial, ran_ms=seen.now_ms) if tier == trial.to_tier else None
    elif seen.clean and seen.tokens is not None and watch.tokens is not None:
        decoded = max(seen.tokens - watch.tokens, 0)
        settling = trial is not None and (
            trial.ran_ms >= 0 and seen.now_ms - trial.ran_ms <= trial.settle_ms
        )
        busy = seen.load > 0 and watch.load > 0 and seen.since_ms > 0
        if busy and tier and not settling and seen.misses == watch.misses:
            if _moved(accept, seen.accept):
                # Other text, other speed: what was measured before is no yardstick for it.
                if accept is not None:
                    meters, earlier = (), ()
                accept = seen.accept
            meters = _added(meters, watch, seen, decoded)
    return (
        Watch(
            tier,
            seen.tokens,
            seen.prefill,
            seen.misses,
            seen.load,
            seen.total,
            meters,
            trial,
            watch.held_off,
            watch.changes,
            watch.went_busier,
            watch.probe_debt,
            watch.probe_cost,
            accept,
            earlier,
        ),
        decoded,
    )


def _moved(before: float | None, now: float | None) -> bool:
    if now is None:
        return False
    return before is None or abs(now - before) > ACCEPT_MOVED * before


def _added(meters: tuple[Meter, ...], watch: Watch, seen: Seen, decoded: int) -> tuple[Meter, ...]:
    at = bucket((seen.load + watch.load + 1) // 2)
    since = seen.since_ms
    rate = decoded * 1000 / since
    prefill = 0
    if seen.prefill is not None and watch.prefill is not None:
        prefill = max(seen.prefill - watch.prefill, 0)
    load_ms = (seen.total + watch.total) / 2 * since
    for index, one in enumerate(meters):
        if one.bucket == at:
            keep = 0.5 if one.ms >= METER_MS else 1.0
            more = Meter(
                at,
                one.ms * keep + since,
                one.tokens * keep + decoded,
                one.prefill * keep + prefill,
                one.load_ms * keep + load_ms,
                one.samples * keep + 1,
                one.rates * keep + rate,
                one.squares * keep + rate * rate,
            )
            return (*meters[:index], more, *meters[index + 1 :])
    return (*meters, Meter(at, since, decoded, prefill, load_ms, 1, rate, rate * rate))


def judged(
    watch: Watch, now_ms: int, judge_ms: int, margin: float, table: StepTable | None
) -> tuple[Watch, Judgement | None]:
    """The judgement on the last change, as soon as there is enough to judge it by."""
    trial = watch.trial
    if trial is None or trial.ran_ms < 0 or watch.tier != trial.to_tier:
        return watch, None
    if now_ms - trial.ran_ms > WAIT_MS + trial.settle_ms:
        return replace(watch, trial=None), None
    for after in watch.meters:
        if not after.usable(judge_ms):
            continue
        before = _yardstick(trial.before, after)
        if before is None:
            continue
        expected = before.tok_s * _scale(before, after, trial.from_tier, table)
        noise = max(margin, _noise(before, after))
        found = Judgement(
            trial.from_tier, trial.to_tier, after.bucket, after.tok_s, expected, min(noise, 1.0)
        )
        if found.worse or found.measured >= expected * (1 - margin):
            return replace(watch, trial=None), found
        # Slower, but not by more than noise: with more samples there will be less of it.
    return watch, None


def _yardstick(before: tuple[Meter, ...], after: Meter) -> Meter | None:
    """The meter to compare with: the least noisy one of those that were measured long enough and
    with as much prefill; the same bucket rather than another one."""
    usable = [
        one
        for one in before
        if one.usable(BEFORE_MS)
        and after.prefill_share <= PREFILL_MORE * one.prefill_share + PREFILL_SHARE
    ]
    return min(usable, key=lambda one: _noise(one, after), default=None)


def _noise(before: Meter, after: Meter) -> float:
    """Share by which the comparison may be off by chance, and by scaling to another bucket."""
    apart = abs(math.log2(before.bucket / after.bucket))
    return SIGMAS * math.hypot(before.error, after.error) + SCALING * apart


def _scale(before: Meter, after: Meter, tier: str, table: StepTable | None) -> float:
    """How the tier before the change would have done at the load after it, against what it did.

    By the table where it holds both buckets; else the least it can be: more requests are never
    slower together, and fewer lose at most their share.
    """
    ratio = after.load / before.load if before.load else 1.0
    if before.bucket != after.bucket and table is not None:
        one, other = table.rate(tier, before.bucket), table.rate(tier, after.bucket)
        if one and other:
            return other / one
    return min(1.0, ratio)


def settled(
    watch: Watch, found: Judgement, busier: bool, now_ms: int, first_ms: int, most_ms: int
) -> Watch:
    """Remember a judgement: a worse tier is held off, twice as long as the last time."""
    others = tuple(
        one for one in watch.held_off if (one.tier, one.back) != (found.to_tier, found.from_tier)
    )
    if not found.worse:
        return replace(watch, held_off=others) if len(others) != len(watch.held_off) else watch
    last = next((one for one in watch.held_off if one not in others), None)
    gap = first_ms if last is None else min(last.gap_ms * 2, most_ms)
    held = HoldOff(found.to_tier, found.from_tier, busier, now_ms + gap, gap, found)
    return replace(watch, held_off=(*others, held))


def forgotten(watch: Watch, load: int, now_ms: int) -> Watch:
    """Hold-offs at this load, without those that ended longer ago than they lasted; without
    changes older than an hour."""
    held = watch.held_off
    if held:
        still = tuple(one.at(load, now_ms) for one in held if now_ms - one.until_ms <= one.gap_ms)
        if still != held:
            watch = replace(watch, held_off=still)
    if watch.changes and now_ms - watch.changes[0] >= HOUR_MS:
        watch = replace(watch, changes=tuple(at for at in watch.changes if now_ms - at < HOUR_MS))
    return watch
