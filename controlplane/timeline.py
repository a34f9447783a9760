"""The controller's own time line and what it measures along it: age, holes, restarts, rates.

One integer millisecond count that never runs backwards.  Within one ``clock_id`` it follows the
poller's monotonic clock; between two it can only follow UTC, and a UTC step back counts as no time.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from controlplane.policy_state import NEVER
from store.observations import Gap, Sample

RATE_WINDOW_MS = 400
"""Shortest span over which a rate is computed, so that fast polls do not make it jump."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Where the time line stands, and the foreign clocks at that moment."""

    now_ms: int = 0
    mono_ms: int = 0
    utc_ms: int = 0
    clock_id: str | None = None

    def at(self, utc_ms: int, mono_ms: int, clock_id: str) -> Clock:
        """The clock moved on to another moment; never back."""
        if self.clock_id is None:
            return Clock(0, mono_ms, utc_ms, clock_id)
        if clock_id != self.clock_id:
            passed = max(utc_ms - self.utc_ms, 0)
            return Clock(self.now_ms + passed, mono_ms, utc_ms, clock_id)
        passed = mono_ms - self.mono_ms
        if passed <= 0:
            return self
        return Clock(self.now_ms + passed, mono_ms, utc_ms, clock_id)


@dataclass(frozen=True, slots=True)
class Timeline:
    """What is remembered of past observations of one engine.

    Args:
        sampled_ms, fresh_ms: last successful poll, last fresh set of numbers.
        began_ms: first observation; base of ages before there is a fresh sample.
        boot_id, boot_ms: the engine's present start, and when it was first seen.
        restarted: that start happened under our eyes.
        tokens: recent fresh (time, decode tokens) pairs, oldest first.
        tok_s: decode tokens per second over the newest window; None if it cannot be told.
        retractions, verify_steps: the counters' last values.
        lease_ms: when the engine's lease ends by its own account, NEVER without one.
    """

    clock: Clock = Clock()
    began_ms: int = NEVER
    sampled_ms: int = NEVER
    fresh_ms: int = NEVER
    boot_id: str | None = None
    boot_ms: int = NEVER
    restarted: bool = False
    tokens: tuple[tuple[int, int], ...] = ()
    tok_s: float | None = None
    retractions: int | None = None
    verify_steps: int | None = None
    lease_ms: int = NEVER

    def stale_ms(self) -> int:
        """Time since the last fresh sample; since the first observation if there was none."""
        since = self.fresh_ms if self.fresh_ms >= 0 else self.began_ms
        return self.clock.now_ms - since if since >= 0 else 0


@dataclass(frozen=True, slots=True)
class Advance:
    """What one sample meant for the time line.

    Args:
        restart: the engine has started anew since the last sample.
        hole: the time since the previous fresh sample was too long to say anything about it.
        since_ms: that time; 0 after a hole, a restart or at the first sample.
        retracted: requests retracted in it.
        verified: drafts were verified in it, so that an accept length is not an old one.
    """

    restart: bool
    hole: bool
    since_ms: int
    retracted: int
    verified: bool


def passed_gap(time: Timeline, gap: Gap, stale_after_ms: int) -> Timeline:
    """The time line after a failed poll: only time has passed."""
    clock = time.clock.at(gap.at_utc_ms, gap.at_mono_ms, gap.clock_id)
    began = clock.now_ms if time.began_ms < 0 else time.began_ms
    moved = replace(time, clock=clock, began_ms=began)
    if moved.stale_ms() > stale_after_ms:
        return replace(moved, tok_s=None, tokens=())
    return moved


def passed_sample(time: Timeline, sample: Sample, stale_after_ms: int) -> tuple[Timeline, Advance]:
    """The time line after a successful poll."""
    clock = time.clock.at(sample.at_utc_ms, sample.at_mono_ms, sample.clock_id)
    now = clock.now_ms
    other_clock = time.clock.clock_id is not None and clock.clock_id != time.clock.clock_id
    restart = _restarted(time, sample)
    since = now - time.fresh_ms if time.fresh_ms >= 0 and not restart else 0
    hole = restart or time.fresh_ms < 0 or since > stale_after_ms
    tokens, tok_s = time.tokens, time.tok_s
    if restart or other_clock or now - time.fresh_ms > stale_after_ms:
        tokens, tok_s = (), None
    retracted = 0
    retractions = None if restart else time.retractions
    if sample.fresh:
        tokens, tok_s = _rate(tokens, now, sample.decode_tokens)
        if sample.retractions is not None:
            if retractions is not None:
                retracted = max(sample.retractions - retractions, 0)
            retractions = sample.retractions
    verify_steps = None if restart else time.verify_steps
    verified = sample.verify_steps is None or sample.verify_steps > (verify_steps or 0)
    first_of_boot = restart or time.boot_ms < 0
    lease = sample.lease_remaining_s
    moved = Timeline(
        clock=clock,
        began_ms=now if time.began_ms < 0 else time.began_ms,
        sampled_ms=now,
        fresh_ms=now if sample.fresh else (NEVER if restart else time.fresh_ms),
        boot_id=sample.boot_id if sample.boot_id is not None else time.boot_id,
        boot_ms=now if first_of_boot else time.boot_ms,
        restarted=restart or time.restarted,
        tokens=tokens,
        tok_s=tok_s,
        retractions=retractions,
        verify_steps=verify_steps if sample.verify_steps is None else sample.verify_steps,
        lease_ms=NEVER if lease is None else now + round(lease * 1000),
    )
    return moved, Advance(restart, hole, 0 if hole else since, retracted, verified)


def _restarted(time: Timeline, sample: Sample) -> bool:
    """Another boot id; or, where the engine has none, a counter that went back."""
    if sample.boot_id is not None and time.boot_id is not None:
        return sample.boot_id != time.boot_id
    if not time.tokens or sample.decode_tokens is None:
        return False
    return sample.decode_tokens < time.tokens[-1][1]


def _rate(
    tokens: tuple[tuple[int, int], ...], now: int, counter: int | None
) -> tuple[tuple[tuple[int, int], ...], float | None]:
    """Keep the newest span of at least the window and compute the rate over it."""
    if counter is None:
        return (), None
    if tokens and (counter < tokens[-1][1] or now <= tokens[-1][0]):
        return ((now, counter),), None
    # Drop pairs as long as the next one still spans the window.
    first = 0
    while first + 1 < len(tokens) and now - tokens[first + 1][0] >= RATE_WINDOW_MS:
        first += 1
    kept = (*tokens[first:], (now, counter))
    start, base = kept[0]
    if now - start < RATE_WINDOW_MS:
        return kept, None
    return kept, (counter - base) * 1000 / (now - start)
