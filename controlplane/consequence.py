"""What a change of tier brought: decode speed before and after it, at equal load.

A change that made things worse by more than noise is taken back once, and its tier is left alone at
that load for a time that grows with each repetition, never for good.  Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from controlplane.step_table import StepTable
from engine_patch.costs import bucket

NEVER = -1
HOUR_MS = 3_600_000
METER_MS = 20_000
"""Clean time after which a meter forgets half of what it has seen."""
BEFORE_MS = 1_500
"""Clean time that the tier before a change needs to be a yardstick."""
SAMPLES = 3
"""Samples that both sides need, so that their noise can be told."""
SIGMAS = 3.0
"""Standard errors that count as noise."""
SCALING = 0.05
"""Noise added by comparing with half or twice the batch."""
EARLIER_MS = 120_000
"""How long what an earlier run of a tier measured stays a yardstick."""
WAIT_MS = 180_000
"""A change that could not be judged in this time is not judged."""
PREFILL_MORE = 1.5
PREFILL_SHARE = 0.1
"""Prefill slows decoding: a window with more prompt tokens per decoded token than this factor and
share is no comparison."""
ACCEPT_MOVED = 0.15
"""Share by which an accept length may move before decode speed is measured anew."""


@dataclass(frozen=True, slots=True)
class Meter:
    """Decode speed of one tier at one batch bucket.

    Args:
        bucket: of the busiest replica's running requests.
        ms: clean time seen, older time counting less.
        tokens, prefill, load_ms: decode tokens, prompt tokens, requests x ms in it.
        samples, rates, squares: number of samples, sum of their tok/s and of its squares.
    """

    bucket: int
    ms: float = 0.0
    tokens: float = 0.0
    prefill: float = 0.0
    load_ms: float = 0.0
    samples: float = 0.0
    rates: float = 0.0
    squares: float = 0.0

    @property
    def tok_s(self) -> float:
        """Mean decode tokens per second."""
        return self.tokens * 1000 / self.ms

    @property
    def load(self) -> float:
        """Mean running requests over all replicas."""
        return self.load_ms / self.ms

    @property
    def prefill_share(self) -> float:
        """Prompt tokens per decoded token."""
        return self.prefill / self.tokens

    @property
    def error(self) -> float:
        """Standard error of the mean as a share of it."""
        mean = self.rates / self.samples
        if mean <= 0 or self.samples < 2:
            return 1.0
        variance = max(self.squares / self.samples - mean * mean, 0.0)
        return math.sqrt(variance / (self.samples - 1)) / mean

    def usable(self, least_ms: float) -> bool:
        return self.ms >= least_ms and self.samples >= SAMPLES and self.tokens > 0


@dataclass(frozen=True, slots=True)
class Trial:
    """A change whose consequence is not known yet.

    Args:
        changed_ms: when it was wanted; ran_ms: since when the engine runs it.
        settle_ms: time after that which is left out.
        before: what the tier before it did, by bucket.
    """

    from_tier: str
    to_tier: str
    busier: bool
    changed_ms: int
    settle_ms: int
    before: tuple[Meter, ...]
    ran_ms: int = NEVER


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a change brought.

    Args:
        bucket: batch bucket it was judged at.
        measured, expected: tok/s after it, and what the tier before it would do at that load.
        noise: share by which ``measured`` may fall short of ``expected``.
    """

    from_tier: str
    to_tier: str
    bucket: int
    measured: float
    expected: float
    noise: float

    @property
    def worse(self) -> bool:
        return self.measured < self.least

    @property
    def least(self) -> float:
        """Lowest tok/s that does not count as worse."""
        return self.expected * (1 - self.noise)


@dataclass(frozen=True, slots=True)
class HoldOff:
    """A tier that made things worse, left alone at that load.

    Args:
        back: the tier that is used instead.
        busier: the change went to a busier tier; the hold-off then counts up to ``bucket``, else
            from ``bucket`` on, because further out the answer may be another one.
        until_ms, gap_ms: when it ends, and how long it was.
        past_ms: since when the load has been further out.
    """

    tier: str
    back: str
    busier: bool
    until_ms: int
    gap_ms: int
    judged: Judgement
    past_ms: int = NEVER

    def counts(self, now_ms: int, hold_ms: int) -> bool:
        """Whether it is in force; a load further out for ``hold_ms`` suspends it."""
        if now_ms >= self.until_ms:
            return False
        return self.past_ms < 0 or now_ms - self.past_ms < hold_ms

    def at(self, load: int, now_ms: int) -> HoldOff:
        """The same at this load."""
        here = bucket(load)
        past = here > self.judged.bucket if self.busier else here < self.judged.bucket
        if past == (self.past_ms >= 0):
            return self
        return replace(self, past_ms=now_ms if past else NEVER)


@dataclass(frozen=True, slots=True)
class Watch:
    """What is remembered of decode speed and of changes.

    Args:
        tier: the tier that ``meters`` measure; "" if none is reported.
        tokens, prefill, misses, load, total: last counters and loads.
        held_off: tiers left alone, and those that were until lately.
        changes: when the policy changed its tier within the last hour.
        went_busier: the direction of the last change.
        probe_debt: tokens that trials decoded and the hourly budget has not covered yet.
        probe_cost: tokens of the present or last trial.
        accept: the accept length that ``meters`` were measured at; None if none was told.
        earlier: tier, meters and time of tiers that ran before this one.
    """

    tier: str = ""
    tokens: int | None = None
    prefill: int | None = None
    misses: int | None = None
    load: int = 0
    total: int = 0
    meters: tuple[Meter, ...] = ()
    trial: Trial | None = None
    held_off: tuple[HoldOff, ...] = ()
    changes: tuple[int, ...] = ()
    went_busier: bool = False
    probe_debt: float = 0.0
    probe_cost: float = 0.0
    accept: float | None = None
    earlier: tuple[tuple[str, tuple[Meter, ...], int], ...] = ()

    def before(self, tier: str, now_ms: int) -> tuple[Meter, ...]:
        """What ``tier`` did until now: its present run, or the one before if that has just begun.

        An engine that flips back and forth within seconds measures nothing in between.
        """
        if self.tier == tier and any(one.usable(BEFORE_MS) for one in self.meters):
            return self.meters
        for name, meters, at in self.earlier:
            if name == tier and now_ms - at <= EARLIER_MS:
                return meters
        return self.meters if self.tier == tier else ()

    def used(self, now_ms: int) -> int:
        """Changes within the last hour."""
        return sum(now_ms - at < HOUR_MS for at in self.changes)


@dataclass(frozen=True, slots=True)
class Seen:
    """One fresh sample's part in this: counters and what makes it no evidence.

    Args:
        tier: what every observed rank reports.
        clean: the time since the last sample can be told, without hole or retraction.
        accept: accept length of a clean window of ``tier``, else None.
    """

    now_ms: int
    since_ms: int
    tier: str | None
    load: int
    total: int
    tokens: int | None
    prefill: int | None
    misses: int | None
    clean: bool
    accept: float | None = None


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
